"""The index of the documents: what the plan needs of each (id, hash, size, place), without its text."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import InputConfig
from memagent_batch.errors import BadFileError, DocumentMissingError, InputError
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.byte_lines import line_at
from memagent_batch.inputs.formats.formats import Format
from memagent_batch.inputs.formats.records import Place

CARRY_PREFIX = "carry:"
"""Goes before the names of carried columns in the index, so that they can't collide with its own."""


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
