"""Three nights over a bucket to which documents are added, changed and removed, without a model."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq
import pytest

from memagent_batch.flows import answer as answer_module
from memagent_batch.flows.answer import answer
from memagent_batch.runs.comparison import compare_runs
from memagent_batch.runs.history import find_run
from memagent_batch.store.location import Location
from tests.jobs import small_job

pytestmark = pytest.mark.s3

MONDAY = {"a": "the fox " * 60, "b": "a dog", "c": "a cat"}
TUESDAY = {"a": MONDAY["a"], "b": "another dog", "d": "a bird"}
Q, R = {"q": "Who?"}, {"r": "Where?"}


class Scan:
    """A job over a bucket, run night after night."""

    def __init__(self, bucket: Location, model: str) -> None:
        self.bucket = bucket
        self.output = bucket / "run"
        options = dict(bucket.storage_options)
        self.settings = small_job(bucket.uri, model, questions=f"{bucket.uri}/questions.jsonl", storage_options=options)

    def put(self, documents: Mapping[str, str], questions: Mapping[str, str]) -> None:
        """Makes these the documents and questions of the bucket."""
        (self.bucket / "in").delete()
        for name, text in documents.items():
            row = {"document_id": name, "text": text}
            (self.bucket / f"in/{name}.jsonl").write_bytes(json.dumps(row).encode())
        rows = [json.dumps({"question_id": name, "question": text}) for name, text in questions.items()]
        (self.bucket / "questions.jsonl").write_bytes("\n".join(rows).encode())

    def rows(self, folder: str) -> list[dict[str, Any]]:
        """Rows of a folder of the log, or of a table as the last run has it."""
        files = json.loads((self.output / "manifest.json").read_bytes())["files"]
        paths = (
            [(self.output / name).path for name in files[folder]] if folder in files else (self.output / folder).files()
        )
        return [row for path in paths for row in pq.read_table(path, filesystem=self.output.fs).to_pylist()]

    def read_tonight(self, run_id: str) -> set[tuple[str, str]]:
        """Documents and questions that the model was asked about in a run, by the log."""
        answers = self.rows("answers")
        documents = {row["document_hash"]: row["document_id"] for row in answers}
        questions = {row["question_hash"]: row["question_id"] for row in answers}
        return {
            (documents[row["document_hash"]], questions[row["question_hash"]])
            for row in self.rows("log/turns")
            if row["run_id"] == run_id
        }

    def changed_since(self, run_id: str) -> set[tuple[str, ...]]:
        tables = compare_runs(find_run(self.output, run_id), find_run(self.output, "latest"))
        return {
            (row["document_id"], row["question_id"], row["change"], *row["why"])
            for table in tables
            for row in table.to_pylist()
        }


def test_three_nights_read_what_changed_and_tell_it(
    s3_bucket: Location, text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = Scan(s3_bucket, text_model)
    scan.put(MONDAY, Q | R)
    monday = answer(scan.settings)
    assert monday["changes"]["readings"] == {"read": 6, "kept": 0, "unreadable": 0, "not_read": 0}

    scan.put(TUESDAY, Q | R)
    with monkeypatch.context() as patch:
        patch.setattr(answer_module, "close_run", stopped)
        with pytest.raises(KeyboardInterrupt):
            answer(scan.settings)
    stopped_run = max(row["run_id"] for row in scan.rows("log/turns"))
    tuesday = answer(scan.settings)
    assert scan.read_tonight(stopped_run) == {(name, question) for name in "bd" for question in "qr"}
    assert scan.read_tonight(tuesday["run_id"]) == set()
    assert tuesday["changes"] == {
        "since": monday["run_id"],
        "documents": {"added": 1, "changed": 1, "removed": 1, "unchanged": 1},
        "questions": {"added": 0, "changed": 0, "removed": 0, "unchanged": 2},
        "readings": {"read": 4, "kept": 2, "unreadable": 0, "not_read": 0},
        "tables": {},
        "turns": {"asked": 6, "reused": 2},
    }
    assert {(row["document_id"], row["run_id"]) for row in scan.rows("answers")} == {
        ("a", monday["run_id"]),
        ("b", stopped_run),
        ("d", stopped_run),
    }
    gone = [(row["document_id"], row["last_run_id"], row["removed_run_id"]) for row in scan.rows("removed")]
    assert gone == [("c", monday["run_id"], tuesday["run_id"])]

    scan.put(TUESDAY, {"q": "Who else?"} | R)
    wednesday = answer(scan.settings)
    assert scan.read_tonight(wednesday["run_id"]) == {("a", "q"), ("b", "q"), ("d", "q")}
    assert wednesday["changes"]["questions"] == {"added": 0, "changed": 1, "removed": 0, "unchanged": 1}
    assert wednesday["changes"]["readings"] == {"read": 3, "kept": 3, "unreadable": 0, "not_read": 0}
    assert [row["document_id"] for row in scan.rows("removed")] == ["c"]
    assert scan.changed_since(monday["run_id"]) == {
        (name, question, change, "document") for name, change in (("c", "removed"), ("d", "added")) for question in "qr"
    }


def stopped(*_: object, **__: object) -> None:
    """Stands for a kill between the tables and the manifest."""
    raise KeyboardInterrupt
