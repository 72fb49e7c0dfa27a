"""The index of the table `documents` and its texts, at any version, on a disk and on an S3 API."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents import stored
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError
from memagent_batch.loop.addresses import text_hash
from tests.documents.stored_documents import paged_row, store_documents, stored_row

TEXTS = {"a": "one", "b": "zwei 😀", "c": "three", "d": "trois é", "e": "five"}
SIGNED = pa.field("signed", pa.date32())


def output_at(place: str | Path) -> Location:
    return Location(uri=f"{place}/run")


def index_of(output: Location, *, version: int | None = None, **settings: Any) -> pa.Table:
    return StoredDocuments(output=output, version=version).read_index(InputConfig(**settings)).taken


def stored_texts(output: Location) -> list[dict[str, Any]]:
    return [stored_row(name, text) for name, text in TEXTS.items()]


def test_index_has_ids_hashes_sizes_places_and_typed_carried_columns(tmp_path: Path) -> None:
    output, day = output_at(tmp_path), date(2026, 11, 29)
    rows = [stored_row(name, text, signed=day) for name, text in TEXTS.items()]
    broken = stored_row("f", None, error="no text", error_type="BadFileError", source_read=0.0)
    store_documents(output, rows[:3], [*rows[3:], broken], carried=[SIGNED])
    index = index_of(output, carry_columns="signed")
    assert "text" not in index.schema.names
    assert index.schema.field("carry:signed").type == pa.date32()
    assert index["carry:signed"].to_pylist() == [day] * 5 + [None]
    assert index["document_id"].to_pylist() == [*TEXTS, "f"]
    assert index["document_hash"].to_pylist() == [*map(text_hash, TEXTS.values()), None]
    assert index["num_bytes"].to_pylist() == [*(len(text.encode()) for text in TEXTS.values()), 0]
    assert index["error"].to_pylist() == [None] * 5 + ["no text"]
    assert index["carry:source_read"].to_pylist() == [1.0] * 5 + [0.0]
    places = list(zip(index["row_group"].to_pylist(), index["row"].to_pylist(), strict=True))
    assert places == [(0, 0), (0, 1), (1, 0), (0, 0), (0, 1), (1, 0)]
    assert len(index["file"].unique()) == 2


class FirstTableWrittenError(Exception):
    """Ends the reading of an index after its first table."""


@pytest.mark.parametrize("small_rows", [1, 100])
def test_index_of_a_large_file_is_held_a_row_group_at_a_time(
    small_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_documents(output_at(tmp_path), stored_texts(output_at(tmp_path)), group_rows=1)
    num_read, read_groups = 0, stored._read_groups

    def counted(*file: Any, **columns: Any) -> Iterator[pa.Table]:
        nonlocal num_read
        for rows in read_groups(*file, **columns):
            num_read += 1
            yield rows

    def write_first(batches: Iterator[pa.Table], **_: Any) -> pa.Table:
        next(batches)
        raise FirstTableWrittenError

    monkeypatch.setattr(stored, "_read_groups", counted)
    monkeypatch.setattr(stored, "on_disk", write_first)
    monkeypatch.setattr(stored, "SMALL_ROWS", small_rows)
    monkeypatch.setattr(Location, "is_local", small_rows > 1)
    with pytest.raises(FirstTableWrittenError):
        index_of(output_at(tmp_path))
    assert num_read == 1


def test_index_of_a_file_without_a_carried_column_has_nulls_for_it(tmp_path: Path) -> None:
    output = output_at(tmp_path)
    store_documents(output, [stored_row("a", "one")])
    from deltalake import DeltaTable, Schema

    table = DeltaTable(f"{output.path}/documents")
    table.alter.add_columns(list(Schema.from_arrow(pa.schema([SIGNED])).fields))
    assert index_of(output, carry_columns="signed")["carry:signed"].to_pylist() == [None]


def loss(kind: str, severity: str, place: str | None, detail: str) -> dict[str, str | None]:
    return {"kind": kind, "severity": severity, "place": place, "detail": detail}


def test_index_says_what_of_a_source_was_not_read_each_reason_once(tmp_path: Path) -> None:
    losses = [
        *(loss("needs_ocr", "unread", f"page {number}", "no text layer") for number in range(1, 8)),
        loss("needs_review", "uncertain", "page 9", "OCR was unsure"),
        loss("note", "format", None, "columns were joined"),
    ]
    output = output_at(tmp_path)
    store_documents(output, [stored_row("a", "one", losses=losses, source_read=0.5), stored_row("b", "two")])
    index = index_of(output)
    names = ("source_unread", "source_review", "source_notes")
    first, second = (
        [row[f"carry:{name}"] for name in names]
        for row in index.select([f"carry:{name}" for name in names]).to_pylist()
    )
    doubt = "needs_review: OCR was unsure (page 9)"
    unread = f"needs_ocr: no text layer (page 1, page 2, page 3, page 4, page 5 and 2 more); {doubt}"
    assert first == [unread, doubt, "columns were joined"]
    assert second == [None, None, None]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0], [3], []])
def test_texts_come_once_each_whatever_the_order_of_their_places(order: list[int], tmp_path: Path) -> None:
    output = output_at(tmp_path)
    rows = stored_texts(output)
    store_documents(output, rows[:3], rows[3:])
    places = index_of(output).take(pa.array(order, pa.int64()))
    found = {
        places["document_id"][stored.row].as_py(): stored.text
        for stored in StoredDocuments(output=output).read_texts(places)
    }
    assert found == {name: text for number, (name, text) in enumerate(TEXTS.items()) if number in order}


def test_texts_have_their_parts_with_locators(tmp_path: Path) -> None:
    output = output_at(tmp_path)
    store_documents(output, [paged_row("a", {"page 1": "It rained 😀.", "page 2": "Ann signed."})])
    for with_text in (True, False):
        (stored,) = StoredDocuments(output=output).read_texts(index_of(output), with_text=with_text)
        assert [(part.char_start, part.char_end, part.locator) for part in stored.parts] == [
            (0, 12, "page 1"),
            (14, 25, "page 2"),
        ]
        assert stored.text == ("It rained 😀.\n\nAnn signed." if with_text else "")


def test_texts_of_an_earlier_version_stay_when_the_table_changes(tmp_path: Path) -> None:
    output = output_at(tmp_path)
    first = store_documents(output, [stored_row("a", "old"), stored_row("b", "same")])
    store_documents(output, [stored_row("a", "new"), stored_row("b", "same")], number=2)
    hashes = {"a": text_hash("old"), "b": text_hash("same"), "c": text_hash("none")}
    for version, expected in ((first, ["old", "same"]), (None, ["same"])):
        places = StoredDocuments(output=output, version=version).find_places(hashes)
        assert [stored.text for stored in StoredDocuments(output=output).read_texts(places)] == expected
    assert [stored.text for stored in StoredDocuments(output=output).read_texts(index_of(output, version=first))] == [
        "old",
        "same",
    ]


def test_texts_of_a_version_whose_files_are_gone_are_refused_with_the_remedy(tmp_path: Path) -> None:
    output = output_at(tmp_path)
    store_documents(output, [stored_row("a", "old")])
    places = index_of(output)
    (tmp_path / "run/documents" / places["file"][0].as_py()).unlink()
    with pytest.raises(OutputError, match="repeat the command"):
        list(StoredDocuments(output=output).read_texts(places))


def test_long_texts_are_held_some_at_a_time(tmp_path: Path) -> None:
    output, text = output_at(tmp_path), "lorem ipsum " * 200_000
    rows = [stored_row(str(number), f"{number} {text}") for number in range(24)]
    store_documents(output, rows, group_rows=1)
    places, before = index_of(output), pa.total_allocated_bytes()
    most = 0
    for read in StoredDocuments(output=output).read_texts(places):
        most = max(most, pa.total_allocated_bytes() - before)
        assert read.text.startswith(f"{read.row} ")
    assert most < 8 * len(text) < sum(places["num_bytes"].to_pylist()) / 2
