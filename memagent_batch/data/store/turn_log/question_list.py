"""Question lists, kept beside the log under the hash of their content: actors on any node find them there.

A part of the tables brings the questions that are asked in it: were a million of them bound to a document each, a task
that reads the whole list for its ten thousand would make the tables quadratic.
"""

from hashlib import sha256
from typing import NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes, read_parquet
from memagent_batch.loop.addresses import text_hash

ASKED_FOLDER = "log/questions"
ID_DIGITS = 16
"""Hex digits of the hash that names a list."""
ASKED_COLUMN = "asked"
"""Column of a part: the questions that no earlier document of the part has brought, with their rows of the list."""
_ROW = "row"
FOLLOW_UP_FINGERPRINT = "follow_up_fingerprint"
"""Column with the fingerprint under which the log keeps what is asked after the answers to a question; there only where
something is."""


class AskedQuestion(TypedDict):
    """A row of the question list (`PlannedQuestions.hashed`)."""

    question_id: str
    document_id: str | None
    question: str
    references: list[str] | None
    question_hash: str
    answer_type: NotRequired[str | None]
    labels: NotRequired[list[str] | None]
    schema: NotRequired[str | None]
    unit: NotRequired[str | None]
    not_stated: NotRequired[bool | None]
    follow_up_fingerprint: NotRequired[str | None]


def write_asked(output: Location, questions: pa.Table) -> str:
    """Keeps a question list (`PlannedQuestions.hashed`), once; returns the id under which it is kept."""
    data = parquet_bytes(questions)
    asked_id = sha256(data).hexdigest()[:ID_DIGITS]
    place = output / f"{ASKED_FOLDER}/{asked_id}.parquet"
    if not place.exists():
        place.write_bytes(data)
    return asked_id


def read_asked(output: Location, *, asked_id: str) -> pa.Table:
    """A question list by its id; `readings` of a plan name rows of it."""
    return read_parquet(output / f"{ASKED_FOLDER}/{asked_id}.parquet")


def asked_follow_ups(questions: pa.Table) -> list[str]:
    """Fingerprints of what is asked after the answers to these questions."""
    if FOLLOW_UP_FINGERPRINT not in questions.schema.names:
        return []
    return sorted(pc.unique(questions[FOLLOW_UP_FINGERPRINT].drop_null()).to_pylist())


def with_hashes(questions: pa.Table) -> pa.Table:
    """A question list with the hashes of the addresses."""
    hashes = [text_hash(question) for question in questions["question"].to_pylist()]
    return questions.append_column("question_hash", pa.array(hashes, pa.large_string()))


def with_asked(documents: pa.Table, questions: pa.Table) -> pa.Table:
    """Adds the questions of a part to it (`ASKED_COLUMN`): each once, beside the first document that it is asked of.

    `readings` of the documents name the questions by their rows of `questions` (`PlannedQuestions.hashed`).
    """
    readings = documents["readings"].combine_chunks()
    rows = np.asarray(pc.struct_field(pc.list_flatten(readings), "question"))
    brought, first = np.unique(rows, return_index=True)
    order = np.argsort(first)
    brought, first = brought[order], first[order]
    taken = questions.take(pa.array(brought))
    columns = [pa.array(brought, pa.int64()), *(column.combine_chunks() for column in taken.columns)]
    values = pa.StructArray.from_arrays(columns, names=[_ROW, *taken.schema.names])
    offsets = np.searchsorted(first, np.cumsum([0, *pc.list_value_length(readings).to_pylist()]))
    return documents.append_column(ASKED_COLUMN, pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values))


def asked_in(part: pa.Table) -> dict[int, AskedQuestion]:
    """The questions of a part by their rows of the question list, which `readings` name."""
    rows = pc.list_flatten(part[ASKED_COLUMN]).to_pylist()
    return {row.pop(_ROW): row for row in rows}
