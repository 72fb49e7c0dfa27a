import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.errors import EngineRequestError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.loop.policies.parallel import LABEL_TOKENS, ParallelPolicy, side_by_side
from memagent_batch.loop.prompts import Memory, PromptTokens
from memagent_batch.run.reading.places import TurnPlaces
from memagent_batch.run.reading.read import ReadingTurns, ReplayOnly
from memagent_batch.testing import PROMPTS
from memagent_batch.types import Completion, FinishReason, Outcome, Prompt, Writes
from tests.policies.token_documents import QUESTION, document_of

TEXTS: PromptTokens = replace(PROMPTS, keep_word="none", first_memory=Memory(token_ids=tuple(b"M0"), text="M0"))
POLICY = ParallelPolicy(chunk_tokens=5, memory_tokens=30, answer_tokens=6)
"""Two notes fit one merge: 2 * (30 + 32) tokens."""

Rule = Callable[[Prompt], str]


async def read(policy: ParallelPolicy, num_tokens: int, rule: Rule) -> tuple[Outcome, dict[str, Prompt]]:
    """Reads with a model that writes what the rule says; the prompts by path, in the order in which they were asked."""
    prompts: dict[str, Prompt] = {}

    async def turns(prompt: Prompt) -> Completion:
        prompts[prompt.path] = prompt
        await asyncio.sleep(0)
        text = rule(prompt)
        return Completion(token_ids=[*text.encode(), 99], text=text, finish_reason=FinishReason.STOP)

    outcome = await policy.read(document_of(num_tokens), QUESTION, prompts=TEXTS, turns=turns)
    return outcome, prompts


def text_of(prompt: Prompt) -> str:
    """The text in a prompt whose fixed words and tokens are not letters."""
    return bytes(token for token in prompt.token_ids if 20 <= token < 99 or token in (10, *range(97, 123))).decode()


def notes_of(*chunks: int) -> Rule:
    """A model that notes these chunks in the first round, merges by joining what it sees, and has no news later."""

    def rule(prompt: Prompt) -> str:
        match prompt.path.split("/"):
            case ["read", "1", chunk] if int(chunk) in chunks:
                return f"N{chunk}"
            case ["merge", *_]:
                return "+".join(re.findall(r"N\d+", text_of(prompt)))
            case ["answer"]:
                return "done"
            case _:
                return "none"

    return rule


async def test_parallel_reading_of_chunks_without_news_asks_each_once_and_answers_from_the_first_memory() -> None:
    outcome, prompts = await read(POLICY, 23, notes_of())
    assert list(prompts) == [*(f"read/1/{chunk}" for chunk in range(5)), "answer"]
    assert (outcome.response, outcome.memory.text) == ("done", "M0")
    slots = len(QUESTION.token_ids) + len(TEXTS.first_memory.token_ids)
    shown = sum(len(prompt.token_ids) - slots for prompt in prompts.values())
    assert shown == POLICY.cost(TEXTS, num_tokens=23).min_prompt_tokens


async def test_parallel_reading_merges_the_notes_in_document_order_under_their_sections() -> None:
    outcome, prompts = await read(POLICY, 23, notes_of(3, 1))
    merge = prompts["merge/1/0/0"]
    assert re.search(r"\n\[Section 2\]:\nN1\n\[Section 4\]:\nN3", text_of(merge))
    assert (prompts["read/1/1"].writes, merge.writes) == (Writes.NOTE, Writes.MEMORY)
    assert outcome.memory.text == "N1+N3"
    assert [path for path in prompts if path.startswith("read/2")] == [f"read/2/{chunk}" for chunk in range(5)]
    assert "N1+N3" in text_of(prompts["read/2/0"])
    assert "read/3/0" not in prompts


async def test_parallel_reading_merges_more_notes_than_fit_one_turn_in_a_tree() -> None:
    outcome, prompts = await read(POLICY, 45, notes_of(*range(9)))
    levels = [path for path in prompts if path.startswith("merge/1/")]
    assert levels[-1] == f"merge/1/{len({path.split('/')[2] for path in levels}) - 1}/0"
    assert [prompts[path].writes for path in levels] == [Writes.NOTE] * (len(levels) - 1) + [Writes.MEMORY]
    assert outcome.memory.text == "+".join(f"N{chunk}" for chunk in range(9))
    largest = sum(POLICY.largest_turns(TEXTS)["merge"].values()) + len(QUESTION.token_ids)
    assert all(len(prompts[path].token_ids) + prompts[path].max_tokens <= largest for path in levels)


async def test_parallel_reading_ends_after_the_rounds_that_were_set() -> None:
    numbers = iter(range(100))

    def never_content(prompt: Prompt) -> str:
        return "done" if prompt.path == "answer" else f"N{next(numbers)}"

    _, prompts = await read(replace(POLICY, rounds=2), 9, never_content)
    assert {path.split("/")[1] for path in prompts if path != "answer"} == {"1", "2"}


async def test_parallel_reading_stops_where_a_merge_leaves_the_memory_as_it_was() -> None:
    _, prompts = await read(POLICY, 9, lambda prompt: "M0" if prompt.kind == "merge" else "N7")
    assert [path for path in prompts if path.startswith("read/2")] == []


async def test_merge_that_says_that_nothing_helps_keeps_the_memory() -> None:
    model = notes_of(1, 3)
    outcome, prompts = await read(POLICY, 23, lambda prompt: "none" if prompt.kind == "merge" else model(prompt))
    assert (outcome.memory.text, "read/2/0" in prompts) == ("M0", False)


async def test_parallel_reading_of_a_failed_turn_fails_and_cancels_its_siblings() -> None:
    ended: list[str] = []

    async def turns(prompt: Prompt) -> Completion:
        if prompt.path == "read/1/1":
            raise EngineRequestError("no")
        await asyncio.sleep(3600)
        ended.append(prompt.path)
        raise AssertionError("not cancelled")

    with pytest.raises(ExceptionGroup) as caught:
        await POLICY.read(document_of(23), QUESTION, prompts=TEXTS, turns=turns)
    assert caught.group_contains(EngineRequestError)
    assert ended == []


@pytest.mark.parametrize("places", [3, 300])
async def test_one_long_document_takes_as_many_places_at_once_as_its_engine_has(places: int) -> None:
    under_way = most = 0
    is_full = asyncio.Event()

    class Engine(ReplayOnly):
        async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            if most == places:
                is_full.set()
            await asyncio.wait_for(is_full.wait(), timeout=60)
            under_way -= 1
            return Completion(token_ids=[99], text="none", finish_reason=FinishReason.STOP)

    address = ReadingAddress(document_hash="d", question_hash="q", sample=0, fingerprint="f")
    turns = ReadingTurns(engine=Engine(), address=address, seed=0, places=TurnPlaces(places))
    await POLICY.read(document_of(5 * (places + 9)), QUESTION, prompts=TEXTS, turns=turns)
    assert most == places


async def test_readings_that_share_an_engine_make_prompts_for_its_places_and_one_more_each() -> None:
    places, num_readings = TurnPlaces(4), 5
    waiting = most = 0

    class Engine(ReplayOnly):
        async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
            nonlocal waiting
            await asyncio.sleep(0.001)
            waiting -= 1
            return Completion(token_ids=[99], text="note", finish_reason=FinishReason.STOP)

    def prompts() -> Iterator[Prompt]:
        nonlocal waiting, most
        for number in range(20):
            waiting += 1
            most = max(most, waiting)
            yield Prompt(path=str(number), kind="read", token_ids=[number], max_tokens=1)

    async def ask(document_hash: str) -> None:
        address = ReadingAddress(document_hash=document_hash, question_hash="q", sample=0, fingerprint="f")
        turns = ReadingTurns(engine=Engine(), address=address, seed=0, places=places)
        await side_by_side(prompts(), turns=turns, use=lambda place, completion: None)

    await asyncio.gather(*(ask(str(number)) for number in range(num_readings)))
    assert most <= 4 + num_readings


@given(num_notes=st.integers(0, 60), memory_tokens=st.integers(1, 40), chunk_tokens=st.integers(1, 400))
def test_cost_counts_at_least_the_merges_that_happen(num_notes: int, memory_tokens: int, chunk_tokens: int) -> None:
    policy = replace(POLICY, memory_tokens=memory_tokens, chunk_tokens=chunk_tokens, rounds=1)
    text = "x" * memory_tokens
    _, prompts = asyncio.run(read(policy, num_notes * chunk_tokens, lambda prompt: text))
    assert len(prompts) <= policy.cost(TEXTS, num_tokens=num_notes * chunk_tokens).num_turns
    room = max(chunk_tokens, 2 * (memory_tokens + LABEL_TOKENS))
    shown = [len(prompt.token_ids) for path, prompt in prompts.items() if path.startswith("merge")]
    assert all(
        size <= TEXTS.merge.num_fixed_tokens + len(QUESTION.token_ids) + memory_tokens + 2 + room for size in shown
    )
