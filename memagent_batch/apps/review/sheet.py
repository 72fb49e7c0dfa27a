"""`labels.csv` out and in, and what any sheet needs: a cell that a spreadsheet would run as a formula is quoted."""

import csv
import io
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from memagent_batch.apps.review.labels import LABEL_VALUES, NO, YES, LabelRow
from memagent_batch.apps.review.population import SampleRow
from memagent_batch.apps.review.record import Review
from memagent_batch.data.documents.document_index import SOURCE_UNREAD
from memagent_batch.errors import InputError
from memagent_batch.loop.texts.escapes import FORMULA_SIGNS, is_formula

SHEET_COLUMNS = (
    *("document_id", "label", "comment", "question", "decision", "reviewer", "labelled_at", "blind"),
    *("source", SOURCE_UNREAD, "review_id", "document_hash", "question_hash"),
)
"""What a person fills in stands in front, next to the document's id."""
REQUIRED_CELLS = ("label", "review_id", "document_hash", "question_hash")
TRUTHS = {"": True, "true": True, "false": False, "1": True, "0": False}
"""How `blind` may be written. A sheet shows no answer, so that an empty cell is blind."""
_SEPARATOR = re.compile(r"[;\t\r\n]")
"""What a spreadsheet may begin a new cell at, though it stands within one."""
_BLANKS = re.compile(r"[\s\ufeff\"';]+")
"""What a cell may begin with before its first sign, and separators."""


def sheet_bytes(units: Sequence[SampleRow], *, review: Review) -> bytes:
    """A sheet with a row for each of the readings, without labels; with a byte order mark, which Excel needs."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink)
    writer.writerow(SHEET_COLUMNS)
    for each in units:
        cells = {
            "document_id": each["document_id"],
            "question": each["question"],
            "decision": review.instruction,
            "source": each["source"] or "",
            SOURCE_UNREAD: each["source_unread"] or "",
            "review_id": review.record["review_id"],
            "document_hash": each["document_hash"],
            "question_hash": each["question_hash"],
        }
        writer.writerow([quoted(cells.get(name, "")) for name in SHEET_COLUMNS])
    return sink.getvalue().encode("utf-8-sig", errors="backslashreplace")


def parse_sheet(data: bytes, *, name: str, reviews: Mapping[str, Review], reviewer: str | None) -> list[LabelRow]:
    """The labels of a sheet, as rows of `LABELS` without `imported_at`; rows without a label are left out.

    `reviewer` labelled where a row does not say who did.

    Raises:
        InputError: a row can't be taken; names the line and what to do. None is taken then.
    """
    units = {
        (name, each["document_hash"], each["question_hash"]): each["document_id"]
        for name, review in reviews.items()
        for each in review.sample
    }
    rows = []
    for where, values in filled_rows(data, name=name, required=REQUIRED_CELLS, kept="labels.csv"):
        if not values["label"]:
            continue
        review_id, key = values["review_id"], (values["review_id"], values["document_hash"], values["question_hash"])
        if review_id not in reviews:
            names = ", ".join(reviews) or "none"
            raise InputError(f"{where}: review_id {review_id!r} is not a review of this output; it has {names}")
        if key not in units:
            raise InputError(
                f"{where}: document {values.get('document_id')!r} with this question is not in the sample of review "
                f"{review_id}; keep the columns document_hash and question_hash as they were written"
            )
        values["reviewer"] = values.get("reviewer") or reviewer or ""
        rows.append(_label_row(values, where=where, review=reviews[review_id]) | {"document_id": units[key]})
    return rows


def without_documents(data: bytes, document_ids: Collection[str], *, name: str) -> bytes:
    """Returns a sheet without the rows of these documents; as it is if it has none of them.

    Raises:
        InputError: it can't be read.
    """
    rows = [values for _, values in filled_rows(data, name=name, required=["document_id"], kept="labels.csv")]
    left = [values for values in rows if values["document_id"] not in document_ids]
    if len(left) == len(rows):
        return data
    sink = io.StringIO(newline="")
    writer = csv.writer(sink)
    writer.writerow(rows[0])
    writer.writerows([quoted(cell) for cell in values.values()] for values in left)
    return sink.getvalue().encode("utf-8-sig", errors="backslashreplace")


def _label_row(values: Mapping[str, str], *, where: str, review: Review) -> LabelRow:
    label, is_blind = values["label"].casefold(), TRUTHS.get(values.get("blind", "").lower())
    if not values["reviewer"]:
        raise InputError(f"{where}: nobody is named as reviewer; fill in the column, or pass --reviewer NAME")
    if label not in LABEL_VALUES:
        allowed = ", ".join(LABEL_VALUES)
        raise InputError(f"{where}: {values['label']!r} is not a label of this review; write one of {allowed}")
    if is_blind is None:
        raise InputError(f"{where}: blind says {values['blind']!r}; write true or false, or leave it empty")
    return {
        "document_hash": values["document_hash"],
        "question_hash": values["question_hash"],
        "value": label,
        "reviewer": values["reviewer"],
        "labelled_at": sheet_time(values.get("labelled_at", ""), where=f"{where}: labelled_at"),
        "blind": is_blind,
        "purpose": review.purpose.value,
        "comment": values.get("comment") or None,
        "decision": review.decision,
        "choices": [YES, NO],
        "review_id": review.record["review_id"],
        "question_id": review.record["question_id"],
    }


def filled_rows(data: bytes, *, name: str, required: Sequence[str], kept: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the rows of a CSV file that a spreadsheet has saved, each with its line and by column.

    Args:
        data: The file.
        name: What errors call it.
        required: Columns that it must have.
        kept: The file that was written to be filled in.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8; save it as CSV UTF-8") from error
    csv.field_size_limit(sys.maxsize)  # a comment may have any length
    first, _, rest = text.partition("\n")
    text, num_before = (rest, 1) if re.fullmatch(r"sep=.\r?", first) else (text, 0)  # the separator, for Excel
    head = text.split("\n", 1)[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count))
    missing = [column for column in required if column not in (reader.fieldnames or [])]
    if missing:
        raise InputError(f"{name} has no column {missing[0]!r}; keep the columns of the {kept} that was written")
    for cells in reader:
        values = {key: unquoted(value or "").strip() for key, value in cells.items() if isinstance(key, str)}
        yield f"{name}, line {reader.line_num + num_before}", values


def quoted(text: str) -> str:
    """Returns a cell that every spreadsheet takes for text: `'` stands before what could begin a formula.

    A spreadsheet may split at `;`, a tab or a line break also within a cell, whatever the file is separated by.
    """
    marked = _BLANKS.sub(lambda run: f"{run.group()}'" if _is_before_formula(run) else run.group(), text)
    return f"'{marked}" if is_formula(text) or text.startswith("'") else marked


def unquoted(text: str) -> str:
    """Returns the text of a cell that `quoted` wrote; any other cell as it is."""
    plain = _BLANKS.sub(lambda run: run.group().removesuffix("'") if _is_before_formula(run) else run.group(), text)
    return next((each for each in (plain.removeprefix("'"), plain) if quoted(each) == text), text)


def _is_before_formula(run: re.Match[str]) -> bool:
    following = run.string[run.end() : run.end() + 1]
    return following in FORMULA_SIGNS and following != "" and _SEPARATOR.search(run.group()) is not None


def sheet_time(text: str, *, where: str) -> datetime | None:
    """The time that a cell says, in UTC; None if it is empty."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{where} {text!r} is not a time as in 2026-11-23T04:05:06Z; or leave it empty"
        raise InputError(message) from error
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
