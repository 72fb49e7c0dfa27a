"""Values, evidence and support asked after the answers of a run, by an engine without a model."""

import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import Schema

import memagent_batch as ma
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.location import Location
from memagent_batch.errors import SettingsError
from memagent_batch.loop.follow_ups.doubts import Doubt
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.check import check
from memagent_batch.run.flows.plan import plan_checked
from memagent_batch.run.tables import ANSWERS, EVIDENCE, READING_COLUMNS
from tests.jobs import small_job
from tests.tables import OWN_COLUMNS, comparable

TEXTS = {
    "crlf": "The deed is old.\r\nIt was simulated in Rome.\r\nAnn signed it.\r\n" * 6,
    "astral": "😀 smiles simulated at 𝔘𝔫𝔦. Cafe\u0301 au lait is on e\u0301tage 3. 👩‍👩‍👧 wave. " * 6,
    "right_to_left": "هذا نص قصير. وقع علي العقد. שלום עולם. זה הסוף. " * 6,
    "nothing": "...",
}
PARTY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "shares": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name", "shares"],
}


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """A schema as a Delta table gives it back."""
    return pa.schema(Schema.from_arrow(schema).to_arrow())


FREE = {"question_id": "free", "question": "Who?"}
TYPED: list[dict[str, Any]] = [
    FREE,
    {"question_id": "signed", "question": "Is it signed?", "answer_type": "bool"},
    {"question_id": "risk", "question": "Which risk?", "answer_type": "label", "labels": ["low", "high"]},
    {"question_id": "tags", "question": "Which tags?", "answer_type": "labels", "labels": ["a", "b"]},
    {"question_id": "price", "question": "How much?", "answer_type": "number", "unit": "EUR"},
    {"question_id": "day", "question": "When?", "answer_type": "date"},
    {"question_id": "party", "question": "Who is it?", "answer_type": "json", "schema": PARTY},
    {"question_id": "again", "question": "How much?", "answer_type": "bool"},
]
PLAIN = [{"question_id": row["question_id"], "question": row["question"]} for row in TYPED]
OLD_COLUMNS = [name for name in ANSWERS.names[: ANSWERS.names.index("answer_type")] if name not in OWN_COLUMNS]
FOLLOW_UPS = {"evidence": True, "support": True}


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    rows = [{"document_id": name, "text": text} for name, text in TEXTS.items()]
    pq.write_table(pa.Table.from_pylist([*rows, {"document_id": "none", "text": None}]), tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def job(documents: Path, model: str, output: Location, *, ask: list[Any], **values: Any) -> JobConfig:
    own = {"documents": str(documents), "ask": ask, "output": output.uri, "window_tokens": 1500}
    return small_job("", model, **{**own, "follow_ups": {"json_tokens": 64}, "policy": {"chunk_tokens": 60}, **values})


def table(output: Location, manifest: Any, name: str) -> pa.Table:
    """A table of a run, in the order of its readings."""
    rows = ma.table(output.uri, name, run_id=manifest["run_id"])
    return rows.sort_by([(key, "ascending") for key in READING_COLUMNS if key in rows.schema.names])


def by_id(rows: pa.Table) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["document_id"], row["question_id"]): row for row in rows.to_pylist()}


def logged_kinds(output: Location) -> dict[str, Counter[str]]:
    """Turns of each run by kind."""
    found: dict[str, Counter[str]] = {}
    for path in (output / "log/turns").files():
        for row in pq.read_table(path, filesystem=output.fs, columns=["run_id", "kind"]).to_pylist():
            found.setdefault(row["run_id"], Counter())[row["kind"]] += 1
    return found


def test_follow_up_turns_switched_on_ask_no_update_and_change_no_answer(
    documents: Path, text_model: str, tmp_path: Path
) -> None:
    output = Location(uri=str(tmp_path / "scan"))
    first = answer(job(documents, text_model, output, ask=PLAIN))
    assert first["table_versions"].keys() == {"answers", "memories"}
    before = table(output, first, "answers")
    new_columns = set(ANSWERS.names[ANSWERS.names.index("answer_type") :]) - {"inputs_hash"}
    assert all(before[name].null_count == before.num_rows for name in new_columns)
    follow_ups = job(documents, text_model, output, ask=TYPED, follow_ups={**FOLLOW_UPS, "json_tokens": 64})
    planned = plan_checked(check(follow_ups))
    num_answered = 8 * len(TEXTS)
    assert (planned["readings_to_do"], planned["readings_to_close"]) == (0, num_answered)
    assert (planned["turns"], planned["prompt_tokens_at_most"]) == (0, 0)
    assert planned["follow_up_turns_at_most"] == 2 * num_answered + 7 * len(TEXTS)
    second = answer(follow_ups)
    kinds = logged_kinds(output)[second["run_id"]]
    assert set(kinds) == {"value", "evidence", "support"}
    assert kinds["value"] == 7 * len(TEXTS)
    assert planned["follow_up_turns_at_most"] >= kinds.total()
    answers = table(output, second, "answers")
    assert answers.select(ANSWERS.names).schema.equals(delta_schema(ANSWERS))
    rows = [each.filter(pc.field("document_id") != "none").select(OLD_COLUMNS) for each in (before, answers)]
    assert rows[0].equals(rows[1])
    _require_values(by_id(answers))
    _require_evidence(table(output, second, "evidence"), by_id(answers))
    _require_results(table(output, second, "results"))
    _require_memories(table(output, second, "memories"))
    third = answer(follow_ups)
    assert third["run_id"] not in logged_kinds(output)
    assert third["table_versions"] == second["table_versions"]
    fresh = Location(uri=str(tmp_path / "fresh"))
    at_once = answer(follow_ups.model_copy(update={"output": fresh.uri}))
    for name in ("answers", "evidence", "results"):
        rows = [table(output, second, name).to_pylist(), table(fresh, at_once, name).to_pylist()]
        assert comparable(rows[0]) == comparable(rows[1])


def _require_values(rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Each type has its value, in its own columns; the engine chooses the first entry of every menu."""
    for name in TEXTS:
        values = {question: rows[name, question] for document, question in rows if document == name}
        assert {row["value_status"] for question, row in values.items() if question != "free"} == {"ok"}
        assert (values["day"]["value"], values["day"]["value_doubt"]) == ('"1000-01-01"', Doubt.ANSWER)
        doubted = {question for question, row in values.items() if row["value_doubt"] is not None}
        assert doubted == {"day", "price"}  # the answer has no figure
        assert values["free"]["value_status"] is None
        assert (values["signed"]["value"], values["signed"]["value_bool"]) == ("true", True)
        assert values["signed"]["confidence"] == pytest.approx(1 / 3)
        assert (values["risk"]["value_label"], values["price"]["value_number"]) == ("low", 0.0)
        assert (values["price"]["answer_type"], values["price"]["value_unit"]) == ("number", "EUR")
        assert (values["again"]["value_bool"], values["again"]["value_number"]) == (True, None)
        assert json.loads(values["party"]["value"]) == {"name": "", "shares": []}
        assert {row["coverage"] for row in values.values()} == {1.0}
        assert {row["follow_up_error"] for row in values.values()} == {None}
    assert rows["none", "signed"]["status"] == "failed"
    assert (rows["none", "signed"]["answer_type"], rows["none", "signed"]["value_status"]) == ("bool", None)


def _require_evidence(evidence: pa.Table, answers: dict[tuple[str, str], dict[str, Any]]) -> None:
    """A span is that of the text as stored, character for character; what is nowhere is shown as nowhere."""
    assert evidence.schema.equals(delta_schema(EVIDENCE))
    rows = evidence.to_pylist()
    assert {row["document_id"] for row in rows if row["how"] == "chosen"} == TEXTS.keys()
    for row in rows:
        if row["char_start"] is not None:
            assert row["text"] == TEXTS[row["document_id"]][row["char_start"] : row["char_end"]]
            assert row["text"] == row["text"].strip() != ""
    aligned = {(row["document_id"], row["question_id"]): row for row in rows if row["how"] == "aligned"}
    assert {row["quote"] for row in aligned.values()} == {"simulated"}
    assert (aligned["crlf", "free"]["alignment"], aligned["crlf", "free"]["text"]) == ("exact", "simulated")
    assert (aligned["right_to_left", "free"]["alignment"], aligned["right_to_left", "free"]["text"]) == ("none", None)
    chosen = Counter((row["document_id"], row["question_id"]) for row in rows if row["how"] == "chosen")
    for key, row in answers.items():
        assert row["num_evidence"] == (None if row["status"] == "failed" else chosen[key])
        assert (row["support"] is None) == (not row["num_evidence"])
    assert answers["crlf", "free"]["support"] == "supported"
    assert answers["crlf", "free"]["support_probability"] == pytest.approx(1 / 4)


def _require_results(results: pa.Table) -> None:
    questions = [row["question_id"] for row in TYPED]
    rows = {row["document_id"]: {name: row[name] for name in questions} for row in results.to_pylist()}
    assert rows.keys() == TEXTS.keys() | {"none"}
    assert rows["crlf"] == {
        "free": "simulated",
        "signed": True,
        "risk": "low",
        "tags": [],
        "price": 0.0,
        "day": date(1000, 1, 1),
        "party": {"name": "", "shares": []},
        "again": True,
    }
    assert set(rows["none"].values()) == {None}


def _require_memories(memories: pa.Table) -> None:
    """Follow-up questions stand behind the answer, and leave the memory as it is."""
    rows = [row for row in memories.to_pylist() if (row["document_id"], row["question_id"]) == ("crlf", "signed")]
    assert [row["kind"] for row in rows][-4:] == ["answer", "value", "evidence", "support"]
    assert {row["memory"] for row in rows[-4:]} == {rows[-4]["memory"]}
    assert not any(row["changed"] for row in rows[-4:])


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"follow_ups": {"evidence": True, "evidence_tokens": 1400}}, "follow-up question 'evidence' needs"),
        ({"follow_ups": {"json_tokens": 1400}}, "follow-up question 'value' needs"),
    ],
)
def test_follow_up_turns_that_cannot_be_asked_are_refused_before_the_run(
    values: dict[str, Any], problem: str, documents: Path, text_model: str, tmp_path: Path
) -> None:
    output = Location(uri=str(tmp_path / "out"))
    with pytest.raises(SettingsError, match=problem):
        check(job(documents, text_model, output, ask=TYPED, **values))
    assert not (tmp_path / "out").exists()
