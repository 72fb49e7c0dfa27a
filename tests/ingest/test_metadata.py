"""The column `metadata`: families, copies, outputs that were made without it, and nights that change nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from memagent_batch.data.ingest.file_tasks import choose_converters
from memagent_batch.errors import InputError
from memagent_batch.run import sources as module
from tests.convert import files, outlook
from tests.ingest.nights import Row, by_id, changes, content, night, put_jsonl, rows, texts, version

TERMS = b"The terms are these."
NOTE: dict[int, str | bytes] = {0x1A: "IPM.Note", 0xC1A: "Ann", 0x1000: "It is due.", 0x1013: b"<p>It is due.</p>"}

HASH_BEFORE = -1307267880088430592
"""The hash of a row as a version without the column has written it."""


def read(folder: Path, **settings: Any) -> Any:
    return night(folder / "in", folder / "out", format="files", **settings)


def write_files(folder: Path) -> None:
    """A mail with a file and a ZIP, a message of Outlook with one inside it, and a copy of a file of both."""
    (folder / "in").mkdir()
    archive = files.zipped({"terms.txt": TERMS, "inner.zip": files.zipped({"note.txt": b"A note."})})
    mail = files.mail("Terms", "see below", files=[("terms.txt", TERMS), ("all.zip", archive)])
    inner = outlook.message(NOTE, attached=[outlook.attachment("terms.txt", TERMS)], header_bytes=24)
    message = outlook.message(NOTE, attached=[outlook.attachment("inner.msg", inner)])
    (folder / "in/m.eml").write_bytes(mail.as_bytes())
    (folder / "in/o.msg").write_bytes(outlook.compound_file(message))
    (folder / "in/copy.txt").write_bytes(TERMS)


def upgrade(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """From now on all files are read by another version of their converters."""

    def upgraded(*settings: Any) -> Any:
        return {kind: replace(each, version=version) for kind, each in choose_converters(*settings).items()}

    monkeypatch.setattr(module, "choose_converters", upgraded)


def without_metadata(output: Path, *, carried: str | None = None) -> None:
    """Makes `documents` as it was before it had the column; it may carry one of that name."""
    table = pa.table(DeltaTable(output / "documents").to_pyarrow_table()).drop_columns(["metadata"])
    if carried is not None:
        table = table.append_column(carried, pa.array(["mine"] * table.num_rows))
    write_deltalake(output / "documents", table, mode="overwrite", schema_mode="overwrite")


def without_readers(found: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != "reader"} for row in found]


def test_message_with_all_that_is_attached_is_one_family_and_copies_have_one_hash(tmp_path: Path) -> None:
    write_files(tmp_path)
    read(tmp_path)
    found = {name: row["metadata"] for name, row in by_id(tmp_path / "out").items()}
    families = {name: metadata["family_id"] for name, metadata in found.items()}
    assert families == {name: name.partition("/")[0] for name in found}
    assert [name for name in families if families[name] == "m.eml"] == [
        *("m.eml", "m.eml/1-terms.txt", "m.eml/2-all.zip/1-terms.txt", "m.eml/2-all.zip/2-inner.zip/1-note.txt"),
    ]
    copies = {name for name in found if found[name]["content_hash"] == found["copy.txt"]["content_hash"]}
    assert copies == {name for name in found if name.endswith("terms.txt")} | {"copy.txt"}
    assert len(copies) == 4
    assert found["m.eml"]["content_hash"] == by_id(tmp_path / "out")["m.eml"]["source_hash"]


def test_second_night_writes_nothing_even_if_all_files_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    read(tmp_path)
    before = version(tmp_path / "out")
    assert read(tmp_path)["counts"]["sources_read"] == 0
    upgrade(monkeypatch, "99")
    assert read(tmp_path)["counts"]["sources_read"] == 3
    assert version(tmp_path / "out") == before


def test_output_without_the_column_gets_it_with_the_first_file_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    read(tmp_path)
    whole = content(tmp_path / "out")
    without_metadata(tmp_path / "out")
    before = version(tmp_path / "out")
    assert read(tmp_path)["counts"]["sources_read"] == 0
    assert version(tmp_path / "out") == before
    (tmp_path / "in/copy.txt").write_bytes(b"Other terms.")
    assert changes(read(tmp_path)) == (0, 1, 0)
    metadata = {name: row["metadata"] for name, row in by_id(tmp_path / "out").items()}
    assert [name for name in metadata if metadata[name] is not None] == ["copy.txt"]
    assert texts(tmp_path / "out")["m.eml/1-terms.txt"] == TERMS.decode()
    (tmp_path / "in/copy.txt").write_bytes(TERMS)
    table = DeltaTable(tmp_path / "out/documents")
    old = table.to_pyarrow_table()  # a version without it had another hash of its rows
    hashes = pa.array([0] * old.num_rows, pa.int64())
    write_deltalake(table, old.set_column(old.schema.get_field_index("row_hash"), "row_hash", hashes), mode="overwrite")
    upgrade(monkeypatch, "99")
    assert changes(read(tmp_path)) == (0, 1, 0)
    assert without_readers(content(tmp_path / "out")) == without_readers(whole)


def test_rows_of_tables_have_none_and_the_hash_that_they_had_without_the_column(tmp_path: Path) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", [{"document_id": "a", "text": "one"}, {"document_id": "b", "text": "two"}])
    night(tmp_path / "in", tmp_path / "out")
    without_metadata(tmp_path / "out")
    put_jsonl(tmp_path / "in/a.jsonl", [{"document_id": "a", "text": "one"}, {"document_id": "b", "text": "new"}])
    assert changes(night(tmp_path / "in", tmp_path / "out")) == (0, 1, 0)
    found = by_id(tmp_path / "out")
    assert [row["metadata"] for row in found.values()] == [None, None]
    assert found["a"]["row_hash"] == HASH_BEFORE


@pytest.mark.parametrize("name", ["metadata", "Metadata"])
def test_output_that_carries_a_column_of_this_name_is_refused_and_stays_whole(tmp_path: Path, name: str) -> None:
    put_jsonl(tmp_path / "in/a.jsonl", [{"document_id": "a", "text": "one"}])
    night(tmp_path / "in", tmp_path / "out")
    without_metadata(tmp_path / "out", carried=name)
    before = rows(tmp_path / "out")
    put_jsonl(tmp_path / "in/a.jsonl", [{"document_id": "a", "text": "two"}])
    with pytest.raises(InputError, match=f"carries a column '{name}' of its input.*choose an empty output"):
        night(tmp_path / "in", tmp_path / "out")
    assert rows(tmp_path / "out") == before
