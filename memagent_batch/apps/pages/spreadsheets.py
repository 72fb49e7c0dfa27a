"""The answers of a run, with their evidence, for a spreadsheet program, with nothing that it would run.

What people have signed counts: a correction stands in place of the answer, and a rejected answer is not shown as one.
"""

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from memagent_batch.apps.pages.document_page import place_of
from memagent_batch.apps.pages.readings import (
    ANSWERED,
    NEEDS,
    NO_UNIT,
    RunReading,
    need_of,
    outcome_of,
    part_shown,
    rows_by_stem,
    shown_value,
    stream_readings,
)
from memagent_batch.apps.review.sheet import quoted
from memagent_batch.apps.review.sign_offs import Decision, SignOffs, signed_words
from memagent_batch.data.documents.document_index import SOURCE_UNREAD, UNREAD_JOIN
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.errors import OutputError, require_extra
from memagent_batch.loop.follow_ups.answer_types import AnswerType
from memagent_batch.loop.follow_ups.values import NUMBER_FORM
from memagent_batch.loop.texts.escapes import is_formula
from memagent_batch.run.accepted_unread import accepted_reason
from memagent_batch.run.evidence import How
from memagent_batch.run.history import PastRun, find_run
from memagent_batch.run.manifest import Manifest
from memagent_batch.run.tables import ANSWERS_TABLE, EVIDENCE_TABLE, RESULTS_TABLE
from memagent_batch.types import Status

MAX_XLSX_ROWS = 1_048_576
"""Rows of a sheet in XLSX, its heading included."""
MAX_XLSX_CHARACTERS = 32_767
"""Of a cell in XLSX, UTF-16 code units."""

WIDTHS = {
    "needs a look": 26,
    "document": 28,
    "question": 34,
    "value": 22,
    "unit": 10,
    "state": 12,
    "answer": 40,
    "support": 14,
    "confidence": 11,
    "sentence": 70,
    "place": 24,
    "not read": 40,
    "error": 40,
    "signed off": 30,
}
"""Columns of the sheet `readings` and of a CSV file, with their widths in characters."""
WIDTH = 16
"""Characters of a column of the other sheets."""
EVIDENCE_COLUMN = "evidence"
"""Column behind those of `answers`, of a run with evidence; a carried column of that name stays itself."""
DECIDED = {Decision.CORRECT: "corrected", Decision.REJECT: "rejected"}
"""State of a reading whose answer a person has not accepted."""
NOT_ASKED, DIFFERENT = "not asked", "samples differ"
"""What a cell of `results` says if the document was not asked, and if most samples have no one outcome."""


Cell = str | float | bool | None


def export_answers(output: Location, target: Location, *, to: str) -> int:
    """Writes all answers of the last finished run as `xlsx` or `csv`, whole or not at all; returns how many there are.

    Sheets: `results` (a row a document, if questions have types), `readings` (what people read, with what needs a look
    first) and `answers` (all columns, and the sentences that they rest on); a CSV file has the rows of `readings`. Text
    stays text, and can't be a formula.

    Raises:
        OutputError: no run has finished, a table file is gone, or there are more rows than a sheet holds.
        StorageError: the file can't be written.
    """
    with output_errors(output.uri):
        run = find_run(output)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "answers"
        write = write_readings if to == "csv" else write_spreadsheet
        write(run, file=file)
        target.write_file(file)
    return run.manifest["counts"]["answers_rows"]


def write_readings(run: PastRun, *, file: Path) -> None:
    """Writes the readings of a run to a local CSV file, with a byte order mark, which Excel needs.

    Raises:
        OutputError: a table file is gone.
    """
    with file.open("w", encoding="utf-8-sig", errors="backslashreplace", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(WIDTHS)
        for row in _by_need(run, signed=SignOffs(run.output)):
            numbers = ("" if cell is None else str(cell).removesuffix(".0") for cell in row)
            cells = zip(row, numbers, strict=True)
            writer.writerow([quoted(cell) if isinstance(cell, str) else number for cell, number in cells])


def write_spreadsheet(run: PastRun, *, file: Path) -> None:
    """Writes the answers of a run to a local file.

    Raises:
        OutputError: there are more rows than a sheet holds, or a table file is gone.
    """
    require_extra("xlsx", package="xlsxwriter")
    import xlsxwriter

    num_rows = run.manifest["counts"]["answers_rows"]
    if num_rows >= MAX_XLSX_ROWS:
        raise OutputError(
            f"--to xlsx: the run has {num_rows:,} answers, and a sheet holds {MAX_XLSX_ROWS - 1:,}; read the Parquet "
            "files of answers/, or export slices"
        )
    signed = SignOffs(run.output)
    with xlsxwriter.Workbook(str(file), {"constant_memory": True}) as workbook:
        workbook.use_zip64()
        book = XlsxBook(workbook)
        if RESULTS_TABLE in run.manifest["table_versions"]:
            question_ids = set(run.questions["question_id"].to_pylist())
            schema = [each for each in run.dataset(RESULTS_TABLE).schema if each.name in {"document_id", *question_ids}]
            units = [(each.metadata or {}).get(b"unit", b"").decode() for each in schema]
            headings = [
                f"{each.name} ({unit})" if unit not in {"", NO_UNIT} else each.name
                for each, unit in zip(schema, units, strict=True)
            ]
            book.write(RESULTS_TABLE, headings, _results(run, schema, signed=signed))
        book.write("readings", list(WIDTHS), _by_need(run, signed=signed), widths=WIDTHS)
        names = list(run.dataset(ANSWERS_TABLE).schema.names)
        if EVIDENCE_TABLE in run.manifest["table_versions"]:
            names.append(EVIDENCE_COLUMN)
        book.write(ANSWERS_TABLE, names, _all_columns(run, names))


def _results(run: PastRun, schema: Sequence[pa.Field], *, signed: SignOffs) -> Iterator[list[Cell]]:
    """The rows of the sheet `results`. No cell is empty: one without a value says why."""
    document, *questions = schema
    answers, results = rows_by_stem(run, ANSWERS_TABLE), rows_by_stem(run, RESULTS_TABLE)
    for stem in sorted(results):
        words = _words_of_part(chain.from_iterable(answers.get(stem, ())), signed=signed)
        for row in chain.from_iterable(results[stem]):
            of_row = [words.get((row[document.name], each.name), (NOT_ASKED, None)) for each in questions]
            cells = zip(questions, of_row, strict=True)
            yield [row[document.name], *(_result_cell(row[each.name], each, *said) for each, said in cells)]


def _words_of_part(rows: Iterable[Row], *, signed: SignOffs) -> dict[tuple[str, str], tuple[str, str | None]]:
    """By document and question why there may be no value, and what people have decided in its place, if anything."""
    words = {}
    for key, of_question in groupby(rows, key=lambda row: (row["document_id"], row["question_id"])):
        samples = [*of_question]
        decided = [*map(signed.of, samples)]
        correction = next((by["correction"] for by in decided if by and by["correction"]), None)
        is_rejected = all(by and by["decision"] == Decision.REJECT for by in decided)
        ((outcome, number),) = Counter(map(outcome_of, samples)).most_common(1)
        why = outcome if outcome != ANSWERED and 2 * number > len(samples) else DIFFERENT
        words[key] = (why, correction or (DECIDED[Decision.REJECT] if is_rejected else None))
    return words


def _result_cell(value: object, column: pa.Field, why: str, decided: str | None) -> Cell:
    if decided is None:
        return why if value is None else _plain_cell(value)
    if pa.types.is_boolean(column.type):
        return {"yes": True, "no": False}.get(decided.casefold(), decided)
    return _number_or_text(decided) if pa.types.is_floating(column.type) else decided


def _number_or_text(text: str) -> float | str:
    return float(text) if re.fullmatch(NUMBER_FORM, text) else text


def _all_columns(run: PastRun, names: Sequence[str]) -> Iterator[list[Cell]]:
    """The rows of the sheet `answers`; a carried column may have the name of the one with the sentences."""
    for reading in stream_readings(run, with_turns=False):
        chosen = _chosen_sentences(reading.evidence)
        sentences = "\n".join(f"{text} [{place}]" for text, place in chosen) or None
        cells = {EVIDENCE_COLUMN: sentences, **reading.answer}
        yield [_plain_cell(cells.get(name)) for name in names]


def _chosen_sentences(evidence: Sequence[Row]) -> list[tuple[str, str]]:
    """The sentences that the model pointed at with their places, the best first."""
    chosen = sorted((row for row in evidence if row["how"] == How.CHOSEN), key=lambda row: row["rank"])
    missing = "(the text could not be fetched)"
    return [(missing if row["text"] is None else " ".join(row["text"].split()), place_of(row)) for row in chosen]


def _by_need(run: PastRun, *, signed: SignOffs) -> Iterator[list[Cell]]:
    """The rows of the sheet `readings`, the most pressing first: one pass over the table for each need."""

    def need(reading: RunReading) -> int:
        """The place in `NEEDS`; a spreadsheet knows of no run before."""
        row = reading.answer
        if signed.of(row):
            return len(NEEDS)
        is_accepted, was_signed = accepted_reason(row, run.manifest) is not None, signed.before(row) is not None
        return need_of(row, reading.evidence, is_changed=False, is_accepted=is_accepted, was_signed=was_signed)

    for place in sorted({need(reading) for reading in stream_readings(run, with_turns=False)}):
        why = NEEDS[place] if place < len(NEEDS) else None
        for reading in stream_readings(run, with_turns=False):
            if need(reading) == place:
                yield [why, *_reading_cells(reading, run.manifest, signed=signed)]


def _reading_cells(reading: RunReading, manifest: Manifest, *, signed: SignOffs) -> list[Cell]:
    """The cells of a reading behind its need, as `WIDTHS` names them."""
    row, by, before = reading.answer, signed.of(reading.answer), signed.before(reading.answer)
    outcome, state, correction = outcome_of(row), by and DECIDED.get(Decision(by["decision"])), by and by["correction"]
    is_number = row["answer_type"] == AnswerType.NUMBER
    if state:
        value: Cell = _number_or_text(correction) if is_number and correction else correction
    else:
        is_stated = is_number and outcome == ANSWERED
        value = row["value_number"] if is_stated else shown_value({**row, "value_unit": None})
    has_unit = isinstance(value, float) and row["value_unit"] != NO_UNIT
    chosen, accepted = _chosen_sentences(reading.evidence), accepted_reason(row, manifest)
    unread = (part_shown(row), row.get(SOURCE_UNREAD), accepted and f"accepted: {accepted}")
    said = signed_words(by, row) if by else before and f"open again; before: {signed_words(before, row)}"
    return [
        *(row["document_id"], row["question"], value, row["value_unit"] if has_unit else None, state or outcome),
        *(row["answer"] if row["status"] == Status.OK else None, row["support"], row["confidence"]),
        *("\n".join(texts) or None for texts in (zip(*chosen, strict=True) if chosen else ((), ()))),
        *(UNREAD_JOIN.join(filter(None, unread)) or None, row["error_message"] or row.get("follow_up_error"), said),
    ]


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


def _xlsx_text(text: str) -> str:
    """The text, or as much of it as a cell holds, with a note of what is missing."""
    encoded = text.encode("utf-16-le")
    if len(encoded) <= 2 * MAX_XLSX_CHARACTERS:
        return text
    note = f" … cut: {len(text):,} characters in all; answers/ has them"
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
