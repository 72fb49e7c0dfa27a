"""Readings of the same words that share an answer and not a type: an outage of one hides nothing of the other."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.closing import ClosingConfig
from memagent_batch.config.job import LogConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.closing.answer_types import Bool, Number
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import INDEX_SCHEMA
from memagent_batch.inputs.questions import given_questions, type_fields
from memagent_batch.log.index import scan_log
from memagent_batch.log.schemas import CLOSING_LOG, OUTCOME_LOG
from memagent_batch.log.writer import TurnLogWriter
from memagent_batch.reading.closing import make_closing
from memagent_batch.runs.history.history import recorded_plan
from memagent_batch.runs.planning.parts import plan_parts
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.runs.tables.tables import project
from tests.runs.projections import projection_at

NOW = datetime.now(UTC)
COUNTS = {field.name: 0 for field in OUTCOME_LOG if field.name.startswith("num_") and field.name != "num_chunks"}
ENDED: dict[str, Any] = COUNTS | {"memory_truncations": 0, "engine_seconds": 0.0, "finished_at": NOW, "model": "m"}


@pytest.fixture
def plan(text_model: str) -> Plan:
    """One document, of which the same words are asked as bool, as number, and free."""
    policy = PolicyConfig(chunk_tokens=60, question_tokens=60, memory_tokens=40, answer_tokens=40)
    agent = AgentConfig(model=text_model, engine="simulated", window_tokens=1000, policy=policy)
    place = {"path": "p", "format": "text", "start": 0, "stop": 9, "num_bytes": 9}
    return Plan(
        pa.Table.from_pylist([{"document_id": "a", "document_hash": text_hash("a"), **place}], schema=INDEX_SCHEMA),
        given_questions(
            [
                {"question_id": "is", "question": "How far?", **type_fields(Bool())},
                {"question_id": "many", "question": "How far?", **type_fields(Number())},
                {"question_id": "free", "question": "How far?"},
            ]
        ),
        samples=1,
        closing=make_closing(ClosingConfig(), agent, reader_fingerprint="f"),
    )


async def close_number(output: Location, plan: Plan) -> None:
    """Logs the answer to all three, and the closing turn of the number."""
    asked = {row["question_id"]: row for row in plan.asked.hashed.to_pylist()}["many"]
    keys: dict[str, Any] = {"document_hash": text_hash("a"), "question_hash": asked["question_hash"], "sample": 0}
    writer = TurnLogWriter(output, run_id="first", writer_id="w", settings=LogConfig(flush_seconds=0.01))
    made: dict[str, Any] = {"status": "ok", "response": "\\boxed{7 km}", "memory": "7 km", "finish_reason": "stop"}
    answered: Any = dict(ENDED) | made
    await writer.record_outcome(ReadingAddress(**keys, reader_fingerprint="f"), answered)
    empty = dict.fromkeys(CLOSING_LOG.names[5:])
    counts = {"num_turns": 1, "num_prompt_tokens": 1, "num_completion_tokens": 1, "finished_at": NOW}
    closed: Any = {**empty, **counts, "value": "7", "value_number": 7.0, "value_status": "ok", "is_failed": False}
    await writer.record_closing(ReadingAddress(**keys, reader_fingerprint=asked["closing_fingerprint"]), closed)


async def test_value_that_is_closed_stays_where_another_type_of_the_same_words_met_an_outage(
    plan: Plan, tmp_path: Path
) -> None:
    output = Location(uri=str(tmp_path))
    await close_number(output, plan)
    (part,) = plan_parts(plan, scan_log(output, reader_fingerprint="f", closings=plan.asked.closings))
    asked = plan.asked.hashed.to_pylist()[0]
    unread: Any = {"document_hash": text_hash("a"), "question_hash": asked["question_hash"], "sample": 0}
    unread |= dict.fromkeys(OUTCOME_LOG.names[5:]) | {**ENDED, "run_id": "second", "status": "not_read"}
    unread |= {"reader_fingerprint": "f"}
    projection = projection_at(output, run_id="second", closings=plan.asked.turns_of_closings())
    tables = project(part, projection=projection, not_read=[unread])
    rows = {row["question_id"]: row for row in tables.answers.to_pylist()}
    shown = {name: (row["status"], row["answer"], row["value_number"], row["run_id"]) for name, row in rows.items()}
    assert shown == {
        "is": ("not_read", None, None, "second"),
        "many": ("ok", "7 km", 7.0, "first"),
        "free": ("ok", "7 km", None, "first"),
    }


async def test_plan_on_record_names_no_run_for_an_answer_that_is_not_closed(plan: Plan, tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path))
    await close_number(output, plan)
    recorded = recorded_plan(plan, scan_log(output, reader_fingerprint="f", closings=plan.asked.closings))
    names = plan.asked.table["question_id"].to_pylist()
    read_by = {names[each["question"]]: each["run_id"] for each in recorded["readings"][0].as_py()}
    assert read_by == {"is": None, "many": "first", "free": "first"}
