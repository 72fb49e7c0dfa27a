"""The table `answers`, with its evidence, for a spreadsheet program: CSV or XLSX, with nothing that it would run."""

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memagent_batch.domain.texts.escapes import is_formula
from memagent_batch.errors import OutputError, require_extra
from memagent_batch.pages.readings import GroupedRows, column_names, table_rows
from memagent_batch.runs.evidence import How
from memagent_batch.runs.manifest import Manifest, require_manifest
from memagent_batch.runs.tables import ANSWERS_FOLDER, EVIDENCE_FOLDER, reading_ids
from memagent_batch.store.errors import output_errors
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import Row

MAX_XLSX_ROWS = 1_048_576
"""Rows of a sheet in XLSX, its heading included."""
MAX_XLSX_CHARACTERS = 32_767
"""Of a cell in XLSX, UTF-16 code units."""

EVIDENCE_COLUMN = "evidence"
"""Column behind those of `answers`, of a run with evidence; a carried column of that name stays itself."""


class SpreadsheetFormat(StrEnum):
    """What can be written."""

    CSV = "csv"
    """UTF-8 with a byte order mark, by which programs know it; a cell that would be a formula begins with `'`."""
    XLSX = "xlsx"
    """One sheet; text stays text, and can't be a formula."""


@dataclass(slots=True, kw_only=True)
class WrittenCells:
    """What became of the cells: the one value here that changes."""

    num_rows: int = 0
    """Rows, without the heading."""
    num_quoted: int = 0
    """Cells that would be formulas."""
    num_cut: int = 0
    """Cells that were cut, each with a note of it; XLSX alone."""


Cell = str | float | bool | None
Writer = Callable[[Sequence[Cell]], object]


def export_answers(output: Location, target: Location, *, to: SpreadsheetFormat) -> WrittenCells:
    """Writes the answers of the last finished run, whole or not at all; returns what became of the cells.

    Raises:
        OutputError: no run has finished, a table file is gone, or there are too many rows for the format.
        StorageError: the file can't be written.
    """
    with output_errors(output.uri):
        manifest = require_manifest(output)
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"answers.{to.value}"
        cells = write_spreadsheet(output, manifest, to=to, file=file)
        target.write_file(file)
    return cells


def write_spreadsheet(output: Location, manifest: Manifest, *, to: SpreadsheetFormat, file: Path) -> WrittenCells:
    """Writes all rows of `answers`, with all columns and the sentences that they rest on, to a local file.

    Raises:
        OutputError: there are more rows than XLSX holds, or a table file is gone.
    """
    num_rows = manifest["counts"]["answers_rows"]
    if to is SpreadsheetFormat.XLSX and num_rows >= MAX_XLSX_ROWS:
        raise OutputError(
            f"--to xlsx: the run has {num_rows:,} answers, and a sheet of XLSX holds {MAX_XLSX_ROWS - 1:,}; "
            "pass --to csv, or read the Parquet files"
        )
    cells = WrittenCells()
    names = _column_names(output, manifest)
    with _WRITERS[to](file, cells) as write:
        write(names)
        for row in _exported_rows(output, manifest):
            write([_plain_cell(row.get(name)) for name in names])
            cells.num_rows += 1
    return cells


def _column_names(output: Location, manifest: Manifest) -> list[str]:
    """The columns of all files, which are the same in each."""
    names = [name for file in manifest["files"][ANSWERS_FOLDER][:1] for name in column_names(output / file)]
    return [*names, EVIDENCE_COLUMN] if EVIDENCE_FOLDER in manifest["files"] else names


def _exported_rows(output: Location, manifest: Manifest) -> Iterator[Row]:
    """The rows of `answers`; of a run with evidence, with what they rest on."""
    evidence_files = {part["answers_file"]: part["evidence_file"] for part in manifest["parts"]}
    for name in manifest["files"][ANSWERS_FOLDER]:
        file = evidence_files.get(name)
        evidence = GroupedRows(output / file) if file else None
        for batch in table_rows(output / name):
            for row in batch.to_pylist():
                yield (
                    row
                    if evidence is None
                    else {EVIDENCE_COLUMN: _chosen_sentences(evidence.take(reading_ids(row))), **row}
                )


def _chosen_sentences(rows: Sequence[Row]) -> str | None:
    """The sentences that the model pointed at, a line each, with their places."""
    chosen = sorted((row for row in rows if row["how"] == How.CHOSEN), key=lambda row: row["rank"])
    return "\n".join(map(_sentence, chosen)) or None


def _sentence(row: Row) -> str:
    text = "(the text could not be fetched)" if row["text"] is None else " ".join(row["text"].split())
    place = row["locator"] or f"characters {row['char_start']:,} to {row['char_end']:,}"
    return f"{text} [{place}]"


@contextmanager
def _csv_writer(file: Path, cells: WrittenCells) -> Iterator[Writer]:
    with file.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.writer(stream)
        yield lambda row: writer.writerow([_csv_cell(value, cells) for value in row])


def _csv_cell(value: Cell, cells: WrittenCells) -> Cell:
    match value:
        case bool():
            return str(value).lower()
        case str() if is_formula(value):
            cells.num_quoted += 1
            return f"'{value}"
        case _:
            return value


@contextmanager
def _xlsx_writer(file: Path, cells: WrittenCells) -> Iterator[Writer]:
    """Rows go to a file as they come; `constant_memory` of xlsxwriter."""
    require_extra("xlsx", package="xlsxwriter")
    import xlsxwriter

    with xlsxwriter.Workbook(str(file), {"constant_memory": True}) as book:
        book.use_zip64()
        sheet = book.add_worksheet("answers")
        sheet.freeze_panes(1, 0)
        plain, quoted = book.add_format(), book.add_format({"quote_prefix": True})  # text that stays text when edited
        rows = count()
        yield lambda row: _write_xlsx_row(sheet, next(rows), row, plain=plain, quoted=quoted, cells=cells)


def _write_xlsx_row(
    sheet: Any, number: int, row: Sequence[Cell], *, plain: Any, quoted: Any, cells: WrittenCells
) -> None:
    for column, value in enumerate(row):
        match value:
            case None:
                continue
            case bool():
                sheet.write_boolean(number, column, value)
            case int() | float():
                sheet.write_number(number, column, value)
            case str():
                text = _xlsx_text(value, cells)
                cells.num_quoted += is_formula(value)
                if text.startswith("<r>") and text.endswith("</r>"):  # which xlsxwriter takes for XML of its own
                    sheet.write_rich_string(number, column, plain, text[:1], text[1:])
                else:
                    sheet.write_string(number, column, text, quoted if is_formula(value) else None)


def _xlsx_text(text: str, cells: WrittenCells) -> str:
    """The text, or as much of it as a cell holds, with a note of what is missing."""
    encoded = text.encode("utf-16-le")
    if len(encoded) <= 2 * MAX_XLSX_CHARACTERS:
        return text
    cells.num_cut += 1
    note = f" … cut: {len(text):,} characters in all; --to csv has them"
    return encoded[: 2 * (MAX_XLSX_CHARACTERS - len(note))].decode("utf-16-le", errors="ignore") + note


def _plain_cell(value: object) -> Cell:
    """A value as a cell: times in ISO 8601, lists and objects as JSON; numbers that are none as text."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case date():
            return value.isoformat()
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


_WRITERS = {SpreadsheetFormat.CSV: _csv_writer, SpreadsheetFormat.XLSX: _xlsx_writer}
