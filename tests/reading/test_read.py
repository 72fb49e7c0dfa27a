"""A reading as a function: each way in which it can end."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from memagent_batch.data.store.turn_log.rows import OUTCOME_LOG
from memagent_batch.errors import (
    DocumentError,
    EngineDeadError,
    EngineRefusedError,
    EngineRequestError,
    EngineUnavailableError,
    MemagentError,
    StorageError,
)
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.loop.prompts import Memory, PromptTokens
from memagent_batch.run.reading.agent import LoadedAgent
from memagent_batch.run.reading.documents import unreadable
from memagent_batch.run.reading.read import Reading, ReadingTurns, ReplayOnly, read
from memagent_batch.types import (
    Completion,
    Cost,
    Document,
    FinishReason,
    Outcome,
    Prompt,
    Question,
    QuestionTokens,
    Status,
    Turns,
)
from tests.policies.token_documents import PROMPTS, document_of

WHO = Question(question_id="who", text="Who?")


class PathEngine(ReplayOnly):
    """Writes the path of each turn; raises an error at one of them."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        if self._error is not None and prompt.path == "update/1":
            raise self._error
        return Completion(token_ids=[7], text=prompt.path, finish_reason=FinishReason.STOP, num_prompt_tokens=3)


AGENT = LoadedAgent(
    policy=OverwritePolicy(chunk_tokens=5, memory_tokens=4, answer_tokens=6),
    prompts=PROMPTS,
    encode=str.encode,
    question_tokens=10,
    model="m",
)


async def read_with(
    engine: ReplayOnly, *, document: Document | None = None, question: Question = WHO, agent: LoadedAgent = AGENT
) -> Reading:
    address = ReadingAddress(document_hash="d", question_hash="q", sample=0, fingerprint="f")
    turns = ReadingTurns(engine=engine, address=address, seed=0)
    return await read(document or document_of(13), question, agent=agent, turns=turns)


async def test_reading_that_is_answered_is_ok_with_its_costs_in_a_row_of_the_outcome_log() -> None:
    reading = await read_with(PathEngine())
    assert (reading.status, reading.response, reading.memory) == (Status.OK, "answer", "update/2")
    row = reading.to_row()
    address = {"run_id", "document_hash", "question_hash", "sample", "fingerprint"}
    assert set(row) == set(OUTCOME_LOG.names) - address
    assert (row["num_document_tokens"], row["num_chunks"], row["num_turns"], row["num_prompt_tokens"]) == (13, 3, 4, 12)
    assert (row["model"], row["error_type"]) == ("m", None)
    assert row["started_at"] is not None
    assert row["started_at"] <= row["finished_at"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (EngineRequestError("refused"), Status.FAILED),
        (ZeroDivisionError("a bug"), Status.FAILED),
        (EngineUnavailableError("away"), Status.NOT_READ),
    ],
)
async def test_reading_that_breaks_ends_with_the_error_and_what_it_cost_until_then(
    error: Exception, status: Status
) -> None:
    reading = await read_with(PathEngine(error))
    assert (reading.status, reading.error_type) == (status, type(error).__name__)
    place = r" \(\w+\.py, line \d+\)" if isinstance(error, ZeroDivisionError) else ""
    assert re.fullmatch(f"{error}{place}", str(reading.error_message))
    assert (reading.response, reading.memory, reading.finish_reason) == (None, None, None)
    assert (reading.counts.num_turns, reading.num_chunks) == (1, 3)


async def test_reading_of_a_document_without_text_ends_with_its_error() -> None:
    document = unreadable(DocumentError("not UTF-8"))
    for _ in range(2):
        reading = await read_with(PathEngine(), document=document)
        assert (reading.status, reading.error_message) == (Status.FAILED, "not UTF-8")
        assert (reading.num_document_tokens, reading.num_chunks, reading.counts.num_turns) == (0, 0, 0)


async def test_reading_of_a_question_over_its_budget_fails_with_the_remedy() -> None:
    reading = await read_with(PathEngine(), question=Question(question_id="long", text="eleven char"))
    assert (reading.status, reading.error_type) == (Status.FAILED, "QuestionTooLongError")
    assert reading.error_message == (
        "question 'long' has 11 tokens, policy.question_tokens is 10; shorten it or raise the setting"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParagraphPolicy:
    """Someone else's policy: it cuts by a rule of its own, asks about all pieces at once, and joins what they say."""

    kind: ClassVar[str] = "paragraphs"
    prompt_set: ClassVar[str] = "default"
    response: str = ""

    def identity(self) -> Mapping[str, Any]:
        return {"kind": self.kind}

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        pieces = [document.tokens(start, start + 4) for start in range(0, document.num_tokens, 4)]
        asked = [prompt_for(f"piece/{number}", piece) for number, piece in enumerate(pieces)]
        texts = [completion.text for completion in await asyncio.gather(*map(turns, asked))]
        memory = Memory(token_ids=[], text="")
        return Outcome(response=self.response or " ".join(texts), finish_reason=FinishReason.STOP, memory=memory)

    def largest_turns(self, prompts: PromptTokens) -> dict[str, dict[str, int]]:
        return {"piece": {"piece": 4, "answer": 4}}

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        num_pieces = -(-num_tokens // 4)
        return Cost(num_chunks=num_pieces, num_turns=num_pieces, num_prompt_tokens=num_tokens, num_completion_tokens=0)


def prompt_for(path: str, token_ids: Sequence[int]) -> Prompt:
    return Prompt(path=path, kind="piece", token_ids=token_ids, max_tokens=4)


async def test_reading_with_a_policy_from_outside_has_its_chunks_and_turns() -> None:
    reading = await read_with(PathEngine(), agent=replace(AGENT, policy=ParagraphPolicy()))
    assert reading.response == "piece/0 piece/1 piece/2 piece/3"
    assert (reading.num_chunks, reading.counts.num_turns) == (4, 4)


class UncopiedError(Exception):
    """An error of someone else's policy, which can't be copied."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedPolicy(ParagraphPolicy):
    """Runs its turns side by side in nested task groups; each fails with one of the errors."""

    errors: tuple[Exception, ...]

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        async def fail(error: Exception) -> None:
            try:
                await turns(prompt_for("update/0", [1]))
            finally:
                raise error

        async with asyncio.TaskGroup() as outer:
            async with asyncio.TaskGroup() as inner:
                for error in self.errors:
                    inner.create_task(fail(error))
            outer.create_task(fail(ZeroDivisionError("not reached")))
        raise AssertionError


REFUSED = EngineRequestError("refused")
AWAY = EngineUnavailableError("away")
UNCOPIED = UncopiedError(code=7)


@pytest.mark.parametrize("error", [EngineDeadError("dead"), EngineRefusedError("401"), StorageError("full")])
async def test_reading_lets_errors_through_that_concern_the_whole_actor_also_from_turns_side_by_side(
    error: MemagentError,
) -> None:
    with pytest.raises(type(error)):
        await read_with(PathEngine(error))
    policy = GroupedPolicy(errors=(ZeroDivisionError("a bug"), REFUSED, AWAY, error))
    with pytest.raises(type(error)):
        await read_with(PathEngine(), agent=replace(AGENT, policy=policy))


@pytest.mark.parametrize(
    ("errors", "shown", "status"),
    [
        ((UNCOPIED, REFUSED, AWAY), AWAY, Status.NOT_READ),
        ((UNCOPIED, REFUSED), REFUSED, Status.FAILED),
        ((UNCOPIED, ZeroDivisionError("a bug")), UNCOPIED, Status.FAILED),
    ],
)
async def test_reading_that_breaks_in_turns_side_by_side_ends_with_the_most_serious_error(
    errors: tuple[Exception, ...], shown: Exception, status: Status
) -> None:
    reading = await read_with(PathEngine(), agent=replace(AGENT, policy=GroupedPolicy(errors=errors)))
    assert (reading.status, reading.error_type) == (status, type(shown).__name__)
    assert str(reading.error_message).startswith(str(shown))
    assert reading.error is shown
    assert reading.num_chunks == 4
    assert "error" not in reading.to_row()


@dataclass(frozen=True, slots=True, kw_only=True)
class PricelessPolicy(ParagraphPolicy):
    """Fails where it is asked for its cost."""

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        raise ZeroDivisionError("no price")


async def test_reading_of_a_policy_whose_cost_raises_fails_alone() -> None:
    agent = replace(AGENT, policy=PricelessPolicy())
    reading = await read_with(PathEngine(), agent=agent)
    assert (reading.status, reading.error_type) == (Status.FAILED, "ZeroDivisionError")
    assert str(reading.error_message).startswith("no price (test_read.py, line ")
    assert (reading.num_chunks, reading.response) == (0, None)
    empty = await read_with(PathEngine(), document=unreadable(DocumentError("empty")), agent=agent)
    assert (empty.status, empty.num_chunks) == (Status.FAILED, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FractionalPolicy(ParagraphPolicy):
    """Divides where it should round up."""

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        num_pieces: Any = num_tokens / 4
        return Cost(num_chunks=num_pieces, num_turns=num_pieces, num_prompt_tokens=num_tokens, num_completion_tokens=0)


async def test_reading_of_a_policy_that_counts_parts_of_chunks_fails_with_a_row_that_the_log_can_hold() -> None:
    reading = await read_with(PathEngine(), agent=replace(AGENT, policy=FractionalPolicy()))
    assert (reading.status, reading.error_type, reading.num_chunks) == (Status.FAILED, "TypeError", 0)


async def test_reading_whose_answer_the_log_cannot_hold_fails() -> None:
    reading = await read_with(PathEngine(), agent=replace(AGENT, policy=ParagraphPolicy(response="\ud800")))
    assert (reading.status, reading.error_type, reading.response) == (Status.FAILED, "LogRowError", None)
    assert "`response`" in (reading.error_message or "")
