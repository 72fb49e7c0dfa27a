"""The recipes of docs/how-to/collections.md with their own YAML, on real Ray, read by an engine without a model."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from memagent_batch.cli.settings import job_of
from memagent_batch.config.convert import ConvertJob
from memagent_batch.config.job import JobConfig
from memagent_batch.flows.answer import answer
from memagent_batch.flows.convert import convert
from memagent_batch.runs.manifest import Manifest
from tests import prompt_dependent_engine
from tests.convert.files import pdf, written

PAGE = (Path(__file__).parents[2] / "docs/how-to/collections.md").read_text(encoding="utf-8")
SMALL: dict[str, Any] = {
    "engine": prompt_dependent_engine.KIND,
    "window_tokens": 1500,
    "log": {"flush_seconds": 0.1},
}
BUDGETS = {"question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def recipe(name: str, folder: Path, model: str, *, chunk_tokens: int) -> JobConfig:
    """The job of the page, in a folder, with budgets for short texts."""
    (text,) = [block for block in blocks("yaml") if block.startswith(f"# {name}\n")]
    given: dict[str, Any] = yaml.safe_load(text)
    places = {setting: f"{folder}/{given[setting]}" for setting in ("documents", "output")}
    policy = {**given["policy"], **BUDGETS, "chunk_tokens": chunk_tokens}
    return job_of(executor="local", **{**given, **places, **SMALL, "policy": policy, "model": model}, allow_code=True)


def rows_of(job: JobConfig, manifest: Manifest, table: str) -> list[dict[str, Any]]:
    """The rows of a table of the run."""
    files = [Path(job.output) / name for name in manifest["files"][table]]
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([*rows]), file)


def chunks_asked(job: JobConfig, manifest: Manifest, *, turns: str) -> Counter[tuple[str, str]]:
    """Documents and paths of the turns of a kind that a run asked the engine."""
    logged = pq.read_table(Path(job.output) / "log/turns").to_pylist()
    names = {row["document_hash"]: row["document_id"] for row in rows_of(job, manifest, "answers")}
    return Counter(
        (names[row["document_hash"]], row["path"])
        for row in logged
        if row["run_id"] == manifest["run_id"] and row["reused_from"] is None and row["path"].startswith(turns)
    )


def test_case_of_converted_files_is_one_document_whose_evidence_names_file_and_page(
    tmp_path: Path, text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {1: "The pump of hall 4 failed in May.", 2: "It was bought of Ostrava Metals."}
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "ann@example.com", "Warranty"
    mail.set_content("Ostrava Metals gives a warranty of three years.")
    for case in ("17", "18"):
        (tmp_path / f"cases/{case}/mails").mkdir(parents=True)
        (tmp_path / f"cases/{case}/report.pdf").write_bytes(pdf(*map(written, pages.values())))
    (tmp_path / "cases/17/mails/offer.eml").write_bytes(mail.as_bytes())
    (tmp_path / "cases/17/photo.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    convert(ConvertJob(documents=(str(tmp_path / "cases"),), output=str(tmp_path / "texts")))
    monkeypatch.chdir(tmp_path)
    duckdb.sql(blocks("sql")[0])
    job = recipe("cases.yaml", tmp_path, text_model, chunk_tokens=200)
    manifest = answer(job)
    answers = {row["document_id"]: row for row in rows_of(job, manifest, "answers")}
    assert {name: row["status"] for name, row in answers.items()} == {"17": "ok", "18": "ok"}
    places = {"17/report.pdf, page 1": pages[1], "17/report.pdf, page 2": pages[2]}
    places["17/mails/offer.eml, message 1"] = "Ostrava Metals gives a warranty of three years."
    evidence = [row for row in rows_of(job, manifest, "evidence") if row["document_id"] == "17"]
    assert {row["how"] for row in evidence} >= {"chosen"}
    for row in evidence:
        if row["how"] == "chosen":
            assert row["locator"] in places
            assert row["text"] in (places[row["locator"]], f"[{row['locator']}]") or row["text"] in mail.as_string()
    shown = {row["locator"] for row in rows_of(job, manifest, "memories") if row["document_id"] == "17"}
    assert shown - {None} == {"17/mails/offer.eml, message 1 to 17/report.pdf, page 2"}


def test_mail_that_arrives_costs_its_chunk_and_the_one_that_was_the_last(tmp_path: Path, text_model: str) -> None:
    job = recipe("threads.yaml", tmp_path, text_model, chunk_tokens=150)
    text = "We ask you once more to tell us the day on which the parts will be with us. "
    mails = [
        {"thread_id": f"t{thread}", "sent_at": f"2026-01-0{day}T09:00:00Z", "message_id": f"{thread}-{day}"}
        | {"sender": "Ann", "text": text * 2}
        for day in range(1, 5)
        for thread in range(3)
    ]
    write_rows(tmp_path / "mails/january.parquet", mails)
    first = answer(job)
    chunks = {row["document_id"]: row["num_chunks"] for row in rows_of(job, first, "answers")}
    assert set(chunks.values()) == {4}
    late = {**mails[-1], "sent_at": "2026-02-01T09:00:00Z", "message_id": "2-9"}
    write_rows(tmp_path / "mails/february.parquet", [late])
    second = answer(job)
    assert second["changes"]["documents"] == {"added": 0, "changed": 1, "removed": 0, "unchanged": 2}
    assert chunks_asked(job, second, turns="update") == {("t2", "update/3"): 1, ("t2", "update/4"): 1}
    located = [row["locator"] for row in rows_of(job, second, "memories") if row["document_id"] == "t2"]
    assert located[4] == "mail of Ann, 2026-02-01T09:00:00Z"


def test_notes_of_a_night_cost_the_chunks_that_they_fill(tmp_path: Path, text_model: str) -> None:
    job, before = recipe("notes.yaml", tmp_path, text_model, chunk_tokens=150), dict[str, int]()
    for day in (1, 2):
        notes = [
            {"case_id": case, "day": f"2026-01-0{day}", "number": number, "text": f"{case}: call {number} of {day}."}
            for case in ("a", "b")
            for number in range(1, 13)
        ]
        write_rows(tmp_path / f"notes/2026-01-0{day}.parquet", notes)
        manifest = answer(job)
        chunks = {row["document_id"]: row["num_chunks"] for row in rows_of(job, manifest, "answers")}
        asked = chunks_asked(job, manifest, turns="read/1/")
        first = {case: before.get(case, 1) - 1 for case in chunks}  # the chunk that was the last one has grown
        assert asked == {
            (case, f"read/1/{number}"): 1 for case in chunks for number in range(first[case], chunks[case])
        }
        before = chunks
    assert min(first.values()) > 0
    assert manifest["changes"]["turns"]["reused"] > 0
    locators = {row["locator"] for row in rows_of(job, manifest, "evidence") if row["how"] == "chosen"}
    assert locators
    assert all(re.fullmatch(r"2026-01-0\d, note \d+", locator) for locator in locators)
