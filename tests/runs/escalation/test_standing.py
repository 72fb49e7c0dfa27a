"""Which of two readers' answers stands: tables, counts and the recorded plan agree on it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.closing import ClosingConfig
from memagent_batch.config.job import LogConfig
from memagent_batch.config.policy import PolicyConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.answers import Extraction
from memagent_batch.domain.closing.answer_types import Bool
from memagent_batch.domain.escalation import Doubt, Doubts
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import INDEX_SCHEMA
from memagent_batch.inputs.questions import given_questions, type_fields
from memagent_batch.log.index import TurnIndex, scan_log
from memagent_batch.log.schemas import CLOSING_LOG, OUTCOME_LOG
from memagent_batch.log.writer import TurnLogWriter
from memagent_batch.ray_data.write import write_tables
from memagent_batch.reading.closing import make_closing
from memagent_batch.runs.bounds import NOTHING
from memagent_batch.runs.escalation.doubtful import doubtful_readings
from memagent_batch.runs.escalation.second_look import SecondLook, first_kept
from memagent_batch.runs.escalation.standing import SUMMED
from memagent_batch.runs.history.history import recorded_plan
from memagent_batch.runs.manifest import RUN_FILE
from memagent_batch.runs.planning.parts import plan_parts
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.runs.rows.projection import Projection, SecondProjection
from memagent_batch.runs.tables.parts import attach_not_read, detach_not_read
from memagent_batch.runs.tables.table_files import read_tables
from memagent_batch.runs.tables.tables import project
from memagent_batch.verification.stand_ins import stand_ins
from tests.runs.projections import projection_at

NOW = datetime.now(UTC)
COUNTS = {field.name: 0 for field in OUTCOME_LOG if field.name.startswith("num_") and field.name != "num_chunks"}
ENDED: dict[str, Any] = COUNTS | {"memory_truncations": 0, "engine_seconds": 0.0, "finished_at": NOW, "model": "m"}
YES, NO, UNMARKED = "\\boxed{yes}", "\\boxed{no}", "It may be so."
DOUBTS = Doubts(when=(Doubt.ANSWER, Doubt.FAILED), answers=("yes",))


def plan_of(model: str, *, reader: str, as_lists: bool) -> Plan:
    """One document and one question of yes or no, as a reader takes it."""
    policy = PolicyConfig(chunk_tokens=60, question_tokens=60, memory_tokens=40, answer_tokens=40)
    agent = AgentConfig(model=model, engine="simulated", window_tokens=1000, policy=policy)
    place = {"path": "p", "format": "text", "start": 0, "stop": 9, "num_bytes": 9}
    return Plan(
        pa.Table.from_pylist([{"document_id": "a", "document_hash": text_hash("a"), **place}], schema=INDEX_SCHEMA),
        given_questions([{"question_id": "is", "question": "Is it so?", **type_fields(Bool())}]),
        samples=1,
        as_lists=as_lists,
        closing=make_closing(ClosingConfig(), agent, reader_fingerprint=reader),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A reader of the run, and what it has logged."""

    fingerprint: str
    plan: Plan
    output: Location

    async def log(self, response: str, *, value_status: str) -> None:
        """Logs an answer and what became of its value."""
        [asked] = self.plan.asked.hashed.to_pylist()
        keys: dict[str, Any] = {"document_hash": text_hash("a"), "question_hash": asked["question_hash"], "sample": 0}
        settings = LogConfig(flush_seconds=0.01)
        writer = TurnLogWriter(self.output, run_id="run", writer_id=self.fingerprint, settings=settings)
        ended: Any = ENDED | {"status": "ok", "response": response, "finish_reason": "stop"}
        await writer.record_outcome(ReadingAddress(**keys, reader_fingerprint=self.fingerprint), ended)
        counts = {"num_turns": 1, "num_prompt_tokens": 1, "num_completion_tokens": 1, "finished_at": NOW}
        closed: Any = dict.fromkeys(CLOSING_LOG.names[5:]) | counts | {"value_status": value_status, "is_failed": False}
        closed["closing_error"] = "it fits no type" if value_status == "invalid" else None
        await writer.record_closing(ReadingAddress(**keys, reader_fingerprint=asked["closing_fingerprint"]), closed)
        await writer.close()

    def index(self) -> TurnIndex:
        return scan_log(self.output, reader_fingerprint=self.fingerprint, closings=self.plan.asked.closings)

    def projection(self, *, tier: int, second: SecondProjection | None = None) -> Projection:
        """How rows are made of what it has logged."""
        return projection_at(
            self.output,
            reader_fingerprint=self.fingerprint,
            extraction=Extraction.BOXED,
            closings=self.plan.asked.turns_of_closings(),
            tier=tier,
            doubts=DOUBTS if second else None,
            second=second,
        )


@pytest.fixture
def tiers(text_model: str, tmp_path: Path) -> tuple[Tier, Tier]:
    """The readers of a run, of which the first takes whole lists."""
    output = Location(uri=str(tmp_path))
    write_json(output / RUN_FILE, {"run_id": "run"})
    first, second = (
        Tier(fingerprint=name, plan=plan_of(text_model, reader=name, as_lists=name == "first"), output=output)
        for name in ("first", "second")
    )
    return first, second


def projection_of(first: Tier, second: Tier) -> Projection:
    """How rows are made of what both have logged."""
    again = SecondProjection(
        projection=second.projection(tier=2), closings=second.plan.asked.closings_of(first.plan.asked)
    )
    return first.projection(tier=1, second=again)


def written(first: Tier, second: Tier, not_read: pa.Table) -> tuple[pa.Table, list[Any]]:
    """The part of the plan, and the reports of its tables; `not_read` stands in for what the second could not read."""
    parts = plan_parts(first.plan, first.index(), second=(second.plan, second.index()))
    [part] = attach_not_read(parts, not_read)
    return part, write_tables(part, projection=projection_of(first, second), kept={}).to_pylist()


def shown(first: Tier, second: Tier) -> tuple[dict[str, Any], int, int]:
    """The row of `answers`, how many readings the second reader is said to have answered, and the recorded tier."""
    index, looked, unread = first.index(), second.index(), OUTCOME_LOG.empty_table()
    doubtful = doubtful_readings(
        first.plan, index, output=first.output, doubts=DOUBTS, extraction=Extraction.BOXED, not_read=unread
    )
    _, reports = written(first, second, unread)
    look = SecondLook(plan=second.plan, index=looked, doubtful=doubtful, not_read=unread, spent=NOTHING)
    kept = first_kept(first.output, reports)
    [reading] = recorded_plan(first.plan, index, again=look.answered(), first_kept=kept)["readings"][0].as_py()
    [row] = read_tables(first.output, [reports[0]["answers_file"]]).to_pylist()
    [escalated] = reports[0]["escalated"]
    return row, escalated["num_answered"], reading["tier"]


@pytest.mark.parametrize(
    ("response", "value_status", "tier", "problem"),
    [
        (NO, "ok", 2, None),
        (NO, "not_stated", 2, None),
        (UNMARKED, "ok", 1, "AnswerNotFound: the response holds no answer in the form 'boxed'"),
        (NO, "invalid", 1, "ClosingError: it fits no type"),
    ],
)
async def test_second_answer_stands_only_where_it_can_be_used(
    response: str, value_status: str, tier: int, problem: str | None, tiers: tuple[Tier, Tier]
) -> None:
    first, second = tiers
    await first.log(YES, value_status="ok")
    await second.log(response, value_status=value_status)
    row, num_answered, recorded = shown(first, second)
    assert (row["tier"], row["escalated_because"], row["escalation_error"]) == (tier, "answer", problem)
    assert row["answer"] == ("no" if tier == 2 else "yes")
    assert (num_answered, recorded) == (tier - 1, tier)
    assert row["needs_review"] == (tier == 1)


async def test_response_without_an_answer_is_doubtful_as_a_failed_one(tiers: tuple[Tier, Tier]) -> None:
    first, second = tiers
    await first.log(UNMARKED, value_status="invalid")
    await second.log(NO, value_status="invalid")
    row, _, recorded = shown(first, second)
    assert (row["tier"], row["escalated_because"], row["answer"], recorded) == (2, "failed", "no", 2)


async def test_question_hash_of_a_row_is_that_of_the_first_reader_whoever_answers(tiers: tuple[Tier, Tier]) -> None:
    first, second = tiers
    await first.log(YES, value_status="ok")
    await second.log(NO, value_status="ok")
    row, _, _ = shown(first, second)
    assert row["tier"] == 2
    assert row["question_hash"] == first.plan.asked.hashed["question_hash"][0].as_py() != text_hash("Is it so?")


async def test_row_of_a_second_reading_that_was_not_read_follows_from_the_log_and_the_row(
    tiers: tuple[Tier, Tier],
) -> None:
    first, second = tiers
    await first.log(YES, value_status="ok")
    away: dict[str, Any] = dict.fromkeys(OUTCOME_LOG.names) | ENDED | {"status": "not_read", "num_turns": 3}
    away |= {"run_id": "run", "document_hash": text_hash("a"), "question_hash": text_hash("Is it so?"), "sample": 0}
    away |= {"reader_fingerprint": "second", "error_type": "EngineAwayError", "error_message": "it is away: 503"}
    part, [report] = written(first, second, pa.Table.from_pylist([away], schema=OUTCOME_LOG))
    answers = read_tables(first.output, [report["answers_file"]])
    [row] = answers.to_pylist()
    assert (row["tier"], row["answer"], row["escalation_error"]) == (1, "yes", "EngineAwayError: it is away: 503")
    planned, _ = detach_not_read(part)
    projection = projection_of(first, second)
    assert project(planned, projection=projection).missing
    again = project(planned, projection=projection, not_read=stand_ins(answers, projection=projection))
    assert again.missing == []
    assert again.answers.drop_columns(list(SUMMED)).equals(answers.drop_columns(list(SUMMED)))
    assert stand_ins(answers, projection=first.projection(tier=1)) == []
