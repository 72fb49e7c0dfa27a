"""The index of the documents: what the plan needs of each (id, hash, size, place), without its text.

A text is in memory only while it is hashed, and later while it is tokenised (`texts.py`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.domain.addresses import text_hash
from memagent_batch.errors import BadFileError, DocumentMissingError, InputError, InputUnreachableError
from memagent_batch.files.location import Location
from memagent_batch.files.options import Options
from memagent_batch.inputs.document_records import document_records
from memagent_batch.inputs.formats.byte_lines import line_at
from memagent_batch.inputs.formats.formats import Format
from memagent_batch.inputs.formats.records import Place, Record, Unreadable, Value
from memagent_batch.inputs.lake.tables import documents_place
from memagent_batch.inputs.row_texts import row_text
from memagent_batch.inputs.shards import Shard
from memagent_batch.masking import shown_text

_INDEX_ROWS = 1024
"""Most rows of an index table."""
_INDEX_CHARS = 4 * 1024 * 1024
"""Most characters of questions and carried values in an index table, about."""
CARRY_PREFIX = "carry:"
"""Goes before the names of carried columns in the index, so that they can't collide with its own."""
_CHECKED_CHARS = 1024 * 1024
"""Text of the first file that is read before a run starts, about, characters: some milliseconds."""
TEXT_THREADS = 16
"""Text files of a store that are read at once."""


def _column(name: str, type_: pa.DataType, *, nullable: bool, description: str) -> pa.Field:
    return pa.field(name, type_, nullable=nullable, metadata={"description": description})


ROWS_COLUMN = "rows"
"""Column of the index with the places of a document of many rows."""
_TEXT = pa.large_string()
"""A column of all documents may hold more than 2 GiB, which other strings can't."""

INDEX_SCHEMA = pa.schema(
    [
        _column("document_id", _TEXT, nullable=False, description="unique id of the document"),
        _column("document_hash", _TEXT, nullable=True, description="SHA-256 of the text, null on error"),
        _column("path", _TEXT, nullable=False, description="path of the file on the documents' file system"),
        _column("format", pa.string(), nullable=False, description="format of the file"),
        _column("start", pa.int64(), nullable=False, description="row group, from 0; or first byte"),
        _column("stop", pa.int64(), nullable=False, description="row in the group, from 0; or byte after the last"),
        _column("num_bytes", pa.int64(), nullable=False, description="size of the text in UTF-8, bytes; 0 on error"),
        _column("question", _TEXT, nullable=True, description="question beside the text, where asked for"),
        _column("error", _TEXT, nullable=True, description="why the text can't be read"),
        _column("error_type", _TEXT, nullable=True, description="kind of that error; null for a `DocumentError`"),
        _column(
            ROWS_COLUMN,
            pa.struct(
                [
                    pa.field("paths", pa.list_(_TEXT)),
                    pa.field("formats", pa.list_(pa.string())),
                    pa.field("files", pa.list_(pa.int32())),
                    pa.field("starts", pa.list_(pa.int64())),
                    pa.field("stops", pa.list_(pa.int64())),
                ]
            ),
            nullable=True,
            description="of a document of many rows: its files, and of each row in order its file and place there",
        ),
    ]
)
"""One row for each document. Carried columns follow, as text, named `carry:<name>`."""


_NO_PLACE = Place(start=0, stop=0)
"""The place of a row that stands for no document."""


class RowPlaces(TypedDict):
    """The rows of a document, in order: a value of the column `rows`."""

    paths: list[str]
    formats: list[str]
    files: list[int]
    starts: list[int]
    stops: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """A row of the index."""

    document_id: str
    path: str = ""
    format: Format = Format.UNKNOWN
    place: Place = _NO_PLACE
    document_hash: str | None = None
    num_bytes: int = 0
    question: str | None = None
    error: str | None = None
    error_type: str | None = None
    rows: RowPlaces | None = None
    """Its rows, where it has many."""
    order: tuple[str, ...] = ()
    """Values that put a row into the order of its document, before rows are grouped."""
    carried: Mapping[str, str | None] = field(default_factory=dict)
    """Values of the carried columns."""

    @property
    def long_chars(self) -> int:
        """Characters of the values that may be long."""
        return sum(len(value) for value in (self.question, *self.carried.values()) if value)


def index_table(rows: Sequence[IndexRow], *, schema: pa.Schema) -> pa.Table:
    """The rows as a table of `index_schema`, or of its columns that the schema has."""
    columns: dict[str, list[Any]] = {
        "document_id": [row.document_id for row in rows],
        "document_hash": [row.document_hash for row in rows],
        "path": [row.path for row in rows],
        "format": [row.format.value for row in rows],
        "start": [row.place.start for row in rows],
        "stop": [row.place.stop for row in rows],
        "num_bytes": [row.num_bytes for row in rows],
        "question": [row.question for row in rows],
        "error": [row.error for row in rows],
        "error_type": [row.error_type for row in rows],
        ROWS_COLUMN: [row.rows for row in rows],
        "order": [row.order for row in rows],
    }
    for name in schema.names:
        if name.startswith(CARRY_PREFIX):
            columns[name] = [row.carried.get(name.removeprefix(CARRY_PREFIX)) for row in rows]
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


MISSING_DOCUMENT = DocumentMissingError.__name__
"""`error_type` of rows that stand for documents which are not there."""
BAD_FILE = BadFileError.__name__
"""`error_type` of rows that stand for files or records which can't be read."""
_MISSING_ERROR = (
    "a question is bound to this document_id, and no document has it; correct the id, put the document back, or take "
    "the question off the list"
)


def index_schema(settings: InputConfig) -> pa.Schema:
    """Schema of the index, with the columns to carry."""
    carried = [pa.field(CARRY_PREFIX + name, _TEXT) for name in settings.carry_columns]
    return pa.schema([*INDEX_SCHEMA, *carried])


def row_schema(settings: InputConfig) -> pa.Schema:
    """Schema of indexed rows before they are grouped (`rows.py`): `document_hash` and `num_bytes` are of one row."""
    fields = [column for column in index_schema(settings) if column.name != ROWS_COLUMN]
    return pa.schema([*fields, pa.field("order", pa.list_(_TEXT))])


def index_shard(shard: Shard, *, settings: InputConfig, storage_options: Options) -> Iterator[pa.Table]:
    """Streams the index of a shard, as tables of `index_schema`; at least one, which may be empty.

    Where documents have many rows, as tables of `row_schema`: a row of the input each.

    A text that is null or no valid Unicode gets a row with `error`; it concerns that document only.

    Raises:
        InputError: a file, a column, or any other value can't be read; with `on_bad_file: record` only where a file is
            gone or its store does not answer.
    """
    schema = row_schema(settings) if settings.order_columns else index_schema(settings)
    rows: list[IndexRow] = []
    num_chars = 0
    num_tables = 0
    documents = documents_place(shard.documents, storage_options)
    for row in _index_rows(documents, shard, settings=settings):
        rows.append(row)
        num_chars += row.long_chars
        if len(rows) >= _INDEX_ROWS or num_chars >= _INDEX_CHARS:
            yield index_table(rows, schema=schema)
            rows, num_chars, num_tables = [], 0, num_tables + 1
    if rows or not num_tables:
        yield index_table(rows, schema=schema)


def require_first_records(shard: Shard, *, settings: InputConfig, storage_options: Options) -> None:
    """Reads the first records of a shard's first file, so that a wrong column or format is refused at once.

    Raises:
        InputError: as `index_shard` does, where it would at these records.
    """
    place = documents_place(shard.documents, storage_options).at(shard.paths[0])
    num_chars = 0
    for record in document_records(place, name=shard.names[0], shard=shard, settings=settings):
        num_chars += sum(len(value) for value in record.values if isinstance(value, str))
        if num_chars > _CHECKED_CHARS:
            return


def require_unique_ids(index: pa.Table, *, documents: Location) -> None:
    """Refuses two documents of one id.

    Args:
        index: Rows of `INDEX_SCHEMA`.
        documents: What was indexed, for the message.

    Raises:
        InputError: names the id and both places.
    """
    counts = index.select(["document_id"]).group_by("document_id").aggregate([([], "count_all")])
    doubled = counts.filter(pc.greater(counts["count_all"], 1))
    if not doubled.num_rows:
        return
    document_id = doubled["document_id"][0].as_py()
    rows = index.filter(pc.equal(index["document_id"], document_id)).slice(0, 2).to_pylist()
    first, second = (place_of(row, documents=documents) for row in rows)
    more = f", and {doubled.num_rows - 1} more ids are doubled" if doubled.num_rows > 1 else ""
    raise InputError(
        f"document_id {document_id!r} is there twice: in {first} and in {second}{more}; "
        "give every document an id of its own, or name the columns that put its rows in order with "
        "--input.order-columns"
    )


def with_missing(index: pa.Table, document_ids: Sequence[str]) -> pa.Table:
    """The index with a row for each document that questions are bound to and that is not there."""
    rows = [IndexRow(document_id=name, error=_MISSING_ERROR, error_type=MISSING_DOCUMENT) for name in document_ids]
    return pa.concat_tables([index, index_table(rows, schema=index.schema)]).combine_chunks()


def is_there(table: pa.Table) -> pa.ChunkedArray:
    """Which rows of an index, or of a plan made of it, stand for what was found: all but documents that are missing."""
    return pc.not_equal(pc.fill_null(table["error_type"], ""), MISSING_DOCUMENT)


def is_document(table: pa.Table) -> pa.ChunkedArray:
    """Which rows stand for documents: not for missing ones, nor for files that can't be read."""
    return pc.invert(pc.is_in(table["error_type"], pa.array([MISSING_DOCUMENT, BAD_FILE])))


def require_readable(index: pa.Table) -> None:
    """Refuses an index in which no file could be read: more likely a wrong column or format than a broken lake.

    Raises:
        InputError: says why the first one can't be.
    """
    bad = pc.equal(index["error_type"], BAD_FILE)
    if pc.sum(bad).as_py() == index.num_rows:
        raise InputError(f"documents: none of the {index.num_rows} files or rows can be read: {index['error'][0]}")


def require_reported(index: pa.Table, *, questions: pa.Table, settings: InputConfig) -> None:
    """Refuses bad files that no row would report: where questions stand beside the texts, theirs are lost with them.

    Args:
        index: The index.
        questions: The question list.
        settings: Names the column of questions beside the texts.

    Raises:
        InputError: no question is asked of every document; names the first bad file.
    """
    bad = index.filter(pc.equal(index["error_type"], BAD_FILE))
    if bad.num_rows and settings.question_column and not questions["document_id"].null_count:
        raise InputError(
            f"documents: {bad['error'][0]}; no row could say so, since no question is asked of every document: mend "
            "the file or move it away, or ask one with --ask"
        )


def require_carry_columns(settings: InputConfig, *, reserved: Collection[str]) -> None:
    """Refuses columns to carry that can't stand in `answers`.

    Args:
        settings: Names the columns.
        reserved: Names that `answers` has already.

    Raises:
        InputError: a name is taken, or given twice, or is the text's.
    """
    for name in settings.carry_columns:
        if name in reserved:
            raise InputError(f"input.carry_columns: `answers` has a column {name!r} of its own; rename yours")
        if settings.carry_columns.count(name) > 1:
            raise InputError(f"input.carry_columns names {name!r} twice; once is enough")
        if name == settings.text_column:
            raise InputError(f"input.carry_columns: {name!r} is the text itself, which is not carried; leave it out")


def _index_rows(documents: Location, shard: Shard, *, settings: InputConfig) -> Iterator[IndexRow]:
    """Rows of the index; text files of a store are read some at once, since each takes the time of a request."""
    read = partial(_file_rows, documents, shard=shard, settings=settings)
    if documents.is_local or shard.format is not Format.TEXT:
        yield from chain.from_iterable(map(read, shard.paths, shard.names))
        return
    with ThreadPoolExecutor(TEXT_THREADS) as threads:
        yield from chain.from_iterable(threads.map(lambda path, name: list(read(path, name)), shard.paths, shard.names))


def _file_rows(documents: Location, path: str, name: str, *, shard: Shard, settings: InputConfig) -> Iterator[IndexRow]:
    place = documents.at(path)
    bad = partial(IndexRow, path=path, format=shard.format, error_type=BAD_FILE)
    try:
        for record in document_records(place, name=name, shard=shard, settings=settings):
            if record.error is None:
                yield _index_row(record, path=path, format_=shard.format, settings=settings)
                continue
            in_file = record.where.removeprefix(place.uri).partition(" (")[0]
            yield bad(document_id=f"{name}{in_file}", error=shown_text(str(record.error)))
    except InputUnreachableError:
        raise
    except InputError as error:
        if settings.on_bad_file == OnBadFile.FAIL:
            raise
        groups = f", row groups {shard.groups[0]} to {shard.groups[1] - 1}" if shard.groups else ""
        yield bad(document_id=f"{name}{groups}", error=shown_text(str(error)))


def _index_row(record: Record, *, path: str, format_: Format, settings: InputConfig) -> IndexRow:
    document_id, text, *others = record.values
    question = None if settings.question_column is None else _text_or_null(others.pop(0))
    order: list[Value] = []
    row_hash = None
    if settings.order_columns:
        num_carried, num_order = len(settings.carry_columns), len(settings.order_columns)
        others, order, shown = others[:num_carried], others[num_carried:][:num_order], others[num_carried + num_order :]
        if isinstance(text, str):
            row = row_text(text, shown, settings=settings)
            text, row_hash = row.text, row.hash()
    return IndexRow(
        document_id=str(document_id),
        path=path,
        format=format_,
        place=record.place,
        document_hash=row_hash or (text_hash(text) if isinstance(text, str) else None),
        num_bytes=len(text.encode()) if isinstance(text, str) else 0,
        question=question,
        error=None if isinstance(text, str) else shown_text(f"{record.where}: {why_unreadable(text)}"),
        carried=dict(zip(settings.carry_columns, map(_text_or_null, others), strict=True)),
        order=tuple(map(str, order)),
    )


def why_unreadable(text: Value) -> str:
    """Why a value that is no text is none."""
    return text.reason if isinstance(text, Unreadable) else "the text is null"


def _text_or_null(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def place_of(row: Mapping[str, Any], *, documents: Location) -> str:
    """Where a row of the index stands, for a person."""
    file = documents.at(row["path"])
    if row["error_type"] == BAD_FILE:
        return f"{file.uri}, which can't be read"
    match Format(row["format"]):
        case Format.TEXT:
            return file.uri
        case Format.PARQUET | Format.ARROW | Format.TABLE:
            return f"{file.uri}, row group {row['start'] + 1}, row {row['stop'] + 1}"
        case _:
            return f"{file.uri}, line {line_at(file, row['start'])}"
