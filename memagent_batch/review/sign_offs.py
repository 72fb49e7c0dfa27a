"""Readings that people have signed off, and the table of that."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, TypedDict

import pyarrow as pa

from memagent_batch.documents.converted import SOURCE_UNREAD
from memagent_batch.domain.addresses import fingerprint
from memagent_batch.domain.readings import Status
from memagent_batch.review.labels import REVIEWS_FOLDER
from memagent_batch.runs.tables import DocumentId, QuestionId
from memagent_batch.store.columns import Column, arrow_schema
from memagent_batch.store.errors import table_errors
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes, read_parquet
from memagent_batch.store.turn_log.rows import SampleNumber

SIGNED_FOLDER = f"{REVIEWS_FOLDER}/signed"
HASH_DIGITS = 32
SIGNED_COLUMNS = (
    *("document_id", "question_id", "sample", "document_hash", "question_hash", "status", "answer"),
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
    signed_at: Annotated[datetime, Column("when, UTC")]
    decision: Annotated[str, Column("accept: the answer is right; correct: another one is; reject: it is wrong")]
    correction: Annotated[str | None, Column("the right answer, if the person corrects it")]
    comment: Annotated[str | None, Column("the person's remark")]
    withdrawn: Annotated[bool, Column("whether it takes an earlier one back")]


SIGN_OFFS = arrow_schema(SignOff)


def reading_hash(row: Mapping[str, Any]) -> str:
    """Hash of what a person signs of a row of `answers`; of what was not read, the source file too."""
    unread = row.get(SOURCE_UNREAD)
    source = row.get("source_hash") if unread or row["status"] != Status.OK else None
    signed = {name: row[name] for name in SIGNED_COLUMNS}
    return fingerprint({**signed, "unread": unread, "source": source})[:HASH_DIGITS]


def append_sign_offs(output: Location, rows: Iterable[SignOff]) -> int:
    """Adds sign-offs that the table does not have yet, in one file, whole or not at all; returns how many.

    Raises:
        StorageError: nothing was added.
        OutputError: a file of the table can't be read.
    """
    there = {_content(row) for row in read_sign_offs(output)}
    added = {_content(row): row for row in rows if _content(row) not in there}
    if added:
        name = sha256(repr([*added]).encode()).hexdigest()[:HASH_DIGITS]
        table = pa.Table.from_pylist([*added.values()], schema=SIGN_OFFS)
        (output / f"{SIGNED_FOLDER}/{name}.parquet").create(parquet_bytes(table))
    return len(added)


def read_sign_offs(output: Location) -> list[SignOff]:
    """All rows of the table.

    Raises:
        OutputError: a file can't be read.
    """
    folder = output / SIGNED_FOLDER
    rows: list[Any] = []
    for path in folder.files():
        place = folder.at(path)
        with table_errors(place.uri, remedy="restore it: it holds people's work, and no command makes it again"):
            rows += read_parquet(place).select(SIGN_OFFS.names).to_pylist()
    return rows


def current_sign_offs(output: Location) -> dict[str, SignOff]:
    """The sign-off of each reading that has one, by its hash."""
    last = {row["reading_hash"]: row for row in sorted(read_sign_offs(output), key=lambda row: row["signed_at"])}
    return {key: row for key, row in last.items() if not row["withdrawn"]}


class SignOffs:
    """The sign-offs of an output, by the rows of its `answers`."""

    def __init__(self, output: Location) -> None:
        """Reads them; see `read_sign_offs`."""
        self._signed = current_sign_offs(output)
        ordered = sorted(self._signed.values(), key=lambda row: row["signed_at"])
        self._last = {_reading_of(row): row for row in ordered}

    def of(self, row: Mapping[str, Any]) -> SignOff | None:
        """The sign-off of a row, if it has one."""
        return self._signed.get(reading_hash(row)) if self._signed else None

    def before(self, row: Mapping[str, Any]) -> SignOff | None:
        """The last sign-off of a reading that is open again, since its text, answer, value or support has changed."""
        return None if self.of(row) else self._last.get(_reading_of(row))


def _reading_of(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["document_id"], row["question_id"], row["sample"]


def signed_words(signed: SignOff) -> str:
    """What was decided, by whom, when and why, in words."""
    decided = {Decision.CORRECT: f"corrected to “{signed['correction']}”", Decision.REJECT: "rejected"}
    comment = f": {signed['comment']}" if signed["comment"] else ""
    words = decided.get(Decision(signed["decision"]), "accepted")
    return f"{words} by {signed['signed_by']}, {signed['signed_at']:%Y-%m-%d}{comment}"


def _content(row: SignOff) -> tuple[Any, ...]:
    return tuple(row.values())
