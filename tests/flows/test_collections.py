"""The recipes of docs/how-to/collections.md with their own YAML, on real Ray, read by an engine without a model."""

import re
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
import yaml

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import IngestJob, JobConfig
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.ingest import ingest_documents
from memagent_batch.run.wiring import identify_reader
from tests import prompt_dependent_engine
from tests.convert.files import pdf, written
from tests.tables import table_rows

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


def test_case_of_ingested_files_is_one_document_whose_evidence_names_file_and_page(
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
    ingest_documents(IngestJob(documents=(str(tmp_path / "cases"),), output=str(tmp_path / "texts")))
    monkeypatch.chdir(tmp_path)
    exec(blocks("python")[0], {})
    job = recipe("cases.yaml", tmp_path, text_model, chunk_tokens=200)
    answer(job)
    answers = {row["document_id"]: row for row in table_rows(job.output, "answers")}
    assert {name: row["status"] for name, row in answers.items()} == {"17": "ok", "18": "ok"}
    places = {"17/report.pdf, page 1": pages[1], "17/report.pdf, page 2": pages[2]}
    places["17/mails/offer.eml, message 1"] = "Ostrava Metals gives a warranty of three years."
    evidence = [row for row in table_rows(job.output, "evidence") if row["document_id"] == "17"]
    assert {row["how"] for row in evidence} >= {"chosen"}
    for row in evidence:
        if row["how"] == "chosen":
            assert row["locator"] in places
            assert row["text"] in (places[row["locator"]], f"[{row['locator']}]") or row["text"] in mail.as_string()
    shown = {row["locator"] for row in table_rows(job.output, "memories") if row["document_id"] == "17"}
    assert shown - {None} == {"17/mails/offer.eml, message 1 to 17/report.pdf, page 2"}


def test_recipe_of_threads_is_a_job(tmp_path: Path, text_model: str) -> None:
    """What mails that arrive cost is in test_grown_documents."""
    job = recipe("threads.yaml", tmp_path, text_model, chunk_tokens=150)
    assert job.input.order_columns
    assert identify_reader(job.agent).fingerprint
