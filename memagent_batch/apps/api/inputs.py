"""Documents and questions as a program gives them. What is not a file becomes a file of the output.

Places of documents must be found again, tonight and tomorrow. Each file appears whole and is named by the hash of its
bytes, so that the same table is the same file. A run reads the files that it wrote or found there, by their names; what
earlier runs read stays until it has closed.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from memagent_batch.config.sources import InputConfig
from memagent_batch.config.storage import Options
from memagent_batch.data.documents.data_files import shown_columns
from memagent_batch.data.documents.questions import read_questions, type_fields
from memagent_batch.data.documents.where import Condition
from memagent_batch.data.store.location import Location, absolute
from memagent_batch.data.store.parquet import parquet_bytes
from memagent_batch.errors import InputError
from memagent_batch.loop.follow_ups.answer_types import ValueType

if TYPE_CHECKING:
    from ray.data import Dataset

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Text of a row group, about, bytes: tasks read row groups side by side, and a row group is decoded as a whole."""

MAX_PLACE_CHARS = 2000
"""A longer string names no file: it is a text."""

Documents: TypeAlias = (
    "str | PathLike[str] | Sequence[str | PathLike[str]] | Sequence[Mapping[str, Any]] | pa.Table | Dataset | Any"
)
"""Paths or URIs, rows of equal fields, an Arrow table, a data frame that pyarrow reads, such as one of pandas, or a Ray
Dataset."""


def document_places(documents: Documents) -> tuple[str, ...]:
    """The paths and URIs, where documents are named; nothing where they are given.

    Raises:
        InputError: it is an empty list, or a place is a text.
    """
    if isinstance(documents, list | tuple) and not documents:
        raise InputError("documents: the list is empty; give at least one path or URI, or a table")
    places = [documents] if isinstance(documents, str | PathLike) else documents
    is_list = isinstance(places, list | tuple) and all(isinstance(place, str | PathLike) for place in places)
    for number, place in enumerate(places if is_list else ()):
        if isinstance(place, str) and (len(place) > MAX_PLACE_CHARS or "\n" in place):
            remedy = "give texts as rows: [{'document_id': ..., 'text': ...}]"
            raise InputError(f"documents: no. {number + 1} is a text, not a path or URI; {remedy}")
    return tuple(map(absolute, places)) if is_list else ()


def write_documents(documents: Documents, *, folder: Location, settings: InputConfig) -> list[str]:
    """Writes the columns of the documents that are read to a folder, the id first; returns the names of the files.

    Raises:
        InputError: this is not a table, it has no rows, lacks a column, or holds a block twice.
        StorageError: the folder can't be written.
    """
    if "ray.data" in sys.modules and isinstance(documents, sys.modules["ray.data"].Dataset):
        names = _write_dataset(documents, folder, settings)
    else:
        table = _columns_read(_as_table(documents), settings)
        names = [write_table(table, folder=folder)] if table.num_rows else []
    if not names:
        raise InputError("documents: there is no row; give at least one document")
    return names


def write_table(table: pa.Table, *, folder: Location) -> str:
    """Writes a table with rows as one Parquet file, unless it is there; returns its name."""
    rows = max(1, ROW_GROUP_BYTES * table.num_rows // max(1, table.nbytes))
    data = parquet_bytes(table.replace_schema_metadata(None), group_rows=rows)
    place = folder / f"{sha256(data).hexdigest()[:32]}.parquet"
    if not place.exists():
        place.write_bytes(data)
    return place.uri.rsplit("/", 1)[-1]


def _write_dataset(dataset: "Dataset", folder: Location, settings: InputConfig) -> list[str]:
    """Writes each block as a file, in parallel."""
    from memagent_batch.run.executors.ray.session import CPU_SHARE, ray_session, with_long_loops

    with ray_session():
        written = with_long_loops(dataset).map_batches(
            partial(_write_block, folder=folder, settings=settings),
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=CPU_SHARE,
        )
        rows = [row for batch in written.iter_batches(batch_format="pyarrow") for row in batch.to_pylist()]
    names: set[str] = set()
    for row in rows:
        if row["name"] in names:
            raise InputError(
                f"documents: document_id {row['first_id']!r} is there twice: two blocks of the dataset hold the same "
                "rows; give every document its own id"
            )
        names.add(row["name"])
    return sorted(names)


def _write_block(block: pa.Table, *, folder: Location, settings: InputConfig) -> pa.Table:
    """Ray Data UDF: a block in, its file written, the file's name and the first row's id out."""
    names, first_ids = list[str](), list[str]()
    if block.num_rows:
        table = _columns_read(block, settings)
        names = [write_table(table, folder=folder)]
        first_ids = [str(table[settings.document_id_column][0])]
    return pa.table({"name": pa.array(names, pa.string()), "first_id": pa.array(first_ids, pa.string())})


def _as_table(documents: Documents) -> pa.Table:
    try:
        if isinstance(documents, list | tuple) and all(isinstance(each, Mapping) for each in documents):
            return pa.Table.from_pylist(list(documents))
        return pa.table(documents)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise InputError(
            f"documents: this {type(documents).__name__} can't be read as a table ({error}); give paths, "
            "rows as dicts, a data frame, a Ray Dataset, or an Arrow table"
        ) from error


def _columns_read(table: pa.Table, settings: InputConfig) -> pa.Table:
    columns = [settings.document_id_column, settings.text_column, *settings.carried, *settings.order_columns]
    columns += [column.name for column in shown_columns(settings)]
    for name in columns:
        if table.schema.names.count(name) != 1:
            count = "no" if name not in table.schema.names else "more than one"
            there = ", ".join(map(repr, table.schema.names)) or "none"
            raise InputError(
                f"documents: the table has {count} column {name!r}; its columns: {there}; name the right ones with "
                "input=InputConfig(document_id_column=..., text_column=...)"
            )
    if settings.where is not None:
        columns += Condition(text=settings.where).columns_among(table.schema.names)
    return table.select(list(dict.fromkeys(columns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its own id, or for one document."""

    question: str
    question_id: str | None = None
    """Its id; made of the text by default."""
    document_id: str | None = None
    """The one document that it is asked of; every document by default."""
    references: Sequence[str] | None = None
    type: ValueType | None = None
    """The type that its answer is asked for as: `Bool()`, `Label("a", "b")`, `Labels(...)`, `Number(unit="EUR")`,
    `Date()`, `Json(model_or_schema)`; none by default."""


GivenQuestions = str | PathLike[str] | Iterable[str | Question | Mapping[str, Any]]
"""The path or URI of a question list, or questions."""


def question_table(questions: GivenQuestions, *, storage_options: Options) -> pa.Table:
    """A question list, a table of `QUESTION_SCHEMA`.

    Raises:
        InputError: a file or value can't be used, or a question is there twice; names it.
    """
    if isinstance(questions, str | PathLike):
        return read_questions(Location(uri=question_place(questions), storage_options=storage_options), ask=())
    table = read_questions(None, ask=_question_fields(questions), place="questions, number")
    if not table.num_rows:
        raise InputError("questions: there is none; give at least one")
    return table


def question_place(questions: str | PathLike[str]) -> str:
    """The path or URI of a question list.

    Raises:
        InputError: it is a question: words with a question mark behind them, which no pattern of a path has.
    """
    if isinstance(questions, str) and re.search(r"\s\S+\?\s*$", questions):
        raise InputError(f"questions: {questions!r} is not a list's path; give a question in a list: [{questions!r}]")
    return absolute(questions)


def _question_fields(questions: Iterable[str | Question | Mapping[str, Any]]) -> Iterator[str | Mapping[str, Any]]:
    for number, question in enumerate(questions, start=1):
        if isinstance(question, Question):
            yield {
                "question": question.question,
                "question_id": question.question_id,
                "document_id": question.document_id,
                "references": question.references,
                **type_fields(question.type),
            }
        elif isinstance(question, str | Mapping):
            yield question
        else:
            raise InputError(
                f"questions, number {number}: this is a {type(question).__name__}; give a text, a Question or a mapping"
            )
