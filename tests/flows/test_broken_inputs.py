"""A night over a lake in which files are broken and documents are gone: it goes on, and says so row by row."""

import json
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.config.job import JobConfig, RunConfig
from memagent_batch.run.flows.answer import answer
from tests.jobs import put_texts, small_job
from tests.tables import table_rows


@pytest.fixture
def job(text_model: str, tmp_path: Path) -> JobConfig:
    """Two documents in JSONL between which a line is broken, a PDF, a stray text file, and questions."""
    lines = [json.dumps({"document_id": name, "text": f"text of {name} " * 30}) for name in ("a", "b")]
    lake = f"{lines[0]}\n{{broken\n{lines[1]}\n"
    put_texts(tmp_path / "in", {"lake.jsonl": lake, "scan.pdf": "%PDF", "README.txt": "about this lake"})
    asked = [("Who?", None), ("When?", "a"), ("Why?", "gone")]
    rows = [json.dumps({"question": question, "document_id": document_id}) for question, document_id in asked]
    (tmp_path / "questions.jsonl").write_text("\n".join(rows))
    questions = str(tmp_path / "questions.jsonl")
    return small_job(tmp_path, text_model, questions=questions, input={"on_bad_file": "record"})


def rows_of(run: RunConfig) -> dict[tuple[str, str], tuple[Any, ...]]:
    rows = table_rows(run.output, "answers")
    return {(row["document_id"], row["question"]): (row["status"], row["error_type"]) for row in rows}


def test_night_over_broken_inputs_has_a_row_for_each_reading_asked_for_and_the_next_one_reads_what_was_fixed(
    job: JobConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    counts = answer(job)["counts"]
    assert (counts["asked"], counts["ok"], counts["failed"], counts["answers_rows"]) == (6, 3, 3, 6)
    bad, gone, ok = ("failed", "BadFileError"), ("failed", "DocumentMissingError"), ("ok", None)
    read = {("a", "Who?"): ok, ("a", "When?"): ok, ("b", "Who?"): ok}
    broken = {("lake.jsonl, line 2", "Who?"): bad, ("scan.pdf", "Who?"): bad, ("gone", "Why?"): gone}
    assert rows_of(job) == read | broken
    lines = "\n".join(caplog.messages)
    assert "2 documents from 2 files; left out: 'README.txt' (a text file beside" in lines
    assert "can't be read: 'lake.jsonl, line 2', 'scan.pdf'" in lines
    assert "not there: 'gone'; their rows are failed" in lines

    text = (tmp_path / "in" / "lake.jsonl").read_text()
    (tmp_path / "in" / "lake.jsonl").write_text(text.replace("{broken", '{"document_id": "gone", "text": "here"}'))
    changes = answer(job)["changes"]
    assert changes["documents"] == {"added": 1, "changed": 0, "removed": 0, "unchanged": 2}
    assert changes["readings"] == {"read": 2, "kept": 3, "unreadable": 1, "not_read": 0}
    found = {("gone", "Who?"): ok, ("gone", "Why?"): ok, ("scan.pdf", "Who?"): bad}
    assert rows_of(job) == read | found
