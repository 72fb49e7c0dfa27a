"""What people say of readings: the tables that they write, and the table of labels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, TypedDict

import pyarrow as pa

from memagent_batch.data.store.columns import Column, arrow_schema
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes, read_parquet

YES, NO = "yes", "no"
"""Labels of a reading, by the condition of its review."""
UNCLEAR = "unclear"
"""Label of a document that does not let a person say."""
LABEL_VALUES = (YES, NO, UNCLEAR)
REVIEWS_FOLDER = "review"
LABELS_FOLDER = f"{REVIEWS_FOLDER}/labels"
FORGOTTEN_ID = "(forgotten)"
"""The document_id of labels and sign-offs after `memagent forget`, since an id may contain a person's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleTable:
    """A table that people write and that no command makes again: Parquet files that are only ever added to."""

    folder: str
    """Below the output."""
    schema: pa.Schema
    content_columns: Sequence[str]
    """Columns that tell rows apart."""

    def read(self, output: Location) -> list[Any]:
        """Reads all rows, each once.

        Raises:
            OutputError: a file can't be read.
        """
        folder = output / self.folder
        rows: dict[tuple[Any, ...], Any] = {}
        for place in map(folder.at, folder.files()):
            with table_errors(place.uri, remedy="restore it: it holds people's work, and no command makes it again"):
                table = read_parquet(place).select(self.schema.names)
            for row in table.to_pylist():
                rows.setdefault(self.content(row), row)
        return [*rows.values()]

    def append(self, output: Location, rows: Sequence[Mapping[str, Any]]) -> int:
        """Adds rows in one file, whole or not at all; returns their number.

        Raises:
            StorageError: nothing was added.
        """
        if rows:
            name = sha256(repr([*map(self.content, rows)]).encode()).hexdigest()[:32]
            data = parquet_bytes(pa.Table.from_pylist([*rows], schema=self.schema))
            (output / f"{self.folder}/{name}.parquet").create(data)
        return len(rows)

    def content(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """What tells a row from others."""
        return tuple(row[name] for name in self.content_columns)


class LabelColumns(TypedDict):
    """One row for each label that a person gave. Several of one person on the same key: the last one stands."""

    document_hash: Annotated[str, Column("SHA-256 of the text of the document that was read, hex")]
    question_hash: Annotated[str, Column("hash of the question that was answered, as in `answers`")]
    value: Annotated[str, Column("what the person says: yes, no or unclear")]
    reviewer: Annotated[str, Column("who says it")]
    labelled_at: Annotated[datetime, Column("when")]
    blind: Annotated[bool, Column("whether the person had not yet seen the scan's answer")]
    purpose: Annotated[str, Column("develop: to improve the scan; validate: to measure it")]
    comment: Annotated[str | None, Column("the person's remark")]
    decision: Annotated[
        str,
        Column("the condition that the right answer fulfils if the value is yes"),
    ]
    choices: Annotated[list[str], Column("possible values, except for unclear")]
    review_id: Annotated[str, Column("the review that it was made in")]
    document_id: Annotated[str, Column("id that the document had then; (forgotten) after `memagent forget`")]
    question_id: Annotated[str, Column("id that the question had then")]
    imported_at: Annotated[datetime, Column("when the row was taken in")]


LABELS = arrow_schema(LabelColumns)
LABELS_TABLE = PeopleTable(
    folder=LABELS_FOLDER,
    schema=LABELS,
    content_columns=[name for name in LABELS.names if name not in {"decision", "choices", "imported_at"}],
)
LabelRow = dict[str, Any]


class Purpose(StrEnum):
    """What a label is made for."""

    DEVELOP = "develop"
    """To find better prompts, models or settings. It says nothing of how good the result is: it was made to fit."""
    VALIDATE = "validate"


LabelKey = tuple[str, str]
"""What a label is of: the SHA-256 of the document's text, and that of the question's."""


def label_key(row: Mapping[str, Any]) -> LabelKey:
    """What a row of `LABELS` is of, or what a label of a row of a sample is of."""
    return row["document_hash"], row["question_hash"]


def person(reviewer: str) -> str:
    """The name of a reviewer, the same in capitals and with other spaces: Ann and ann are one person."""
    return " ".join(reviewer.casefold().split())


def current_labels_of(labels: Iterable[LabelRow]) -> list[LabelRow]:
    """The last label of each person of each key, the person who labelled first in front."""
    ordered = sorted(labels, key=lambda label: (label["labelled_at"], label["reviewer"], label["value"]))
    last: dict[tuple[LabelKey, str], LabelRow] = {}
    for label in ordered:
        last[label_key(label), person(label["reviewer"])] = label  # a key keeps its place
    return [*last.values()]


def append_labels(output: Location, rows: Sequence[LabelRow], *, now: datetime | None = None) -> int:
    """Adds rows that the table does not have yet, in one file, whole or not at all; returns how many.

    A row without a time is new only where it says something else than the person's last label of the same key in the
    same review.

    Raises:
        StorageError: nothing was added.
        OutputError: a file of the table can't be read.
    """

    def given_by(row: LabelRow) -> tuple[Any, ...]:
        names = ("document_hash", "question_hash", "purpose", "review_id")
        return (person(row["reviewer"]), *(row[name] for name in names))

    now = now or datetime.now(UTC)
    old_rows = read_label_rows(output)
    known = {*map(LABELS_TABLE.content, old_rows)}
    last = {given_by(row): row for row in sorted(old_rows, key=lambda row: row["labelled_at"])}
    added: list[LabelRow] = []
    for row in rows:
        timed = {**row, "labelled_at": row["labelled_at"] or now, "imported_at": now}
        before = last.get(given_by(timed))
        words = [(each["value"], each["comment"] or "") for each in (before, timed) if each is not None]
        is_repeated = row["labelled_at"] is None and len(words) == 2 and words[0] == words[1]
        if not is_repeated and LABELS_TABLE.content(timed) not in known:
            known.add(LABELS_TABLE.content(timed))
            last[given_by(timed)] = timed
            added.append(timed)
    return LABELS_TABLE.append(output, added)


def read_label_rows(output: Location) -> list[LabelRow]:
    """All labels of an output, each once.

    Raises:
        OutputError: a file can't be read.
    """
    return LABELS_TABLE.read(output)
