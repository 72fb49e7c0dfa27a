import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.errors import EngineDeadError, EngineRequestError, PromptTooLongError
from memagent_batch.reading.suspects import (
    ALONE_DEATHS,
    FATAL_DEATHS,
    SUSPECT_DEATHS,
    SUSPECTS_TOGETHER,
    Suspects,
)
from memagent_batch.store.location import Location

FINE = Completion(token_ids=(1,), text="fine", finish_reason=FinishReason.STOP)
POISON = "update/7"

Ask = Callable[[Prompt], Awaitable[Completion]]


def address_of(document: str, reader: str = "f") -> ReadingAddress:
    return ReadingAddress(document_hash=document, question_hash="q", sample=0, fingerprint=reader)


def prompt_of(path: str) -> Prompt:
    return Prompt(path=path, kind="update", token_ids=(1,), max_tokens=1)


def suspects_at(folder: Path, *, run_id: str = "run") -> Suspects:
    """What an actor of the run knows when it starts."""
    suspects = Suspects(output=Location(uri=str(folder)), run_id=run_id)
    suspects.load()
    return suspects


def watched(suspects: Suspects, ask: Ask, *, document: str = "d", reader: str = "f") -> Ask:
    """The engine's answers for one document, each turn watched."""

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


async def die_often(folder: Path, path: str = POISON, *, deaths: int, run_id: str = "run") -> None:
    """So many actors, each of which dies of the turn."""
    for number in range(deaths):
        suspects = suspects_at(folder, run_id=run_id)
        with pytest.raises(EngineDeadError):
            await watched(suspects, always_dying)(prompt_of(path))
        suspects.save(writer_id=f"w{number}")


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


async def test_suspect_turn_is_given_up_at_its_fourth_death(tmp_path: Path) -> None:
    await die_often(tmp_path, deaths=FATAL_DEATHS)
    guarded = watched(suspects_at(tmp_path), die_of_poison)
    with pytest.raises(EngineRequestError, match=rf"turn {POISON}: the engine died 4 times"):
        await guarded(prompt_of(POISON))


async def test_suspect_turn_is_tried_again_before_its_fourth_death(tmp_path: Path) -> None:
    await die_often(tmp_path, deaths=FATAL_DEATHS - 1)
    with pytest.raises(EngineDeadError):
        await watched(suspects_at(tmp_path), die_of_poison)(prompt_of(POISON))


async def test_suspect_given_up_leaves_other_turns_and_documents_alone(tmp_path: Path) -> None:
    await die_often(tmp_path, deaths=FATAL_DEATHS)
    suspects = suspects_at(tmp_path)
    assert await watched(suspects, die_of_poison)(prompt_of("update/8")) == FINE

    async def sound(prompt: Prompt) -> Completion:
        return FINE

    assert await watched(suspects, sound, document="other")(prompt_of(POISON)) == FINE


async def test_turn_that_killed_one_reader_is_tried_by_another_reader(tmp_path: Path) -> None:
    await die_often(tmp_path, deaths=FATAL_DEATHS)

    async def sound(prompt: Prompt) -> Completion:
        return FINE

    assert await watched(suspects_at(tmp_path), sound, reader="second")(prompt_of(POISON)) == FINE


async def test_deaths_of_another_run_do_not_count(tmp_path: Path) -> None:
    await die_often(tmp_path, deaths=FATAL_DEATHS, run_id="20260101")

    async def mended(prompt: Prompt) -> Completion:
        return FINE

    suspects = suspects_at(tmp_path, run_id="20260102")
    assert await watched(suspects, mended)(prompt_of(POISON)) == FINE


async def test_suspect_that_waited_for_a_fatal_one_is_not_blamed_for_its_death(tmp_path: Path) -> None:
    for number in range(FATAL_DEATHS):
        actor = suspects_at(tmp_path)
        dying = [watched(actor, always_dying)(prompt_of(f"update/{i}")) for i in range(4)]
        await asyncio.gather(*dying, return_exceptions=True)
        actor.save(writer_id=f"w{number}")
    last = watched(suspects_at(tmp_path), fine)
    outcomes = await asyncio.gather(*(last(prompt_of(f"update/{i}")) for i in range(4)), return_exceptions=True)
    assert [isinstance(outcome, EngineRequestError) for outcome in outcomes] == [True, False, False, False]


@pytest.mark.parametrize(("deaths", "together"), [(SUSPECT_DEATHS, SUSPECTS_TOGETHER), (ALONE_DEATHS, 1)])
async def test_suspects_run_in_groups_then_alone_and_other_turns_side_by_side(
    tmp_path: Path, deaths: int, together: int
) -> None:
    paths, others = ([f"{kind}/{i}" for i in range(40)] for kind in ("update", "other"))
    die_together(tmp_path, paths, deaths=deaths)
    assert await most_at_once(suspects_at(tmp_path), paths) == together
    assert await most_at_once(suspects_at(tmp_path), others) == len(others)


async def test_suspect_that_must_run_alone_is_let_in_while_others_keep_coming(tmp_path: Path) -> None:
    paths = [f"turn/{i}" for i in range(3 * SUSPECTS_TOGETHER)]
    die_together(tmp_path, [*paths, POISON], deaths=SUSPECT_DEATHS)
    die_together(tmp_path, [POISON], deaths=1, run=3)
    suspects, ended = suspects_at(tmp_path), list[str]()

    async def slow(prompt: Prompt) -> Completion:
        await asyncio.sleep(0.001)
        ended.append(prompt.path)
        return FINE

    guarded = watched(suspects, slow)
    order = [*paths[:20], POISON, *paths[20:]]
    await asyncio.gather(*(guarded(prompt_of(path)) for path in order))
    assert ended.index(POISON) == 20


async def test_poison_among_many_turns_costs_four_deaths_and_no_other_turn(tmp_path: Path) -> None:
    """Actors that begin with the same turns, as after a restart, until one gets through."""
    paths = [f"turn/{i}" for i in range(256)]
    for number in range(FATAL_DEATHS + 1):
        suspects = suspects_at(tmp_path)
        guarded = watched(suspects, die_of_poison)
        asked = [guarded(prompt_of(path)) for path in [*paths[:100], POISON, *paths[100:]]]
        ended = await asyncio.gather(*asked, return_exceptions=True)
        suspects.save(writer_id=f"w{number}")
        if not any(isinstance(each, EngineDeadError) for each in ended):
            break
    assert number == FATAL_DEATHS
    assert [place for place, each in enumerate(ended) if isinstance(each, EngineRequestError)] == [100]


def die_together(folder: Path, paths: list[str], *, deaths: int, run: int = 0) -> None:
    """So many actors, each of which dies with all these turns in flight."""
    for number in range(deaths):
        suspects = suspects_at(folder)
        with contextlib.suppress(EngineDeadError), contextlib.ExitStack() as under_way:
            for path in paths:
                under_way.enter_context(suspects.watch(address_of("d"), path))
            raise EngineDeadError("the engine is gone")
        suspects.save(writer_id=f"w{run + number}")


async def most_at_once(suspects: Suspects, paths: list[str]) -> int:
    crowd = Crowd()
    guarded = watched(suspects, crowd.complete)
    await asyncio.gather(*(guarded(prompt_of(path)) for path in paths))
    return crowd.most


async def test_first_death_makes_nobody_a_suspect(tmp_path: Path) -> None:
    actor = suspects_at(tmp_path)
    dying = [watched(actor, always_dying)(prompt_of(f"update/{i}")) for i in range(4)]
    await asyncio.gather(*dying, return_exceptions=True)
    actor.save(writer_id="w")
    assert await most_at_once(suspects_at(tmp_path), [f"update/{i}" for i in range(4)]) == 4


async def fine(prompt: Prompt) -> Completion:
    return FINE


async def refused(prompt: Prompt) -> Completion:
    raise EngineRequestError("bad request")


async def too_long(prompt: Prompt) -> Completion:
    raise PromptTooLongError("too long")


@pytest.mark.parametrize("ask", [fine, refused, too_long])
async def test_turn_that_ended_is_not_blamed_for_a_later_death(tmp_path: Path, ask: Ask) -> None:
    for number in range(FATAL_DEATHS):
        actor = suspects_at(tmp_path)
        guarded = watched(actor, ask, document="innocent")
        await asyncio.gather(guarded(prompt_of("update/0")), return_exceptions=True)
        actor.save(writer_id=f"w{number}")
    assert not (tmp_path / "log").exists()
    assert await watched(suspects_at(tmp_path), fine, document="innocent")(prompt_of("update/0")) == FINE
