"""The answers of a run, with their evidence, for a spreadsheet program, with nothing that it would run."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from memagent_batch.documents.converted import SOURCE_REVIEW, SOURCE_UNREAD, UNREAD_JOIN
from memagent_batch.domain.readings import Status
from memagent_batch.domain.texts.escapes import is_formula
from memagent_batch.errors import OutputError, require_extra
from memagent_batch.pages.readings import NEEDS, GroupedRows, column_names, need_of, shown_value, table_rows
from memagent_batch.review.sign_offs import SignOff, current_sign_offs, reading_hash, signed_words
from memagent_batch.runs.accepted_unread import accepted_reason
from memagent_batch.runs.evidence import How
from memagent_batch.runs.manifest import Manifest, require_manifest
from memagent_batch.runs.tables import ANSWERS_FOLDER, EVIDENCE_FOLDER, RESULTS_FOLDER, reading_ids
from memagent_batch.store.errors import output_errors
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import Row

MAX_XLSX_ROWS = 1_048_576
"""Rows of a sheet in XLSX, its heading included."""
MAX_XLSX_CHARACTERS = 32_767
"""Of a cell in XLSX, UTF-16 code units."""

WIDTHS = {
    "needs a look": 26,
    "document": 28,
    "question": 34,
    "value": 22,
    "answer": 40,
    "support": 14,
    "confidence": 11,
    "evidence": 70,
    "not read": 40,
    "error": 40,
    "accepted": 30,
    "signed off": 30,
}
"""Columns of the sheet `readings`, with their widths in characters."""
WIDTH = 16
"""Characters of a column of the other sheets."""
EVIDENCE_COLUMN = "evidence"
"""Column behind those of `answers`, of a run with evidence; a carried column of that name stays itself."""


Cell = str | float | bool | None


def export_answers(output: Location, target: Location) -> int:
    """Writes all answers of the last finished run as XLSX, whole or not at all; returns how many there are.

    Sheets: `results` (a row a document, if questions have types), `readings` (what people read, with what needs a look
    first) and `answers` (all columns, and the sentences that they rest on). Text stays text, and can't be a formula.

    Raises:
        OutputError: no run has finished, a table file is gone, or there are more rows than a sheet holds.
        StorageError: the file can't be written.
    """
    with output_errors(output.uri):
        manifest = require_manifest(output)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "answers.xlsx"
        write_spreadsheet(output, manifest, file=file)
        target.write_file(file)
    return manifest["counts"]["answers_rows"]


def write_spreadsheet(output: Location, manifest: Manifest, *, file: Path) -> None:
    """Writes the answers of a run to a local file.

    Raises:
        OutputError: there are more rows than a sheet holds, or a table file is gone.
    """
    num_rows = manifest["counts"]["answers_rows"]
    if num_rows >= MAX_XLSX_ROWS:
        raise OutputError(
            f"--to xlsx: the run has {num_rows:,} answers, and a sheet holds {MAX_XLSX_ROWS - 1:,}; read the Parquet "
            "files of answers/, or export slices"
        )
    names = _column_names(output, manifest)
    with _xlsx_book(file) as book:
        if RESULTS_FOLDER in manifest["files"]:
            book.write(RESULTS_FOLDER, *_results(output, manifest))
        book.write("readings", list(WIDTHS), _by_need(output, manifest), widths=WIDTHS)
        book.write(ANSWERS_FOLDER, names, (_plain_cells(row, names) for row in _exported_rows(output, manifest)))


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


def _results(output: Location, manifest: Manifest) -> tuple[list[str], Iterator[list[Cell]]]:
    files = [output / name for name in manifest["files"][RESULTS_FOLDER]]
    names = column_names(files[0])
    rows = (row for file in files for batch in table_rows(file) for row in batch.to_pylist())
    return names, (_plain_cells(row, names) for row in rows)


def _by_need(output: Location, manifest: Manifest) -> Iterator[list[Cell]]:
    """The rows of the sheet `readings`, the most pressing first: one pass over the table for each need."""
    signed = current_sign_offs(output)
    need_of_row = partial(_need, signed=signed, manifest=manifest)
    needs = sorted({need_of_row(row) for row in _exported_rows(output, manifest)})
    for need in needs:
        for row in _exported_rows(output, manifest):
            if need_of_row(row) == need:
                why = NEEDS[need] if need < len(NEEDS) else None
                by = signed.get(reading_hash(row)) if signed else None
                answer = row["answer"] if row["status"] == Status.OK else None
                source = UNREAD_JOIN.join(filter(None, (row.get(SOURCE_UNREAD), row.get(SOURCE_REVIEW)))) or None
                yield [
                    *(why, row["document_id"], row["question"], shown_value(row), answer, row["support"]),
                    *(row["confidence"], row.get(EVIDENCE_COLUMN), source, row["error_message"]),
                    *(accepted_reason(row, manifest), by and signed_words(by)),
                ]


def _need(row: Row, *, signed: Mapping[str, SignOff], manifest: Manifest) -> int:
    """The place in `NEEDS`; a spreadsheet knows of no run before."""
    is_signed = signed and reading_hash(row) in signed
    is_accepted = accepted_reason(row, manifest) is not None
    return len(NEEDS) if is_signed else need_of(row, is_changed=False, is_accepted=is_accepted)


class XlsxBook:
    """A workbook whose sheets are written one after another, each row as it comes; `constant_memory` of xlsxwriter."""

    def __init__(self, book: Any) -> None:
        self._book = book
        style = {"text_wrap": True, "valign": "top"}
        self._plain = book.add_format(style)
        self._quoted = book.add_format({**style, "quote_prefix": True})  # text that stays text when edited

    def write(
        self,
        name: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[Cell]],
        *,
        widths: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Writes a sheet with a heading that stays in view and a filter for each column."""
        sheet = self._book.add_worksheet(name)
        sheet.freeze_panes(1, 0)
        for place, heading in enumerate(columns):
            sheet.set_column(place, place, widths.get(heading, WIDTH))
        last = 0
        for last, row in enumerate(chain([columns], rows)):
            for column, value in enumerate(row):
                self._write_cell(sheet, (last, column), value)
        sheet.autofilter(0, 0, last, len(columns) - 1)

    def _write_cell(self, sheet: Any, place: tuple[int, int], value: Cell) -> None:
        match value:
            case None:
                return
            case bool():
                sheet.write_boolean(*place, value, self._plain)
            case int() | float():
                sheet.write_number(*place, value, self._plain)
            case str():
                text = _xlsx_text(value)
                if text.startswith("<r>") and text.endswith("</r>"):  # which xlsxwriter takes for XML of its own
                    sheet.write_rich_string(*place, self._plain, text[:1], text[1:], self._plain)
                else:
                    sheet.write_string(*place, text, self._quoted if is_formula(value) else self._plain)


@contextmanager
def _xlsx_book(file: Path) -> Iterator[XlsxBook]:
    require_extra("xlsx", package="xlsxwriter")
    import xlsxwriter

    with xlsxwriter.Workbook(str(file), {"constant_memory": True}) as book:
        book.use_zip64()
        yield XlsxBook(book)


def _xlsx_text(text: str) -> str:
    """The text, or as much of it as a cell holds, with a note of what is missing."""
    encoded = text.encode("utf-16-le")
    if len(encoded) <= 2 * MAX_XLSX_CHARACTERS:
        return text
    note = f" … cut: {len(text):,} characters in all; answers/ has them"
    return encoded[: 2 * (MAX_XLSX_CHARACTERS - len(note))].decode("utf-16-le", errors="ignore") + note


def _plain_cells(row: Row, names: Sequence[str]) -> list[Cell]:
    return [_plain_cell(row.get(name)) for name in names]


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
