"""One corpus and one agent for all tests of the API that need no model."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import memagent_batch as ma
from memagent_batch.data.documents.document_index import SOURCE_COLUMNS
from tests.tables import OWN_COLUMNS

TEXTS: dict[str, str | None] = {
    "empty": "",
    "short": "a word",
    "long": "the fox jumps over 12345 dogs. " * 60,
    "null": None,
    "twin": "a word",
}
QUESTIONS: list[str | ma.Question | Mapping[str, Any]] = [
    "Who?",
    ma.Question(question="What?", question_id="what"),
    {"question": "Why? " * 100, "question_id": "too-long"},
    ma.Question(question="Where?", question_id="bound", document_id="short", references=["here"]),
]
Key = tuple[str, str, int]
SOURCE_NAMES = {*SOURCE_COLUMNS.names, "inputs_hash"}

run_local = partial(ma.answer, executor="local", max_failed_share=1.0)


@pytest.fixture
def agent(text_model: str) -> ma.Agent:
    """An agent whose engine needs no model; it draws two samples."""
    return agent_of(text_model, sampling=ma.SamplingConfig(samples=2, temperature=1.0))


def agent_of(model: str, **settings: Any) -> ma.Agent:
    policy = ma.Overwrite(chunk_tokens=50, question_tokens=60, memory_tokens=40, answer_tokens=40)
    return ma.Agent(model=model, engine="simulated", window_tokens=1000, policy=policy, **settings)


def table_of(texts: Mapping[str, str | None]) -> pa.Table:
    rows = [{"document_id": name, "text": text, "number": number} for number, (name, text) in enumerate(texts.items())]
    return pa.Table.from_pylist(rows)


def by_reading(rows: pa.Table | list[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Rows of `answers` without what is of their run or source alone, and without the place of an unreadable text."""
    found = {}
    for row in rows if isinstance(rows, list) else rows.to_pylist():
        kept = {name: value for name, value in row.items() if name not in OWN_COLUMNS | SOURCE_NAMES}
        if kept["error_type"] == "DocumentError":
            kept["error_message"] = kept["error_message"].rpartition(": ")[2]
        key = (kept["document_id"], kept["question_id"], kept["sample"])
        assert key not in found
        found[key] = kept
    return found


def logged_turns(output: Path) -> int:
    return int(pq.read_table(output / "log" / "turns").num_rows)
