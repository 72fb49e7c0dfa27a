"""The whole pipeline on real Ray, from bucket to bucket, with an engine that needs no model."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.agent import Extraction
from memagent_batch.data.store.location import Location
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.tables import table
from tests.jobs import small_job
from tests.tables import rows_in

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]

QUESTIONS = ["Who?", "What?", "Why? " * 100]
"""The last one is longer than its budget."""
TEXTS = {
    "empty": "",
    "short": "a word",
    "exact": "one two three four five " * 20,
    "long": "the fox jumps over 12345 dogs. " * 60,
    "twin": "a word",
}


def write_corpus(place: Location) -> None:
    """Shards of two formats: four readable documents, an empty one, and one without text."""
    names = list(TEXTS)
    rows = [{"document_id": name, "text": TEXTS[name], "origin": f"file {name}"} for name in names[:2]]
    table = pa.Table.from_pylist([*rows, {"document_id": "broken", "text": None, "origin": None}])
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=1)
    (place / "a.parquet").write_bytes(sink.getvalue())
    lines = [json.dumps({"document_id": name, "text": TEXTS[name], "origin": 7}) for name in names[2:]]
    (place / "b.jsonl").write_bytes("\n".join(lines).encode())


@pytest.mark.s3
def test_run_from_bucket_to_bucket_gives_each_reading_one_row_and_keeps_its_keys_to_itself(
    text_model: str, s3_bucket: Location
) -> None:
    write_corpus(s3_bucket / "in")
    (s3_bucket / "questions.txt").write_bytes("\n".join(QUESTIONS).encode())
    output = s3_bucket / "runs" / "one"
    settings: dict[str, Any] = {
        "executor": "ray",
        "documents": f"{s3_bucket.uri}/in",
        "output": output.uri,
        "questions": f"{s3_bucket.uri}/questions.txt",
        "storage_options": {**s3_bucket.storage_options, "secret": "hunter2-hunter2"},
        "input": {"carry_columns": ("origin",)},
    }
    first = answer(small_job("", text_model, **settings))
    rows = table(output.uri, "answers", storage_options=s3_bucket.storage_options).to_pylist()
    keys = Counter((row["document_id"], row["question"].strip()) for row in rows)
    asked = {(name, question.strip()) for name in [*TEXTS, "broken"] for question in QUESTIONS}
    assert keys == Counter(asked)
    memories = table(output.uri, "memories", storage_options=s3_bucket.storage_options)
    counts = {"asked": 18, "ok": 8, "failed": 10, "not_read": 0}
    assert first["counts"] == {**counts, "answers_rows": 18, "memories_rows": memories.num_rows}

    log = (output / "log/turns").files()
    answer(small_job("", text_model, **settings, extraction=Extraction.RAW))
    assert (output / "log/turns").files() == log
    answers = table(output.uri, "answers", storage_options=s3_bucket.storage_options)
    assert set(answers["answer"].to_pylist()) == {"\\boxed{simulated}", None}
    assert all(b"hunter2" not in output.at(path).read_bytes() for path in output.files())


@pytest.mark.slow
def test_run_long_document_holds_no_short_one_back(text_model: str, tmp_path: Path) -> None:
    texts = {"long": "the fox jumps over 12345 dogs. " * 200} | {f"short{number}": "a b c" for number in range(8)}
    rows = [{"document_id": name, "text": f"{name} {text}"} for name, text in texts.items()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "all.parquet")
    slow: dict[str, Any] = {"executor": "ray", "ask": ("Who?",), "simulated": {"turn_seconds": 0.1}}
    answer(small_job(tmp_path, text_model, documents=str(tmp_path / "all.parquet"), **slow))
    answered = {row["document_id"]: row for row in rows_in(tmp_path / "run" / "answers")}
    long = answered.pop("long")
    assert long["num_turns"] > 30
    assert len(answered) == 8
    assert all(row["finished_at"] < long["finished_at"] for row in answered.values())
    first = min((tmp_path / "run" / "log" / "outcomes").iterdir(), key=lambda path: path.name)
    assert long["document_hash"] not in {row["document_hash"] for row in pq.read_table(first).to_pylist()}
