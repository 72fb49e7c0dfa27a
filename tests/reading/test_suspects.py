import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from memagent_batch.errors import EngineDeadError, EngineRequestError, PromptTooLongError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.run.reading.places import (
    ALONE_DEATHS,
    FATAL_DEATHS,
    SUSPECT_DEATHS,
    SUSPECTS_TOGETHER,
    Suspects,
    TurnKey,
)
from memagent_batch.types import Completion, FinishReason, Prompt

FINE = Completion(token_ids=(1,), text="fine", finish_reason=FinishReason.STOP)
POISON = "update/7"

Ask = Callable[[Prompt], Awaitable[Completion]]


def address_of(document: str, reader: str = "f") -> ReadingAddress:
    return ReadingAddress(document_hash=document, question_hash="q", sample=0, fingerprint=reader)


def prompt_of(path: str) -> Prompt:
    return Prompt(path=path, kind="update", token_ids=(1,), max_tokens=1)


def watched(suspects: Suspects, ask: Ask, *, document: str = "d", reader: str = "f") -> Ask:
    async def turn(prompt: Prompt) -> Completion:
        address = address_of(document, reader)
        async with suspects.admit(address, prompt.path):
            with suspects.watch(address, prompt.path):
                return await ask(prompt)

    return turn


async def die_of_poison(prompt: Prompt) -> Completion:
    """An engine that one turn kills."""
    if prompt.path == POISON:
        raise EngineDeadError("the engine is gone")
    return FINE


async def deaths_of(*paths: str, deaths: int) -> list[TurnKey]:
    """What is known after so many actors died with these turns in flight."""
    died: list[TurnKey] = []
    for _ in range(deaths):
        suspects = Suspects(died)
        asked = (watched(suspects, always_dying)(prompt_of(path)) for path in paths)
        await asyncio.gather(*asked, return_exceptions=True)
        died += suspects.at_death
    return died


async def always_dying(prompt: Prompt) -> Completion:
    await asyncio.sleep(0)  # what else is to be in flight begins
    raise EngineDeadError("the engine is gone")


class Crowd:
    """An engine that counts how many turns it serves at once."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0

    async def complete(self, prompt: Prompt) -> Completion:
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0.01)
        self._now -= 1
        return FINE


@pytest.mark.parametrize("other", [{"path": "update/8"}, {"document": "other"}, {"reader": "second"}])
async def test_suspect_given_up_leaves_other_turns_documents_and_readers_alone(other: dict[str, str]) -> None:
    suspects, path = Suspects(await deaths_of(POISON, deaths=FATAL_DEATHS)), other.pop("path", POISON)
    assert await watched(suspects, fine, **other)(prompt_of(path)) == FINE


async def test_suspect_that_waited_for_a_fatal_one_is_not_blamed_for_its_death() -> None:
    paths = [f"update/{i}" for i in range(4)]
    last = watched(Suspects(await deaths_of(*paths, deaths=FATAL_DEATHS)), fine)
    outcomes = await asyncio.gather(*(last(prompt_of(path)) for path in paths), return_exceptions=True)
    assert [isinstance(outcome, EngineRequestError) for outcome in outcomes] == [True, False, False, False]


@pytest.mark.parametrize(("deaths", "together"), [(SUSPECT_DEATHS, SUSPECTS_TOGETHER), (ALONE_DEATHS, 1)])
async def test_suspects_run_in_groups_then_alone_and_other_turns_side_by_side(deaths: int, together: int) -> None:
    paths, others = ([f"{kind}/{i}" for i in range(40)] for kind in ("update", "other"))
    died = die_together(paths, deaths=deaths)
    assert await most_at_once(Suspects(died), paths) == together
    assert await most_at_once(Suspects(died), others) == len(others)


async def test_suspect_that_must_run_alone_is_let_in_while_others_keep_coming() -> None:
    paths = [f"turn/{i}" for i in range(3 * SUSPECTS_TOGETHER)]
    died = die_together([*paths, POISON], deaths=SUSPECT_DEATHS) + die_together([POISON], deaths=1)
    suspects, ended = Suspects(died), list[str]()

    async def slow(prompt: Prompt) -> Completion:
        await asyncio.sleep(0.001)
        ended.append(prompt.path)
        return FINE

    guarded = watched(suspects, slow)
    order = [*paths[:20], POISON, *paths[20:]]
    await asyncio.gather(*(guarded(prompt_of(path)) for path in order))
    assert ended.index(POISON) == 20


async def test_poison_among_many_turns_costs_four_deaths_and_no_other_turn() -> None:
    """Actors that begin with the same turns, as after a restart, until one gets through."""
    paths, died = [f"turn/{i}" for i in range(256)], list[TurnKey]()
    dies = []
    for _ in range(FATAL_DEATHS + 1):
        suspects = Suspects(died)
        guarded = watched(suspects, die_of_poison)
        asked = [guarded(prompt_of(path)) for path in [*paths[:100], POISON, *paths[100:]]]
        ended = await asyncio.gather(*asked, return_exceptions=True)
        dies.append(any(isinstance(each, EngineDeadError) for each in ended))
        died += suspects.at_death
    assert dies == [True] * FATAL_DEATHS + [False]
    assert [place for place, each in enumerate(ended) if isinstance(each, EngineRequestError)] == [100]


def die_together(paths: list[str], *, deaths: int) -> list[TurnKey]:
    """What is known after so many actors died with all these turns in flight at once."""
    suspects = Suspects()
    with contextlib.suppress(EngineDeadError), contextlib.ExitStack() as in_flight:
        for path in paths:
            in_flight.enter_context(suspects.watch(address_of("d"), path))
        raise EngineDeadError("the engine is gone")
    return suspects.at_death * deaths


async def most_at_once(suspects: Suspects, paths: list[str]) -> int:
    crowd = Crowd()
    guarded = watched(suspects, crowd.complete)
    await asyncio.gather(*(guarded(prompt_of(path)) for path in paths))
    return crowd.most


async def test_first_death_makes_nobody_a_suspect() -> None:
    paths = [f"update/{i}" for i in range(4)]
    assert await most_at_once(Suspects(await deaths_of(*paths, deaths=1)), paths) == 4


async def fine(prompt: Prompt) -> Completion:
    return FINE


async def refused(prompt: Prompt) -> Completion:
    raise EngineRequestError("bad request")


async def too_long(prompt: Prompt) -> Completion:
    raise PromptTooLongError("too long")


@pytest.mark.parametrize("ask", [fine, refused, too_long])
async def test_turn_that_ended_is_not_blamed_for_a_later_death(ask: Ask) -> None:
    suspects = Suspects()
    asked = (watched(suspects, each)(prompt_of(path)) for each, path in [(ask, "update/0"), (always_dying, POISON)])
    await asyncio.gather(*asked, return_exceptions=True)
    assert [path for *_, path in suspects.at_death] == [POISON]
