"""Erasure and retention: what is forgotten is in no file of an output, and all else stays as it was."""

import csv
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import memagent_batch as ma
from memagent_batch.cli.main import main
from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.errors import InputError, OutputError, SupersededError
from memagent_batch.flows import forget as forget_flow
from memagent_batch.flows.answer import answer
from memagent_batch.flows.forget import find_documents, forget
from memagent_batch.flows.verify import verify
from memagent_batch.pages.site import SIGN_SHEET_COLUMNS, write_site
from memagent_batch.review.labels import LABELS, append_labels, read_label_rows
from memagent_batch.review.sign_offs import SIGN_OFFS, append_sign_offs, read_sign_offs, reading_hash
from memagent_batch.runs.history import find_run, finished_runs, has_pending_erasure
from memagent_batch.runs.retention import prune_log, vacuum, vacuum_tables
from memagent_batch.store.delta import OutputTable, RunNumber, TableFile
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log import merge
from memagent_batch.store.turn_log.rewrite import rewrite_log
from tests import prompt_dependent_engine
from tests.jobs import small_settings

NAMES = ("Ann", "Bob", "Carla", "Dora")
GONE = "Bob"
ASK = [
    {"question_id": "who", "question": "Who is it?"},
    {"question_id": "signed", "question": "Is it signed?", "answer_type": "bool"},
]


def text_of(name: str, *, days: int = 3) -> str:
    return "".join(f"On day {day} of {name} the fox went over hill {day} and met {name}. " for day in range(days))


class Nights:
    """A job whose documents are rows of a Parquet file."""

    def __init__(self, folder: Path, model: str, output: Location, **settings: Any) -> None:
        self.file, self.output = folder / "documents.parquet", output
        given = {
            "documents": str(self.file),
            "output": output.uri,
            "ask": ASK,
            "engine": prompt_dependent_engine.KIND,
            "follow_ups": {"evidence": True},
            "input": {"carry_columns": ["team"]},
            "storage_options": {**output.storage_options},
        }
        self.job: JobConfig = job_of(**small_settings(folder, model, **given | settings), allow_code=True)

    def run(self, texts: Mapping[str, str]) -> Any:
        teams = ["x" if name == GONE else "y" for name in texts]
        pq.write_table(pa.table({"document_id": [*texts], "text": [*texts.values()], "team": teams}), self.file)
        return answer(self.job)

    def rows(self, name: str, *, without: str = GONE) -> list[dict[str, Any]]:
        rows = ma.table(self.output.uri, name, storage_options=self.output.storage_options).to_pylist()
        return sorted((row for row in rows if row["document_id"] != without), key=str)


@pytest.fixture(params=["disk", "s3"])
def nights(request: pytest.FixtureRequest, tmp_path: Path, text_model: str, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """Two nights: Bob's text changed between them, the log is merged, reviews and pages are there."""
    monkeypatch.setattr(merge, "MERGE_FROM", 2)
    is_local = request.param == "disk"
    output = Location(uri=str(tmp_path / "run")) if is_local else request.getfixturevalue("s3_bucket") / "run"
    nights = Nights(tmp_path, text_model, output)
    texts = {name: text_of(name) for name in NAMES}
    nights.run(texts)
    nights.run({**texts, GONE: text_of(GONE, days=4)})
    return nights


def strings_of(output: Location, document_id: str) -> set[str]:
    """Texts that the output holds of a document and of no other: sentences, memories, answers, of all versions."""
    texts: dict[bool, set[str]] = {True: set(), False: set()}
    for path in output.files():
        if not path.endswith(".parquet") or "/_delta_log/" in path or "/log/" in path:
            continue
        rows = pq.read_table(pa.BufferReader(output.at(path).read_bytes())).to_pylist()
        for row in rows:
            is_wanted = row.get("document_id") == document_id
            columns = ("text", "memory", "answer", "response", "quote", "comment", "correction")
            texts[is_wanted] |= {row[name] for name in columns if row.get(name)}
    return {text for text in texts[True] - texts[False] if len(text) > 3}


def contents_of(output: Location) -> dict[str, str]:
    """The decompressed content of every file; of Parquet all columns, of archives all members."""
    contents = {}
    for path in output.files(temporary=True):
        data = output.at(path).read_bytes()
        if data.startswith(b"PAR1"):
            file = pq.ParquetFile(pa.BufferReader(data))
            contents[path] = str(file.read().to_pylist()) + str(file.schema_arrow.metadata)
        elif data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                contents[path] = "".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())
        else:
            contents[path] = data.decode("utf-8", "replace")
    return contents


def files_with(output: Location, texts: set[str]) -> set[str]:
    """Files that hold one of the texts."""
    assert texts
    return {path for path, content in contents_of(output).items() if any(text in content for text in texts)}


def write_reviews(nights: Nights) -> None:
    """A label, a sign-off and pages of each document, and input that a program passed."""
    now = datetime.now(UTC)
    labels, signed = [], []
    for row in nights.rows("answers", without=""):
        if row["question_id"] != "who":
            continue
        about = {name: row[name] for name in ("document_id", "question_id", "document_hash", "question_hash")}
        person = {"value": "yes", "reviewer": "Ada", "labelled_at": now, "blind": True, "purpose": "validate"}
        text = f"{row['document_id']} said so himself"
        labels.append({**dict.fromkeys(LABELS.names), **about, **person, "comment": text, "decision": "it is",
                       "choices": ["yes", "no"], "review_id": "r"})  # fmt: skip
        signed.append({**dict.fromkeys(SIGN_OFFS.names), "document_id": row["document_id"], "question_id": "who",
                       "sample": 0, "reading_hash": reading_hash(row), "signed_by": "Ada", "signed_at": now,
                       "decision": "correct", "correction": f"{row['document_id']} Smith", "comment": text,
                       "withdrawn": False})  # fmt: skip
    append_labels(nights.output, labels)
    append_sign_offs(nights.output, signed)
    write_site([nights.output], nights.output / "page", context_chars=100, is_large_allowed=True)
    (nights.output / "review/r/documents/1.html").write_bytes(text_of(GONE).encode())
    (nights.output / "input/documents/x.parquet").write_bytes(nights.file.read_bytes())
    (nights.output / "answers/.tmp-0123").write_bytes(text_of(GONE).encode())


def forget_gone(nights: Nights) -> Any:
    return forget(nights.output, find_documents(nights.output, document_ids=[GONE]))


def test_forgotten_document_is_in_no_file_and_all_other_rows_stay(nights: Nights) -> None:
    write_reviews(nights)
    others = {name: nights.rows(name) for name in ("answers", "memories", "evidence", "results")}
    texts = strings_of(nights.output, GONE) | {f"day 1 of {GONE}", f"{GONE} said so", f"{GONE} Smith"}
    places = {path.removeprefix(nights.output.path).split("/")[1] for path in files_with(nights.output, texts)}
    assert places == {"answers", "memories", "evidence", "results", "log", "page", "review", "input"}
    before = find_run(nights.output)
    report = forget_gone(nights)
    assert files_with(nights.output, texts) == set()
    assert {name: nights.rows(name, without="") for name in others} == others
    assert report["documents"] == 1
    assert report["rows"]["answers"] == len(ASK)
    assert len(read_label_rows(nights.output)) == len(read_sign_offs(nights.output)) == len(NAMES)
    run = find_run(nights.output)
    assert finished_runs(nights.output) == [run.run_id]
    assert run.manifest["forgotten"] == {"documents": 1}
    assert run.manifest["digest_before"] == before.manifest["digest"]
    assert run.manifest["counts"]["asked"] == run.manifest["counts"]["ok"] == len(ASK) * (len(NAMES) - 1)
    assert verify(nights.output).problems == []
    write_site([nights.output], nights.output / "page", context_chars=100, is_large_allowed=True)


def test_next_night_reads_a_forgotten_document_again_only_if_it_is_still_in_the_source(nights: Nights) -> None:
    texts = {name: text_of(name) for name in NAMES if name != GONE}
    forget_gone(nights)
    run_id = find_run(nights.output).run_id
    quiet = nights.run(texts)
    assert quiet["changes"]["since"] == run_id
    assert quiet["changes"]["turns"]["asked"] == 0
    assert "forgotten" not in quiet
    back = nights.run({**texts, GONE: text_of(GONE)})
    assert back["changes"]["documents"]["added"] == 1
    assert back["changes"]["turns"]["asked"] > 0
    assert back["changes"]["turns"]["reused"] == 0
    assert verify(nights.output).problems == []
    assert main_of(nights, "diff") == 0


def main_of(nights: Nights, *words: str) -> int:
    options = ["--storage-options", json.dumps({**nights.output.storage_options})]
    return main([words[0], nights.output.uri, *words[1:], *(options if nights.output.storage_options else ())])
