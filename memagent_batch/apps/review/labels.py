"""What people say of readings, and the table of labels."""

from collections.abc import Iterable, Mapping, Sequence
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
REVIEWS_FOLDER = "review"
LABELS_FOLDER = f"{REVIEWS_FOLDER}/labels"


class LabelColumns(TypedDict):
    """One row for each label that a person gave. Several of one person on the same key: the last one stands."""

    document_hash: Annotated[str, Column("SHA-256 of the text of the document that was read, hex")]
    question_hash: Annotated[str, Column("hash of the question that was answered, as in `answers`")]
    value: Annotated[str, Column("what the person says: yes, no or unclear")]
    reviewer: Annotated[str, Column("who says it")]
    labelled_at: Annotated[datetime, Column("when, UTC")]
    blind: Annotated[bool, Column("whether the person had not yet seen the scan's answer")]
    purpose: Annotated[str, Column("develop: to improve the scan; validate: to measure it")]
    comment: Annotated[str | None, Column("the person's remark")]
    decision: Annotated[
        str,
        Column("the condition that the right answer fulfils if the value is yes"),
    ]
    choices: Annotated[list[str], Column("possible values, except for unclear")]
    review_id: Annotated[str, Column("the review that it was made in")]
    document_id: Annotated[str, Column("id that the document had then")]
    question_id: Annotated[str, Column("id that the question had then")]
    imported_at: Annotated[datetime, Column("when the row was taken in, UTC")]


LABELS = arrow_schema(LabelColumns)
LabelRow = dict[str, Any]
SAID = tuple(name for name in LABELS.names if name not in {"decision", "choices", "imported_at"})
"""Columns that tell labels apart: what the person says, and where; the review says what was decided."""


class Purpose(StrEnum):
    """What a label is made for."""

    DEVELOP = "develop"
    """To find better prompts, models or settings. It says nothing of how good the result is: it was made to fit."""
    VALIDATE = "validate"


LabelKey = tuple[str, str]
"""What a label is of: the SHA-256 of the document's text, and that of the question's."""


def current_labels_of(labels: Iterable[LabelRow]) -> list[LabelRow]:
    """The last label of each person of each key, the person who labelled first in front."""
    ordered = sorted(labels, key=lambda label: (label["labelled_at"], label["reviewer"], label["value"]))
    last = {(label_key(label), person(label["reviewer"])): label for label in ordered}
    firsts = dict.fromkeys((label_key(label), person(label["reviewer"])) for label in ordered)
    return [last[pair] for pair in firsts]


def person(reviewer: str) -> str:
    """The name of a reviewer, the same in capitals and with other spaces: Ann and ann are one person."""
    return " ".join(reviewer.casefold().split())


def verdict(labels: Sequence[LabelRow]) -> str:
    """What counts where several people labelled the same: what most say; of equal sides, the one who labelled first."""
    values: list[str] = [label["value"] for label in labels]
    return max(dict.fromkeys(values), key=values.count)


def append_labels(output: Location, rows: Sequence[LabelRow], *, now: datetime | None = None) -> int:
    """Adds rows that the table does not have yet, in one file, whole or not at all; returns how many.

    A row without a time is new only where it says something else than the person's last label of the same key in the
    same review.

    Raises:
        StorageError: nothing was added.
        OutputError: a file of the table can't be read.
    """
    now = now or datetime.now(UTC)
    there = read_label_rows(output)
    known = {_label_content(row) for row in there}
    last = {_person(row): row for row in sorted(there, key=lambda row: row["labelled_at"])}
    added: list[LabelRow] = []
    for row in rows:
        timed = row if row["labelled_at"] is not None else {**row, "labelled_at": now}
        before = last.get(_person(timed))
        is_repeated = row["labelled_at"] is None and before is not None and _word(before) == _word(timed)
        if is_repeated or _label_content(timed) in known:
            continue
        known.add(_label_content(timed))
        last[_person(timed)] = timed
        added.append({**timed, "imported_at": now})
    if added:
        name = sha256(repr([_label_content(row) for row in added]).encode()).hexdigest()[:32]
        table = pa.Table.from_pylist(added, schema=LABELS)
        (output / f"{LABELS_FOLDER}/{name}.parquet").create(parquet_bytes(table))
    return len(added)


def read_label_rows(output: Location) -> list[LabelRow]:
    """All rows of the table, each once.

    Raises:
        OutputError: a file can't be read.
    """
    folder = output / LABELS_FOLDER
    rows: dict[tuple[Any, ...], LabelRow] = {}
    for path in folder.files():
        place = folder.at(path)
        with table_errors(place.uri, remedy="restore it: it holds people's work, and no command makes it again"):
            table = read_parquet(place).select(LABELS.names)
        for row in table.to_pylist():
            rows.setdefault(_label_content(row), row)
    return list(rows.values())


def label_key(row: Mapping[str, Any]) -> LabelKey:
    """What a row of `LABELS` is of, or what a label of a row of a sample is of."""
    return row["document_hash"], row["question_hash"]


def _label_content(row: LabelRow) -> tuple[Any, ...]:
    return tuple(row[name] for name in SAID)


def _person(row: LabelRow) -> tuple[Any, ...]:
    names = ("document_hash", "question_hash", "purpose", "review_id")
    return (person(row["reviewer"]), *(row[name] for name in names))


def _word(row: LabelRow) -> tuple[Any, ...]:
    return row["value"], row["comment"] or ""
