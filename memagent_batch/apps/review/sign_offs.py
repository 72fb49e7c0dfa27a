"""Sign-offs: what people decide of single answers, taken in from `signed.csv`.

A sign-off is of a text, answer, value and support; it is open again if one of them changes.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from operator import itemgetter
from typing import Annotated, Any, TypedDict

from memagent_batch.apps.review.labels import PeopleTable
from memagent_batch.apps.review.sheet import filled_rows, sheet_time
from memagent_batch.data.documents.document_index import SOURCE_UNREAD
from memagent_batch.data.documents.questions import value_type_of
from memagent_batch.data.store.columns import Column, arrow_schema
from memagent_batch.data.store.database import BATCH_ROWS
from memagent_batch.data.store.errors import input_errors, output_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.rows import SampleNumber
from memagent_batch.errors import InputError
from memagent_batch.loop.addresses import fingerprint
from memagent_batch.loop.follow_ups.answer_types import ValueType
from memagent_batch.loop.follow_ups.values import ValueStatus, written_value
from memagent_batch.loop.texts.escapes import visible
from memagent_batch.run.history import PastRun, find_run
from memagent_batch.run.tables import ANSWERS_TABLE, DocumentId, QuestionId
from memagent_batch.types import Status

log = logging.getLogger(__name__)

SIGNED_FOLDER = "review/signed"
HASH_DIGITS = 32
SIGNED_COLUMNS = (
    *("question_id", "sample", "document_hash", "question_hash", "status", "answer"),
    *("value_status", "value", "support"),
)
"""Columns of `answers` that a sign-off is of: it is open again if one of them changes."""


class Decision(StrEnum):
    """What a person says of an answer."""

    ACCEPT = "accept"
    CORRECT = "correct"
    REJECT = "reject"


class SignOff(TypedDict):
    """One row for each sign-off; the last one of a reading stands."""

    document_id: DocumentId
    question_id: QuestionId
    sample: SampleNumber
    reading_hash: Annotated[str, Column("hash of what was signed: text, question, answer, value, support")]
    signed_by: Annotated[str, Column("who")]
    signed_at: Annotated[datetime, Column("when")]
    decision: Annotated[str, Column("accept: the answer is right; correct: another one is; reject: it is wrong")]
    correction: Annotated[str | None, Column("the right answer, if the person corrects it")]
    comment: Annotated[str | None, Column("the person's remark")]
    withdrawn: Annotated[bool, Column("whether it takes an earlier one back")]


SIGN_OFFS = arrow_schema(SignOff)
SIGNED_TABLE = PeopleTable(folder=SIGNED_FOLDER, schema=SIGN_OFFS, content_columns=SIGN_OFFS.names)
SIGNED_CELLS = ("document_id", "question_id", "reading_hash", "signed_by")
WITHDRAWN = "withdraw"
"""Decision of a row that takes an earlier one of the same reading back."""


def reading_hash(row: Mapping[str, Any]) -> str:
    """Returns the hash of what a person signs of a row of `answers`, whatever the document is called.

    Where not all was read the source file counts too, and the document's id where nothing else tells documents apart.
    """
    unread = row.get(SOURCE_UNREAD)
    source = row.get("source_hash") if unread or row["status"] != Status.OK else None
    signed = {**{name: row[name] for name in SIGNED_COLUMNS}, "unread": unread, "source": source}
    has_content = row["document_hash"] is not None or source is not None
    return fingerprint(signed if has_content else {**signed, "document_id": row["document_id"]})[:HASH_DIGITS]


def has_answer(row: Mapping[str, Any]) -> bool:
    """Whether a row of `answers` holds something to accept: not if reading failed, or nothing was found in a part."""
    return bool(row["status"] == Status.OK and row["value_status"] != ValueStatus.NOT_READ)


def append_sign_offs(output: Location, rows: Iterable[SignOff]) -> int:
    """Adds sign-offs that the table does not have yet, in one file, whole or not at all; returns how many.

    A row that was edited and has kept its time is signed now, so that it stands in place of the earlier one.

    Raises:
        StorageError: nothing was added.
        OutputError: a file of the table can't be read.
    """
    before = sorted(read_sign_offs(output), key=itemgetter("signed_at"))
    known = {*map(SIGNED_TABLE.content, before)}
    last = {row["reading_hash"]: row for row in before}
    times = {(row["reading_hash"], row["signed_at"]) for row in before}
    added = list[SignOff]()
    for row in rows:
        content, when = SIGNED_TABLE.content(row), (row["reading_hash"], row["signed_at"])
        is_edited = content not in known and when in times
        if content in known or (is_edited and {**row, "signed_at": None} == {**last[when[0]], "signed_at": None}):
            continue
        known.add(content)
        times.add(when)
        last[when[0]] = {**row, "signed_at": datetime.now(UTC)} if is_edited else row
        added.append(last[when[0]])
    return SIGNED_TABLE.append(output, added)


def read_sign_offs(output: Location) -> list[SignOff]:
    """All sign-offs of an output, each once.

    Raises:
        OutputError: a file can't be read.
    """
    return SIGNED_TABLE.read(output)


class SignOffs:
    """The sign-offs of an output, by the rows of its `answers`."""

    def __init__(self, output: Location) -> None:
        """Reads them; see `read_sign_offs`."""
        rows = [row for row in read_sign_offs(output) if not _is_forgotten(row)]
        ordered = sorted(rows, key=itemgetter("signed_at"))
        self._by_hash = {row["reading_hash"]: row for row in ordered}
        standing = [row for row in self._by_hash.values() if not row["withdrawn"]]
        self._by_ids = {_reading_of(row): row for row in sorted(standing, key=lambda row: row["signed_at"])}

    def of(self, row: Mapping[str, Any]) -> SignOff | None:
        """Returns the last sign-off of a row, also one of the same text and answer under another name; None if it has
        none, or if that was withdrawn.
        """
        last = self._by_hash.get(reading_hash(row)) if self._by_hash else None
        return None if last is None or last["withdrawn"] else last

    def before(self, row: Mapping[str, Any]) -> SignOff | None:
        """The last sign-off of a reading that is open again, since its text, answer, value or support has changed."""
        return None if self.of(row) else self._by_ids.get(_reading_of(row))


def _is_forgotten(row: SignOff) -> bool:
    """Whether `memagent forget` has removed what a person wrote in place of the answer."""
    return row["decision"] == Decision.CORRECT and row["correction"] is None


def _reading_of(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["document_id"], row["question_id"], row["sample"]


def signed_words(signed: SignOff, row: Mapping[str, Any]) -> str:
    """Returns in words what was decided of a row of `answers`, by whom, when and why, and of which document if that
    has the same text under another name.
    """
    decided = {Decision.CORRECT: f"corrected to “{signed['correction']}”", Decision.REJECT: "rejected"}
    is_same = signed["document_id"] == row["document_id"]
    of_document = "" if is_same else f", of the same text in {signed['document_id']}"
    comment = f": {signed['comment']}" if signed["comment"] else ""
    words = decided.get(Decision(signed["decision"]), "accepted")
    return f"{words} by {signed['signed_by']}, {signed['signed_at']:%Y-%m-%d}{of_document}{comment}"


class Signed(TypedDict):
    """What `memagent review sign` prints."""

    added: int
    """Sign-offs that the table did not have."""
    of_other_runs: int
    """Rows of the sheets that sign a text, answer, value, support or document that the last run does not have."""
    signed: int
    """Readings of the last run that are signed off now."""
    readings: int


def sign_sheets(output: Location, sheets: Sequence[Location]) -> Signed:
    """Takes the sign-offs of sheets in: all of them or, if one is wrong, none.

    Raises:
        InputError: a sheet or a row of it can't be taken; names the line.
        OutputError: no run has finished, or a table can't be read.
        StorageError: nothing was added.
    """
    now, rows = datetime.now(UTC), list[tuple[str, SignOff]]()
    for sheet in sheets:
        with input_errors(sheet.uri):
            data = sheet.read_bytes()
        for where, values in filled_rows(data, name=str(sheet), required=SIGNED_CELLS, kept="signed.csv"):
            rows.append((where, _sign_off(values, where=where, now=now)))
    if not rows:
        raise InputError(f"{', '.join(map(str, sheets))}: no row is signed")
    with output_errors(output.uri):
        run = find_run(output)
    readings = _RunReadings([row for _, row in rows], _answer_rows(run))
    checked = _checked_sign_offs(run, rows, readings)
    added, signed = append_sign_offs(output, checked), SignOffs(output)
    others = len(rows) - sum(row["reading_hash"] in readings.questions for row in checked)
    num_readings = run.manifest["counts"]["answers_rows"]
    num_signed = sum(signed.of(row) is not None for row in _answer_rows(run))
    if others:
        rows_sign = "1 row signs" if others == 1 else f"{others:,} rows sign"
        log.warning(f"{rows_sign} readings of another run; a sign-off counts only for the answer that was signed")
    if num_gone := sum(readings.lacks_document(row) for _, row in rows):
        rows_are = "1 row is of a document" if num_gone == 1 else f"{num_gone:,} rows are of documents"
        log.warning(f"{rows_are} that this output does not have any more: not imported")
    return Signed(added=added, of_other_runs=others, signed=num_signed, readings=num_readings)


def _answer_rows(run: PastRun) -> Iterator[Mapping[str, Any]]:
    for batch in run.dataset(ANSWERS_TABLE).to_batches(batch_size=BATCH_ROWS):
        yield from batch.to_pylist()


def _ids_on_page(row: Mapping[str, Any]) -> tuple[str, str]:
    """Document and question as a page shows them and a sheet is read: unseen characters as signs, no outer blanks."""
    return visible(row["document_id"]).strip(), visible(row["question_id"]).strip()


class _RunReadings:
    """The readings of a run that rows of sheets may sign: by their hash, by document and question, and by both."""

    def __init__(self, sheet_rows: Sequence[SignOff], answers: Iterable[Mapping[str, Any]]) -> None:
        self.questions: dict[str, str] = {}
        """Question of each reading by its hash."""
        self.ids: dict[tuple[str, ...], tuple[str, str]] = {}
        """Ids of document and question, by these as a page shows them, alone and behind the hash."""
        self.without_answer = set[str]()
        """Hashes of those that hold nothing to accept."""
        self._documents: set[str] = set()
        """Wanted documents that the run has, as a page shows them."""
        wanted_hashes, wanted_ids = {row["reading_hash"] for row in sheet_rows}, {*map(_ids_on_page, sheet_rows)}
        wanted_documents = {document for document, _ in wanted_ids}
        for row in answers:
            signed_hash, shown, ids = reading_hash(row), _ids_on_page(row), (row["document_id"], row["question_id"])
            if signed_hash in wanted_hashes:
                self.questions[signed_hash] = row["question_id"]
                if not has_answer(row):
                    self.without_answer.add(signed_hash)
            if shown in wanted_ids:
                self.ids[signed_hash, *shown] = ids
                self.ids.setdefault(shown, ids)
            if shown[0] in wanted_documents:
                self._documents.add(shown[0])

    def lacks_document(self, row: SignOff) -> bool:
        """Whether the run has neither the document of a row of a sheet nor its reading under another name."""
        return _ids_on_page(row)[0] not in self._documents and row["reading_hash"] not in self.questions

    def find(self, row: SignOff) -> tuple[str, str] | None:
        """Returns document and question of a row of a sheet, a document of the same text under its earlier name."""
        shown, question_id = _ids_on_page(row), self.questions.get(row["reading_hash"], "")
        ids = self.ids.get((row["reading_hash"], *shown)) or self.ids.get(shown)
        is_renamed = ids is None and visible(question_id).strip() == shown[1]
        return (row["document_id"], question_id) if is_renamed else ids


def _checked_sign_offs(run: PastRun, rows: Sequence[tuple[str, SignOff]], readings: _RunReadings) -> list[SignOff]:
    """The sign-offs with the ids of the run, with corrections of the type that it asked for, and of answers alone.

    Of a number the unit is left out. Sign-offs of readings that the run does not have are kept as they are; of a slice
    they are left out, as a page may show several as one. Those of documents that the run does not have are left out
    too: `memagent forget` may have erased them.
    """
    types: dict[str, ValueType | None] = {}
    if any(row["correction"] for _, row in rows):
        with output_errors(run.output.uri):
            types = {row["question_id"]: value_type_of(row) for row in run.questions.to_pylist()}
    is_slice = run.manifest["settings"].get("input", {}).get("slice") is not None
    checked = list[SignOff]()
    for where, row in rows:
        ids = readings.find(row)
        if ids is None and row["reading_hash"] in readings.questions:
            raise InputError(
                f"{where}: the last run asked no question {row['question_id']!r} of document {row['document_id']!r}; "
                "keep the ids as the page wrote them, or remove the row"
            )
        if ids is None and (is_slice or readings.lacks_document(row)):
            continue
        is_accepted = row["decision"] == Decision.ACCEPT and not row["withdrawn"]
        if is_accepted and row["reading_hash"] in readings.without_answer:
            raise InputError(
                f"{where}: no answer to question {row['question_id']!r} of document {row['document_id']!r} was read, "
                "so there is none to accept; correct it, reject it, or remove the row"
            )
        document_id, question_id = ids or (row["document_id"], row["question_id"])
        correction, value_type = row["correction"], types.get(question_id)
        if correction is not None and value_type is not None:
            correction = correction.removesuffix(value_type.unit).strip()
            if (problem := written_value(correction, value_type).problem) is not None:
                raise InputError(
                    f"{where}: correction: {problem}; write a value of the type that the question asks for"
                )
        checked.append({**row, "document_id": document_id, "question_id": question_id, "correction": correction})
    return checked


def _sign_off(values: Mapping[str, str], *, where: str, now: datetime) -> SignOff:
    """The sign-off of a row of a sheet; one without a time is signed now, one without a decision accepts."""
    sample = values.get("sample") or "0"
    if not re.fullmatch(f"[0-9a-f]{{{HASH_DIGITS}}}", values["reading_hash"]) or not sample.isdecimal():
        raise InputError(f"{where}: reading_hash or sample is not as the page wrote it; save signed.csv from it again")
    if not values["signed_by"]:
        raise InputError(f"{where}: nobody is named; fill in signed_by")
    decision, correction = values.get("decision") or Decision.ACCEPT.value, values.get("correction") or None
    withdrawn = decision == WITHDRAWN
    if not withdrawn and (decision not in {*Decision} or (decision == Decision.CORRECT) != (correction is not None)):
        raise InputError(
            f"{where}: decision is accept, reject, withdraw, or correct with the right answer in `correction`"
        )
    return SignOff(
        document_id=values["document_id"],
        question_id=values["question_id"],
        sample=int(sample),
        reading_hash=values["reading_hash"],
        signed_by=values["signed_by"],
        signed_at=sheet_time(values.get("signed_at", ""), where=f"{where}: signed_at") or now,
        decision=Decision.ACCEPT.value if withdrawn else decision,
        correction=correction,
        comment=values.get("comment") or None,
        withdrawn=withdrawn,
    )
