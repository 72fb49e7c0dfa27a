import asyncio

import pytest

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.reading.places import TurnPlaces


def reading(name: str) -> ReadingAddress:
    return ReadingAddress(document_hash=name, question_hash="q", sample=0, reader_fingerprint="f")


async def test_places_go_to_waiting_readings_by_turns() -> None:
    places, order = TurnPlaces(1), list[str]()

    async def turn(name: str) -> None:
        async with places.place(reading(name)):
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(turn(name) for name in ["long"] * 6 + ["short"] * 2 + ["other"]))
    assert order == ["long", "long", "short", "other", "long", "short", "long", "long", "long"]


async def test_places_are_never_more_than_their_number_and_all_come_back() -> None:
    places, taken, most = TurnPlaces(3), 0, 0

    async def turn(number: int) -> None:
        nonlocal taken, most
        async with places.place(reading(str(number % 4))):
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
        async with places.place(reading(name)):
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
