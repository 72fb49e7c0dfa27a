import asyncio

import pytest

from memagent_batch.errors import BoundReachedError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.run.reading.places import TurnPlaces


def reading(name: str) -> ReadingAddress:
    return ReadingAddress(document_hash=name, question_hash="q", sample=0, fingerprint="f")


async def test_free_place_goes_to_the_earliest_document_and_in_it_to_the_earliest_turn() -> None:
    places, order = TurnPlaces(1), list[tuple[int, int, str]]()

    async def turn(document: int, number: int, name: str) -> None:
        async with places.place(reading(name), document=document, turn=number):
            order.append((document, number, name))
            await asyncio.sleep(0)

    asked = [(2, 0, "c"), (2, 1, "c"), (1, 1, "a"), (1, 0, "b"), (1, 0, "a"), (1, 1, "b")]
    await asyncio.gather(*(turn(*each) for each in asked))
    assert order[0] == (2, 0, "c")  # its place was free
    assert order[1:] == [(1, 0, "b"), (1, 0, "a"), (1, 1, "a"), (1, 1, "b"), (2, 1, "c")]


async def test_no_reading_starves_however_many_documents_begin_after_it() -> None:
    places, ended = TurnPlaces(2), list[str]()

    async def read(name: str) -> None:
        document = places.begin_document()
        for number in range(3):
            async with places.place(reading(name), document=document, turn=number):
                await asyncio.sleep(0)
        ended.append(name)
        if len(ended) < 20:
            group.create_task(read(f"later {len(ended)}"))

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for name in ("first", "second", "third"):
            group.create_task(read(name))
    assert ended[:3] == ["first", "second", "third"]


async def test_closed_places_let_turns_under_way_end_and_refuse_all_others() -> None:
    places, ended = TurnPlaces(2), list[str]()
    go_on = asyncio.Event()

    async def turn(name: str) -> None:
        async with places.place(reading(name), document=1, turn=0):
            await go_on.wait()
            ended.append(name)

    turns = [asyncio.create_task(turn(name)) for name in ("a", "b", "waits")]
    await asyncio.sleep(0)
    places.close("the bound")
    later = asyncio.create_task(turn("later"))
    await asyncio.sleep(0)
    assert not any(task.done() for task in (*turns, later))
    go_on.set()
    results = await asyncio.gather(*turns, later, return_exceptions=True)
    assert results[:2] == [None, None]
    assert [str(error) for error in results[2:]] == ["the bound", "the bound"]
    assert ended == ["a", "b"]
    with pytest.raises(BoundReachedError, match="the bound"):
        await turn("last")


async def test_places_are_never_more_than_their_number_and_all_come_back() -> None:
    places, taken, most = TurnPlaces(3), 0, 0

    async def turn(number: int) -> None:
        nonlocal taken, most
        async with places.place(reading(str(number % 4)), document=number % 4, turn=0):
            taken += 1
            most = max(most, taken)
            await asyncio.sleep(0.001)
            taken -= 1
            if number % 5 == 0:
                raise TimeoutError

    for _ in range(2):
        await asyncio.gather(*(turn(number) for number in range(40)), return_exceptions=True)
        assert (taken, most) == (0, 3)


@pytest.mark.parametrize("is_given", [False, True])
async def test_place_of_a_cancelled_turn_goes_to_the_next(is_given: bool) -> None:
    places, entered = TurnPlaces(1), list[str]()

    async def turn(name: str) -> None:
        async with places.place(reading(name), document=1, turn=0):
            entered.append(name)
            await asyncio.sleep(0)
            if name == "first" and not is_given:
                second.cancel()
        if name == "first" and is_given:  # the second has the place, and has not woken up yet
            second.cancel()

    first, second, third = (asyncio.create_task(turn(name)) for name in ("first", "second", "third"))
    await asyncio.wait([first, second, third])
    assert entered == ["first", "third"]
    assert second.cancelled()
