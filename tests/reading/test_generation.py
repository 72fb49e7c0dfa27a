import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.domain.addresses import token_hash
from memagent_batch.domain.turns import Completion, FinishReason, Prompt, TurnKind
from memagent_batch.reading.generation import HeldTurn, Recording, Replaying, Sharing, Tally

HELD = Completion(token_ids=(1,), text="held", finish_reason=FinishReason.STOP, num_prompt_tokens=3, engine_seconds=2.0)
FRESH = Completion(
    token_ids=(2, 3),
    text="fresh",
    finish_reason=FinishReason.LENGTH,
    num_prompt_tokens=5,
    num_cached_prompt_tokens=4,
    engine_seconds=0.5,
)


def prompt_of(path: str = "update/0", *, token_ids: tuple[int, ...] = (10, 11)) -> Prompt:
    kind = TurnKind.ANSWER if path == "answer" else TurnKind.UPDATE
    return Prompt(path=path, kind=kind, token_ids=token_ids, max_tokens=4)


async def give_fresh(prompt: Prompt) -> Completion:
    return FRESH


async def refuse(prompt: Prompt) -> Completion:
    raise TimeoutError(prompt.path)


def held_for(prompt: Prompt) -> dict[str, HeldTurn]:
    return {prompt.path: HeldTurn(prompt_hash=token_hash(prompt.token_ids), completion=HELD)}


async def test_replaying_a_held_turn_answers_from_the_log_and_says_so() -> None:
    replaying = Replaying(generate=refuse, held=held_for(prompt_of()))
    completion = await replaying(prompt_of())
    assert (completion.text, completion.replayed) == ("held", True)


@pytest.mark.parametrize("prompt", [prompt_of("update/1"), prompt_of(token_ids=(10, 12))])
async def test_replaying_another_turn_or_prompt_asks_the_engine(prompt: Prompt) -> None:
    completion = await Replaying(generate=give_fresh, held=held_for(prompt_of()))(prompt)
    assert (completion.text, completion.replayed) == ("fresh", False)


async def test_recording_hands_on_every_finished_turn() -> None:
    seen: list[tuple[Prompt, Completion]] = []
    recording = Recording(generate=give_fresh, record=lambda prompt, completion: seen.append((prompt, completion)))
    assert await recording(prompt_of()) == FRESH
    assert seen == [(prompt_of(), FRESH)]


async def test_recording_a_turn_that_failed_hands_on_nothing() -> None:
    seen: list[Prompt] = []
    with pytest.raises(TimeoutError):
        await Recording(generate=refuse, record=lambda prompt, _: seen.append(prompt))(prompt_of())
    assert not seen


async def test_recording_under_replaying_hands_on_only_new_turns() -> None:
    seen: list[str] = []
    recording = Recording(generate=give_fresh, record=lambda prompt, _: seen.append(prompt.path))
    replaying = Replaying(generate=recording, held=held_for(prompt_of("update/0")))
    for path in ("update/0", "update/1", "answer"):
        await replaying(prompt_of(path))
    assert seen == ["update/1", "answer"]


@given(num_held=st.integers(0, 4), num_fresh=st.integers(0, 4), answered=st.booleans())
def test_tally_any_reading_sums_what_its_turns_cost(num_held: int, num_fresh: int, answered: bool) -> None:
    held = {path: turn for number in range(num_held) for path, turn in held_for(prompt_of(f"update/{number}")).items()}
    tally = Tally(generate=Replaying(generate=give_fresh, held=held))
    paths = [f"update/{number}" for number in range(num_held + num_fresh)] + ["answer"] * answered

    async def read() -> None:
        for path in paths:
            await tally(prompt_of(path))

    asyncio.run(read())
    new = num_fresh + answered
    assert tally.counts() == {
        "num_turns": num_held + new,
        "num_replayed_turns": num_held,
        "num_prompt_tokens": 3 * num_held + 5 * new,
        "num_cached_prompt_tokens": 4 * new,
        "num_completion_tokens": num_held + 2 * new,
        "engine_seconds": 2.0 * num_held + 0.5 * new,
        "memory_truncations": num_fresh,
    }


async def test_tally_a_turn_that_failed_is_not_counted() -> None:
    tally = Tally(generate=refuse)
    with pytest.raises(TimeoutError):
        await tally(prompt_of())
    assert set(tally.counts().values()) == {0}


async def test_sharing_a_turn_asked_by_several_readings_runs_it_once() -> None:
    asked: list[Prompt] = []

    async def generate(prompt: Prompt) -> Completion:
        asked.append(prompt)
        await asyncio.sleep(0.01)
        return FRESH

    turns: dict[str, asyncio.Future[Completion]] = {}
    shared_turn = replace(prompt_of(), shared=True)
    readings = [Sharing(own=refuse, shared=generate, turns=turns) for _ in range(3)]
    completions = await asyncio.gather(*(reading(shared_turn) for reading in readings))
    assert asked == [shared_turn]
    assert [completion.text for completion in completions] == ["fresh"] * 3
    assert sorted(completion.replayed for completion in completions) == [False, True, True]


async def test_sharing_a_turn_that_failed_fails_it_for_every_reading() -> None:
    turns: dict[str, asyncio.Future[Completion]] = {}
    for generate in (refuse, give_fresh):
        with pytest.raises(TimeoutError):
            await Sharing(own=give_fresh, shared=generate, turns=turns)(replace(prompt_of(), shared=True))


async def test_sharing_a_turn_of_one_reading_alone_asks_for_it_each_time() -> None:
    turns: dict[str, asyncio.Future[Completion]] = {}
    for _ in range(2):
        completion = await Sharing(own=give_fresh, shared=refuse, turns=turns)(prompt_of("answer"))
        assert (completion, turns) == (FRESH, {})


async def test_tally_without_shared_turns_counts_the_others_and_every_cut_memory() -> None:
    tally = Tally(generate=give_fresh, with_shared=False)
    await tally(replace(prompt_of("update/0"), shared=True))
    await tally(prompt_of("answer"))
    counts = tally.counts()
    assert (counts["num_turns"], counts["num_prompt_tokens"], counts["engine_seconds"]) == (1, 5, 0.5)
    assert counts["memory_truncations"] == 1
