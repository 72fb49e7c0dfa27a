"""One corpus in five forms, without a model: the same answers, and the version of each table is told."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memagent_batch.config.job import JobConfig
from memagent_batch.data.documents import listing
from memagent_batch.data.documents.data_files import DataFile, read_records
from memagent_batch.data.ingest import row_tasks
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.state import read_state
from tests.documents.lake.forms import TEXTS, write_delta, write_pages
from tests.jobs import put_texts, small_job
from tests.tables import table_rows


def _job(documents: str, output: Path, model: str, **settings: Any) -> JobConfig:
    return small_job(output, model, documents=documents, ask="Who ran?", output=str(output), **settings)


def test_answer_table_whose_files_are_known_is_not_indexed_again(tmp_path: Path, text_model: str) -> None:
    uri = write_delta(tmp_path)
    output = tmp_path / "out"
    answer(_job(f"{uri}@0", output, text_model))
    first = answer(_job(uri, output, text_model))
    assert first["changes"]["tables"] == {uri: {"before": "0", "now": "2"}}
    assert first["changes"]["documents"] == {"added": 0, "changed": 1, "removed": 1, "unchanged": 3}
    damage_later_days(tmp_path / "in")
    second = answer(_job(uri, output, text_model))
    assert second["changes"]["documents"] == {"added": 0, "changed": 0, "removed": 0, "unchanged": 4}
    assert second["changes"]["readings"]["kept"] == 4
    assert read_state(Location(uri=str(output)))["tables"] == {uri: "2"}
    with pytest.raises(InputError):
        answer(_job(uri, output, text_model, input={"where": "document_id != 'a'"}))


def test_answer_files_that_have_not_changed_are_not_opened(
    tmp_path: Path, text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "UNSURE_SECONDS", 0)
    put_texts(tmp_path / "in", {f"{name}.txt": f"{name} ran." for name in "abc"})
    job = _job(str(tmp_path / "in"), tmp_path / "out", text_model)
    answer(job)
    opened = noted_reads(monkeypatch)
    assert answer(job)["changes"]["documents"] == {"added": 0, "changed": 0, "removed": 0, "unchanged": 3}
    assert opened == []
    (tmp_path / "in/a.txt").unlink()
    (tmp_path / "in/b.txt").write_text("B ran.")
    assert answer(job)["changes"]["documents"] == {"added": 0, "changed": 1, "removed": 1, "unchanged": 1}
    assert set(opened) == {"b.txt"}


def test_answer_other_columns_are_carried_the_next_night(
    tmp_path: Path, text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "UNSURE_SECONDS", 0)
    (tmp_path / "in.jsonl").write_text(json.dumps({"document_id": "a", "text": "a ran.", "origin": "o", "day": "d"}))
    for carried in (("origin",), ("origin", "day"), ()):
        settings = {"input": {"carry_columns": carried}}
        manifest = answer(_job(str(tmp_path / "in.jsonl"), tmp_path / "out", text_model, **settings))
        (row,) = table_rows(str(tmp_path / "out"), "answers")
        assert {name: row.get(name) for name in ("origin", "day")} == {
            name: name[0] if name in carried else None for name in ("origin", "day")
        }
    assert manifest["changes"]["readings"] == {"read": 0, "kept": 1, "unreadable": 0, "not_read": 0}


def damage_later_days(folder: Path) -> None:
    """Of the first day's file a row is read to check columns."""
    _, *days = sorted(folder.glob("day=*"))
    for file in (file for day in days for file in day.glob("*.parquet")):
        file.write_bytes(b"damaged")


def noted_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are opened from here on."""
    opened: list[str] = []

    def noting(file: DataFile, **options: Any) -> Any:
        opened.append(Path(file.location.path).name)
        return read_records(file, **options)

    monkeypatch.setattr(row_tasks, "read_records", noting)
    return opened


def test_answer_page_that_is_gone_is_a_change_of_its_document_alone(
    tmp_path: Path, text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_tasks, "MIN_TASK_FILES", 1)  # two tasks read the rows
    monkeypatch.setattr(row_tasks, "MAX_TASK_FILES", 1)
    uri, output = write_pages(tmp_path), tmp_path / "out"
    settings = {"input": {"order_columns": "page", "locator": "page {page}"}}
    answer(_job(uri, output, text_model, **settings))
    pages = pq.read_table(f"{uri}/one.parquet")
    gone = pages.to_pylist()[0]["document_id"]
    pq.write_table(pages.slice(1), f"{uri}/one.parquet", row_group_size=3)
    changes = answer(_job(uri, output, text_model, **settings))["changes"]
    assert changes["documents"] == {"added": 0, "changed": 1, "removed": 0, "unchanged": 3}
    assert (changes["readings"]["read"], changes["readings"]["kept"]) == (1, 3)
    assert len(TEXTS[gone].split("\n\n")) > 1


def _write_rows(folder: Path, files: dict[str, str]) -> None:
    """Files of pages: `a1 b2` is page 1 of document a and page 2 of b, `a1!` the same with another text."""
    for file in folder.glob("*.jsonl"):
        if file.stem not in files:
            file.unlink()
    for name, rows in files.items():
        pages = [{"document_id": row[0], "page": int(row[1]), "text": f"page {row}"} for row in rows.split()]
        text = "\n".join(map(json.dumps, pages))
        if not (folder / f"{name}.jsonl").exists() or (folder / f"{name}.jsonl").read_text() != text:
            (folder / f"{name}.jsonl").write_text(text)


def _hashes(output: Path) -> dict[str, str]:
    return {row["document_id"]: row["document_hash"] for row in table_rows(str(output), "answers")}


def test_night_regroups_documents_with_a_changed_part_and_opens_no_other_file(
    tmp_path: Path, text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "UNSURE_SECONDS", 0)
    opened = noted_reads(monkeypatch)
    folder = tmp_path / "in"
    folder.mkdir()
    settings: dict[str, Any] = {"input": {"order_columns": "page", "locator": "page {page}"}}
    first = {"one": "a1 b1", "two": "a2 c1", "three": "d1", "four": "e1"}
    nights: list[tuple[dict[str, str], set[str]]] = [
        (first, {*first}),
        (first | {"one": "a1! b1"}, {"one"}),
        (first | {"one": "a1! b1", "five": "d2 f1"}, {"five"}),
        (first | {"one": "a1! b1", "five": "d2 f1 c2"}, {"five"}),
        ({"one": "a1! b1", "three": "d1", "four": "e1", "five": "d2 f1 c2"}, set()),
        ({"one": "a1! b1", "three": "d1", "four": "e1", "five": "d2 f1 c2", "six": "g1"}, {"six"}),
    ]
    for number, (files, wanted) in enumerate(nights):
        _write_rows(folder, files)
        opened.clear()
        answer(_job(str(folder), tmp_path / "out", text_model, **settings))
        assert {Path(name).stem for name in opened} == wanted, f"night {number}"
        answer(_job(str(folder), tmp_path / f"fresh-{number}", text_model, **settings))
        assert _hashes(tmp_path / "out") == _hashes(tmp_path / f"fresh-{number}"), f"night {number}"
