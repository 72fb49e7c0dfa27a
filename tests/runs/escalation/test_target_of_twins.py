"""A threshold is of a yes or no: `escalate.target` leaves the same words asked for another type, or for none, alone.

What a second reader is given and what the rows say of it must agree, or a run could never end.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.closing import ClosingConfig
from memagent_batch.config.escalation import TargetConfig
from memagent_batch.config.job import LogConfig
from memagent_batch.config.policy import PolicyConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.answers import Extraction
from memagent_batch.domain.closing.answer_types import Bool, Number
from memagent_batch.domain.escalation import Doubt, Doubts
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import INDEX_SCHEMA
from memagent_batch.inputs.questions import given_questions, type_fields
from memagent_batch.log.index import scan_log
from memagent_batch.log.schemas import CLOSING_LOG, OUTCOME_LOG
from memagent_batch.log.writer import TurnLogWriter
from memagent_batch.reading.closing import make_closing
from memagent_batch.runs.escalation.doubtful import doubtful_readings
from memagent_batch.runs.escalation.summary import learnt_target
from memagent_batch.runs.planning.parts import plan_parts
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.runs.tables.tables import project
from tests.runs.projections import projection_at

NOW = datetime.now(UTC)
COUNTS = {field.name: 0 for field in OUTCOME_LOG if field.name.startswith("num_") and field.name != "num_chunks"}
ENDED: dict[str, Any] = COUNTS | {"memory_truncations": 0, "engine_seconds": 0.0, "finished_at": NOW, "model": "m"}
CLOSED: dict[str, Any] = {"num_turns": 1, "num_prompt_tokens": 1, "num_completion_tokens": 1, "finished_at": NOW}
WORDS = "Is it so?"
DOUBTS = Doubts(when=(Doubt.TARGET,), thresholds={text_hash(WORDS): 0.8})
VALUES: dict[str, dict[str, Any]] = {
    "is": {"value": "false", "value_bool": False, "value_status": "ok"},
    "many": {"value": "7", "value_number": 7.0, "value_status": "ok"},
    "free": {},
}
"""What closing turns say of the same answer, by question."""


def plan_of(model: str, *, evidence: bool) -> Plan:
    """One document; it is asked the same words three times: as bool, as number, and free."""
    policy = PolicyConfig(chunk_tokens=60, question_tokens=60, memory_tokens=40, answer_tokens=40)
    agent = AgentConfig(model=model, engine="simulated", window_tokens=2000, policy=policy)
    place = {"path": "p", "format": "text", "start": 0, "stop": 9, "num_bytes": 9}
    return Plan(
        pa.Table.from_pylist([{"document_id": "a", "document_hash": text_hash("a"), **place}], schema=INDEX_SCHEMA),
        given_questions(
            [
                {"question_id": "is", "question": WORDS, **type_fields(Bool())},
                {"question_id": "many", "question": WORDS, **type_fields(Number())},
                {"question_id": "free", "question": WORDS},
            ]
        ),
        samples=1,
        closing=make_closing(ClosingConfig(evidence=evidence), agent, reader_fingerprint="f"),
    )


async def log_reading(output: Location, plan: Plan, *, status: str, confidence: float) -> None:
    """Logs how the reading of all three ended, and what was asked after its answer."""
    keys: dict[str, Any] = {"document_hash": text_hash("a"), "question_hash": text_hash(WORDS), "sample": 0}
    writer = TurnLogWriter(output, run_id="run", writer_id="w", settings=LogConfig(flush_seconds=0.01))
    ended: Any = ENDED | {"status": status, "response": "\\boxed{7}", "finish_reason": "stop"}
    await writer.record_outcome(ReadingAddress(**keys, reader_fingerprint="f"), ended)
    for asked in plan.asked.hashed.to_pylist() if status == "ok" else ():
        values = VALUES[asked["question_id"]]
        closed: Any = dict.fromkeys(CLOSING_LOG.names[5:]) | CLOSED | values | {"is_failed": False}
        closed["confidence"] = confidence if asked["question_id"] == "is" else None
        if asked["closing_fingerprint"]:
            await writer.record_closing(ReadingAddress(**keys, reader_fingerprint=asked["closing_fingerprint"]), closed)
    await writer.close()


@pytest.mark.parametrize("evidence", [False, True])
@pytest.mark.parametrize(
    ("status", "confidence", "doubtful"), [("ok", 0.9, set()), ("ok", 0.7, {"is"}), ("failed", 0.0, {"is"})]
)
async def test_target_looks_again_at_a_yes_or_no_and_at_no_twin_of_another_type(
    status: str, confidence: float, doubtful: set[str], evidence: bool, text_model: str, tmp_path: Path
) -> None:
    output, plan = Location(uri=str(tmp_path)), plan_of(text_model, evidence=evidence)
    await log_reading(output, plan, status=status, confidence=confidence)
    index = scan_log(output, reader_fingerprint="f", closings=plan.asked.closings)
    found = doubtful_readings(plan, index, output=output, doubts=DOUBTS, extraction=Extraction.AUTO)
    names = plan.asked.table["question_id"].to_pylist()
    assert {names[work.question]: doubt for work, doubt in found.items()} == dict.fromkeys(doubtful, Doubt.TARGET)
    (part,) = plan_parts(plan, index)
    projection = projection_at(output, closings=plan.asked.turns_of_closings(), tier=1, doubts=DOUBTS)
    rows = {row["question_id"]: row for row in project(part, projection=projection, not_read=[]).answers.to_pylist()}
    assert rows.keys() == VALUES.keys()
    assert {name for name, row in rows.items() if row["needs_review"]} == doubtful
    assert {name for name, row in rows.items() if row["escalated_because"] == "target"} == doubtful


def test_threshold_of_a_run_is_named_for_the_yes_or_no_alone(text_model: str) -> None:
    questions = plan_of(text_model, evidence=False).asked.hashed
    learnt = learnt_target(TargetConfig(recall=0.95), DOUBTS.thresholds, questions=questions)
    assert learnt is not None
    assert learnt["up_to"] == {"is": 0.8}
