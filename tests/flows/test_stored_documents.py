"""A run reads its texts from its output alone: what was answered stays, whatever becomes of the sources."""

import csv
import io
import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.apps.pages.site import write_site
from memagent_batch.cli import main as cli
from memagent_batch.config.job import JobConfig
from memagent_batch.config.storage import StorageOptions
from memagent_batch.data.store.location import Location
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.check import check
from memagent_batch.run.flows.plan import plan_checked
from memagent_batch.run.tables import table
from tests.jobs import small_job

SCHEMA = pa.schema([("thread", pa.string()), ("n", pa.int64()), ("body", pa.string()), ("received", pa.date32())])
THREADS = ("lease", "offer")
QUESTION = {"question_id": "signed", "question": "Did Ann sign?", "answer_type": "bool"}
LATER = {"question_id": "amount", "question": "What does it cost?", "answer_type": "number"}
MAILS: dict[str, Any] = {
    "document_id_column": "thread",
    "text_column": "body",
    "order_columns": ("n",),
    "locator": "mail {n}",
    "header": "Mail {n}",
    "carry_columns": ("received",),
}


def bodies(thread: str, *, edited: str | None = None) -> list[str]:
    mails = [f"Mail about the {thread}, number {n}. Ann signed page {n}. It costs {n} EUR." for n in range(1, 9)]
    return [*mails[:4], edited or mails[4], *mails[5:]]


def write_archive(folder: Location, *, edited: str | None = None) -> None:
    """A file for each half of the mails of all threads, with their rows mixed."""
    rows = [
        {"thread": thread, "n": n, "body": body, "received": date(2026, 11, n)}
        for thread in THREADS
        for n, body in enumerate(bodies(thread, edited=edited if thread == "lease" else None), start=1)
    ]
    for number in range(2):
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows[number::2][::-1], schema=SCHEMA), sink, row_group_size=3)
        (folder / f"mails-{number}.parquet").write_bytes(sink.getvalue())


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.s3)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "s3":
        bucket: Location = request.getfixturevalue("s3_bucket")
        return bucket / "night"
    return Location(uri=str(tmp_path / "night"))


def job_of(root: Location, model: str, *, documents: str | None = None, ask: Any = QUESTION) -> JobConfig:
    return small_job(
        root.uri,
        model,
        documents=documents or f"{root.uri}/in",
        storage_options=StorageOptions(root.storage_options),
        input=MAILS if documents is None else {"carry_columns": ("received",)},
        follow_ups={"evidence": True},
        adopt_output=documents is not None,
        ask=ask if isinstance(ask, list) else [ask],
    )


def rows_of(root: Location, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table(
        f"{root.uri}/run", name, storage_options=StorageOptions(root.storage_options)
    ).to_pylist()
    return rows


def whole_text(thread: str, *, edited: str | None = None) -> str:
    return "\n\n".join(f"Mail {n}\n{body}" for n, body in enumerate(bodies(thread, edited=edited), start=1))


def test_run_over_an_edited_archive_needs_no_source_afterwards(root: Location, text_model: str, tmp_path: Path) -> None:
    output, edited = root / "run", "Ann took her name off page 5 of the lease."
    write_archive(root / "in")
    assert plan_checked(check(job_of(root, text_model)))["readings_to_do"] == 2
    assert not (output / "documents").exists()
    answer(job_of(root, text_model))
    answers = table(output.uri, "answers", storage_options=StorageOptions(root.storage_options))
    assert answers.schema.field("received").type == pa.date32()
    assert answers["received"].to_pylist() == [date(2026, 11, 1)] * 2
    before = {row["document_id"]: row for row in answers.to_pylist()}
    require_spans(root, {thread: whole_text(thread) for thread in THREADS})

    write_archive(root / "in", edited=edited)
    changes = answer(job_of(root, text_model))["changes"]
    assert changes["documents"] == {"added": 0, "changed": 1, "removed": 0, "unchanged": 1}
    assert changes["turns"]["reused"] > 0
    after = {row["document_id"]: row for row in rows_of(root, "answers")}
    assert after["offer"] == before["offer"]
    assert after["lease"]["document_hash"] != before["lease"]["document_hash"]
    texts = {"lease": whole_text("lease", edited=edited), "offer": whole_text("offer")}
    require_spans(root, texts)

    (root / "in").delete()
    require_commands(root, texts, folder=tmp_path)
    manifest = answer(job_of(root, text_model, documents=output.uri, ask=[QUESTION, LATER]))
    assert manifest["counts"]["ok"] == 4
    assert manifest["changes"]["documents"] == {"added": 0, "changed": 0, "removed": 0, "unchanged": 2}
    assert {row["document_id"] for row in rows_of(root, "answers") if row["question_id"] == "amount"} == set(THREADS)
    require_spans(root, texts)


def require_spans(root: Location, texts: dict[str, str]) -> None:
    """Spans of evidence and memories are those of the texts, and their locators name the mails that they lie in."""
    evidence = [row for row in rows_of(root, "evidence") if row["char_start"] is not None]
    assert {row["document_id"] for row in evidence} == set(THREADS)
    for row in evidence:
        assert row["text"] == texts[row["document_id"]][row["char_start"] : row["char_end"]]
        assert row["locator"].startswith("mail ")
    turns = [row for row in rows_of(root, "memories") if row["char_start"] is not None]
    assert {row["document_id"] for row in turns} == set(THREADS)
    for row in turns:
        mails = mails_of_span(texts[row["document_id"]], row["char_start"], row["char_end"])
        assert row["locator"] == " to ".join(dict.fromkeys([f"mail {mails[0]}", f"mail {mails[-1]}"]))


def mails_of_span(text: str, start: int, end: int) -> list[int]:
    """The numbers of the mails that a span of a text touches."""
    begin, found = 0, []
    for number, mail in enumerate(text.split("\n\n"), start=1):
        if max(begin, start) < min(begin + len(mail), end):
            found.append(number)
        begin += len(mail) + 2
    return found


def require_commands(root: Location, texts: dict[str, str], *, folder: Path) -> None:
    """Pages, exports and reviews show the texts that were answered."""
    output, options = f"{root.uri}/run", ["--storage-options", json.dumps({**root.storage_options})]
    written = write_site([root / "run"], Location(uri=f"{folder}/site"), context_chars=200, is_large_allowed=False)
    assert written["documents"] == 2
    pages = "".join(path.read_text() for path in Path(f"{folder}/site").rglob("*.html"))
    assert all(f"Mail about the {thread}, number 1." in pages for thread in THREADS)
    assert cli.main(["verify", output, *options]) == 0
    assert cli.main(["show", output, "lease", *options]) == 0
    assert cli.main(["export", output, "--to", "csv", "--into", f"{folder}/answers.csv", *options]) == 0
    with Path(f"{folder}/answers.csv").open(encoding="utf-8-sig") as stream:
        assert {row["document"] for row in csv.DictReader(stream)} == set(THREADS)
    assert cli.main(["review", "make", output, "--question", "signed", "--labels", "2", *options]) == 0
    frames = (root / "run/review").files()
    shown = [(root / "run").at(path).read_bytes().decode() for path in frames if "/documents/" in path]
    assert len(shown) == 2
    assert any("Ann took her name off page 5 of the lease." in text for text in shown)
