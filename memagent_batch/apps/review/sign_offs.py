"""Readings that people have signed off, and the table of that."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, TypedDict

import pyarrow as pa

from memagent_batch.data.documents.document_index import SOURCE_UNREAD
from memagent_batch.data.store.columns import Column, arrow_schema
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes, read_parquet
from memagent_batch.data.store.turn_log.rows import SampleNumber
from memagent_batch.loop.addresses import fingerprint
from memagent_batch.run.tables import DocumentId, QuestionId
from memagent_batch.types import Status

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
    signed_at: Annotated[datetime, Column("when, UTC")]
    decision: Annotated[str, Column("accept: the answer is right; correct: another one is; reject: it is wrong")]
    correction: Annotated[str | None, Column("the right answer, if the person corrects it")]
    comment: Annotated[str | None, Column("the person's remark")]
    withdrawn: Annotated[bool, Column("whether it takes an earlier one back")]


SIGN_OFFS = arrow_schema(SignOff)


def reading_hash(row: Mapping[str, Any]) -> str:
    """Returns the hash of what a person signs of a row of `answers`, whatever the document is called.

    Where not all was read the source file counts too, and the document's id where nothing else tells documents apart.
    """
    signed = _signed_content(row)
    has_content = row["document_hash"] is not None or signed["source"] is not None
    return fingerprint(signed if has_content else {**signed, "document_id": row["document_id"]})[:HASH_DIGITS]


def older_reading_hash(row: Mapping[str, Any]) -> str:
    """Returns the hash by which earlier versions signed a row: that of a document under its name."""
    return fingerprint({**_signed_content(row), "document_id": row["document_id"]})[:HASH_DIGITS]


def _signed_content(row: Mapping[str, Any]) -> dict[str, Any]:
    unread = row.get(SOURCE_UNREAD)
    source = row.get("source_hash") if unread or row["status"] != Status.OK else None
    return {**{name: row[name] for name in SIGNED_COLUMNS}, "unread": unread, "source": source}


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
        data = parquet_bytes(pa.Table.from_pylist([*added.values()], schema=SIGN_OFFS))
        (output / f"{SIGNED_FOLDER}/{name}.parquet").create(data)
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


class SignOffs:
    """The sign-offs of an output, by the rows of its `answers`."""

    def __init__(self, output: Location) -> None:
        """Reads them; see `read_sign_offs`."""
        ordered = sorted(read_sign_offs(output), key=lambda row: row["signed_at"])
        self._by_hash = {row["reading_hash"]: row for row in ordered}
        standing = [row for row in self._by_hash.values() if not row["withdrawn"]]
        self._by_ids = {_reading_of(row): row for row in sorted(standing, key=lambda row: row["signed_at"])}

    def of(self, row: Mapping[str, Any]) -> SignOff | None:
        """Returns the last sign-off of a row, also one of the same text and answer under another name; None if it has
        none, or if that was withdrawn.
        """
        if not self._by_hash:
            return None
        hashes = (older_reading_hash(row), reading_hash(row))
        signed = [self._by_hash[each] for each in hashes if each in self._by_hash]
        last = max(signed, key=lambda each: each["signed_at"], default=None)
        return None if last is None or last["withdrawn"] else last

    def before(self, row: Mapping[str, Any]) -> SignOff | None:
        """The last sign-off of a reading that is open again, since its text, answer, value or support has changed."""
        return None if self.of(row) else self._by_ids.get(_reading_of(row))


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


def _content(row: SignOff) -> tuple[Any, ...]:
    return tuple(row.values())
