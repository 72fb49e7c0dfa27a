"""How rows follow from the log: which turns a reading had, and what stands where a reading was not read."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.config.job import LogConfig
from memagent_batch.data.documents.questions import read_questions, type_fields
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import scan_log
from memagent_batch.data.store.turn_log.rows import FOLLOW_UP_LOG, OUTCOME_LOG, hash_turn
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.loop.addresses import ReadingAddress, text_hash
from memagent_batch.loop.follow_ups.answer_types import Bool, Number
from memagent_batch.run.plan import Plan
from memagent_batch.run.projection import answer_row, project
from memagent_batch.run.reading.follow_ups import make_follow_ups
from memagent_batch.run.results import with_doubts
from memagent_batch.types import Completion, FinishReason, Prompt, Status, Writes
from tests.runs.projections import parts_of, projection_at
from tests.runs.recorded_nights import NO_DOCUMENTS, index_of, plan_of
from tests.runs.typed_nights import agent_of
from tests.store.turn_log.logs import outcome_row

FIRST, SECOND = "20260101T000000.000Z.aaaa", "20260101T000001.000Z.aaaa"


def turn_of(path: str, run_id: str, *, number: int = 0) -> tuple[Prompt, Completion]:
    kind = path.split("/")[0]
    writes = None if kind == "answer" else Writes.MEMORY if kind == "merge" else Writes.NOTE
    prompt = Prompt(path=path, kind=kind, token_ids=(1,), max_tokens=4, writes=writes, number=number)
    return prompt, Completion(token_ids=(7,), text=f"{path} of {run_id}", finish_reason=FinishReason.STOP)


class Attempts:
    def __init__(self, folder: Path) -> None:
        self.output = Location(uri=str(folder))
        self.plan = plan_of({"a": "a"}, {"q": "why?"})

    async def write(
        self,
        run_id: str,
        paths: dict[str, int],
        *,
        ends: Status | None = None,
        held: Sequence[str] = (),
        held_from: str = FIRST,
    ) -> None:
        """Logs turns with their numbers, and the end of the reading, which had turns of another run too."""
        writer = TurnLogWriter(self.output, run_id=run_id, writer_id="w", settings=LogConfig(flush_seconds=0.01))
        (asked,) = self.plan.asked.hashed.to_pylist()
        hashes = {"document_hash": text_hash("a"), "question_hash": asked["question_hash"]}
        address = ReadingAddress(**hashes, sample=0, fingerprint="f")
        for path, number in paths.items():
            writer.record_turn(address, *turn_of(path, run_id, number=number))
        if ends is not None:
            had = [turn_of(path, held_from) for path in held] + [turn_of(path, run_id) for path in paths]
            turn_hashes = [hash_turn(*turn) for turn in had]
            await writer.record_outcome(address, outcome_row(ends, response="42", turn_hashes=turn_hashes))
        await writer.flush()

    def memories(self) -> list[str]:
        """What the rows of `memories` show: the path and the run of each turn that wrote, and `answer`."""
        (part,) = parts_of(self.plan, scan_log(self.output, fingerprint="f"))
        tables = project(part, projection=projection_at(self.output))
        rows = tables.memories.to_pylist()
        return [row["kind"] if row["kind"] == "answer" else row["memory"] for row in rows]


MERGED_ONCE = {"read/1/0": 0, "read/1/1": 1, "merge/1/0/0": 2}


async def test_memories_leave_out_turns_that_only_a_superseded_attempt_asked(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    await attempts.write(FIRST, {**MERGED_ONCE, "merge/2/0/0": 3, "merge/2/1/0": 4})
    await attempts.write(SECOND, {**MERGED_ONCE, "answer": 3}, ends=Status.OK)
    assert attempts.memories() == [*(f"{path} of {SECOND}" for path in MERGED_ONCE), "answer"]


async def test_memories_of_a_reading_that_went_on_from_the_log_have_the_turns_of_both_runs(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    await attempts.write(FIRST, {"read/1/1": 0, "read/1/0": 1})  # a policy of one's own may number them as they come
    held = ["read/1/1", "read/1/0"]
    await attempts.write(SECOND, {"merge/1/0/0": 1, "answer": 3}, ends=Status.OK, held=held)
    shown = [f"read/1/0 of {FIRST}", f"read/1/1 of {FIRST}", f"merge/1/0/0 of {SECOND}", "answer"]
    assert sorted(attempts.memories()) == sorted(shown)


async def test_memories_of_a_failed_reading_leave_out_the_turns_of_a_later_try_that_was_killed(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path)
    await attempts.write(FIRST, {"read/1/0": 0, "read/1/1": 2}, ends=Status.FAILED)
    await attempts.write(SECOND, {"read/1/2": 1, "merge/1/0/0": 3})
    assert attempts.memories() == [f"read/1/0 of {FIRST}", f"read/1/1 of {FIRST}"]


@pytest.mark.parametrize(
    ("answer", "status", "value", "doubt"),
    [
        (r"\boxed{I'm sorry, but I can't assist with that.}", "invalid", None, "the model refused to answer"),
        ("I cannot help with that request.", "invalid", None, "the model refused to answer"),
        (r"\boxed{EUR 4,250,000}", "ok", "425000", "the value does not follow from the answer"),
        (r"\boxed{EUR 425,000}", "ok", "425000", None),
    ],
)
def test_answer_says_what_speaks_against_its_value(
    answer: str, status: str, value: str | None, doubt: str | None, tmp_path: Path
) -> None:
    document: Any = {"document_id": "a", "document_hash": "h", "error": None, "error_type": None, "readings": []}
    question: Any = {"question_id": "q", "question": "How much?", "question_hash": "q", "answer_type": "number"}
    closed: Any = {
        **dict.fromkeys(FOLLOW_UP_LOG.names),
        "run_id": FIRST,
        "value_status": "ok",
        "value": "425000",
        "value_number": 425e3,
    }
    outcome: Any = {**dict.fromkeys(OUTCOME_LOG.names), **outcome_row(response=answer, run_id=FIRST)}
    row = answer_row(
        document, question, outcome, sample=0, origin=projection_at(Location(uri=str(tmp_path))), closed=closed
    )
    (row,) = with_doubts([row], [question])
    assert (row["value_status"], row["value"], row["value_doubt"]) == (status, value, doubt)
    assert (row["value_number"] is None) == (value is None)


@pytest.fixture
def plan(text_model: str) -> Plan:
    """One document; the same words ask for a bool, a number, and a free answer."""
    types = {"is": Bool(), "many": Number(), "free": None}
    asked = [{"question_id": name, "question": "How far?", **type_fields(each)} for name, each in types.items()]
    follow_ups = make_follow_ups(FollowUpConfig(), agent_of(text_model), fingerprint="f")
    return Plan(
        index_of({"a": "a"}), read_questions(None, ask=asked), samples=1, follow_ups=follow_ups, stored=NO_DOCUMENTS
    )


async def close_number(output: Location, plan: Plan) -> None:
    """Logs the answer to all three, and the follow-up question of the number."""
    asked = {row["question_id"]: row for row in plan.asked.hashed.to_pylist()}["many"]
    keys: dict[str, Any] = {"document_hash": text_hash("a"), "question_hash": asked["question_hash"], "sample": 0}
    writer = TurnLogWriter(output, run_id="first", writer_id="w", settings=LogConfig(flush_seconds=0.01))
    answered = outcome_row(response="\\boxed{7 km}", memory="7 km", finish_reason="stop")
    await writer.record_outcome(ReadingAddress(**keys, fingerprint="f"), answered)
    empty = dict.fromkeys(FOLLOW_UP_LOG.names[5:])
    counts = {"num_turns": 1, "num_prompt_tokens": 1, "num_completion_tokens": 1, "finished_at": datetime.now(UTC)}
    closed: Any = {**empty, **counts, "value": "7", "value_number": 7.0, "value_status": "ok", "is_failed": False}
    await writer.record_follow_ups(ReadingAddress(**keys, fingerprint=asked["follow_up_fingerprint"]), closed)


async def test_value_that_is_closed_stays_where_another_type_of_the_same_words_met_an_outage(
    plan: Plan, tmp_path: Path
) -> None:
    output = Location(uri=str(tmp_path))
    await close_number(output, plan)
    (part,) = parts_of(plan, scan_log(output, fingerprint="f", follow_up_readings=plan.asked.follow_up_readings))
    asked = plan.asked.hashed.to_pylist()[0]
    unread: Any = {"document_hash": text_hash("a"), "question_hash": asked["question_hash"], "sample": 0}
    unread |= dict.fromkeys(OUTCOME_LOG.names[5:]) | outcome_row(Status.NOT_READ, run_id="second", fingerprint="f")
    projection = projection_at(output, run_id="second", follow_up_readings=plan.asked.turns_by_follow_up())
    tables = project(part, projection=projection, not_read=[unread])
    rows = {row["question_id"]: row for row in tables.answers.to_pylist()}
    shown = {
        name: (row["status"], row["answer"], row["value_number"], row["read_run_id"]) for name, row in rows.items()
    }
    assert shown == {
        "is": ("not_read", None, None, "second"),
        "many": ("ok", "7 km", 7.0, "first"),
        "free": ("ok", "7 km", None, "first"),
    }
