"""The index of the documents: what the plan needs of each (id, hash, size, place), without its text.

It is checked, sampled, and kept for the next run; what a plan logs of its inputs comes from it.
"""

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, TypedDict, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import InputConfig
from memagent_batch.documents.formats.byte_lines import line_at
from memagent_batch.documents.formats.formats import Format
from memagent_batch.documents.shards import FOUND_FILES, FoundShards, Shard, into_batches, pack_paths
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.errors import BadFileError, DocumentMissingError, InputError, SourceUnreadError
from memagent_batch.logs import EventKind
from memagent_batch.store.columns import Column, arrow_schema
from memagent_batch.store.database import filter_to_disk, open_database, query_to_disk, run_query
from memagent_batch.store.location import Location

log = logging.getLogger(__name__)

CARRY_PREFIX = "carry:"
"""Goes before the names of carried columns in the index, so that they can't collide with its own."""
ROWS_COLUMN = "rows"
"""Column of the index with the places of a document of many rows."""
_TEXT = pa.large_string()
"""A column of all documents may hold more than 2 GiB, which other strings can't."""
_ROW_PLACES = pa.struct(
    [
        pa.field("paths", pa.list_(_TEXT)),
        pa.field("formats", pa.list_(pa.string())),
        pa.field("files", pa.list_(pa.int32())),
        pa.field("starts", pa.list_(pa.int64())),
        pa.field("stops", pa.list_(pa.int64())),
    ]
)
MISSING_DOCUMENT = DocumentMissingError.__name__
"""`error_type` of rows that stand for documents which are not there."""
BAD_FILE = BadFileError.__name__
"""`error_type` of rows that stand for files or records which can't be read."""
UNREAD_SOURCE = SourceUnreadError.__name__
"""`error_type` of documents whose source has no part that could be read."""
_MISSING_ERROR = (
    "a question is bound to this document_id, and no document has it; correct the id, put the document back, or take "
    "the question off the list"
)
_TABLE_ROWS = 1024
_TABLE_CHARS = 4 * 1024 * 1024
"""Most characters of carried values in an index table, about."""
_RULES = b"memagent.rules"
"""Key, in the metadata of kept files, of what decides the rows that a file gives the index."""
_ON_DISK = ("", "file", "delta")
"""Schemes of places on a disk: one folder is the same with each."""
_CODE = 6
"""Raised with every change of the code that changes a row of an index."""
_DOUBLED = """
select document_id, count(*) over () as num_ids
from (select document_id from documents group by all having count(*) > 1) order by document_id limit 1
"""
_IN_ORDER = "from documents order by format, path, start, stop, document_id"
_SAMPLED = """
select row from documents order by sha256($seed || '|' || coalesce(document_hash, document_id)), document_id
limit $limit
"""
"""By `permanent_number`."""
_PARTS = f'select row, unnest(coalesce("{ROWS_COLUMN}".paths, [path])) as path from documents'
_FILES = f"select distinct path from ({_PARTS})"
_KNOWN = "(select path from files semi join kept using (path, version))"
_UNKNOWN = "select path from files anti join kept using (path, version)"
_CHANGED = f"select distinct row from ({_PARTS}) anti join {_KNOWN} using (path)"
"""In these, `files` are found now and `kept` were indexed then; none is known whose version is null."""
_KEPT = "select path, version from files anti join bad using (path) where version is not null"
_SHOWN_NAMES = 5
_LEFT_OUT = (
    "a text file beside Parquet, JSONL, CSV or Arrow files is read only where `documents` names it, by its path or a "
    "glob such as '**/*.txt', or with input.format text"
)


class IndexRow(TypedDict):
    """One row for each document. Carried columns follow, as text, named `carry:<name>`."""

    document_id: Annotated[str, _TEXT, Column("unique id of the document")]
    document_hash: Annotated[str | None, _TEXT, Column("SHA-256 of the text, null on error")]
    path: Annotated[str, _TEXT, Column("path of the file on the documents' file system")]
    format: Annotated[str, Column("format of the file")]
    start: Annotated[int, Column("row group, from 0; or first byte")]
    stop: Annotated[int, Column("row in the group, from 0; or byte after the last")]
    num_bytes: Annotated[int, Column("size of the text in UTF-8, bytes; 0 on error")]
    error: Annotated[str | None, _TEXT, Column("why the text can't be read")]
    error_type: Annotated[str | None, _TEXT, Column("kind of that error; null for a `DocumentError`")]
    rows: Annotated[
        Mapping[str, Sequence[str | int]] | None,
        _ROW_PLACES,
        Column("of a document of many rows: its files, and of each row in order its file and place there"),
    ]


INDEX_SCHEMA = arrow_schema(IndexRow)
_NO_TEXT = {"path": "", "format": Format.UNKNOWN, "start": 0, "stop": 0, "num_bytes": 0}


def index_row(document_id: str, **values: Any) -> IndexRow:
    """A row with the values of some columns; without any others it stands for no text."""
    return cast("IndexRow", {**_NO_TEXT, "document_id": document_id, **values})


def index_tables(rows: Iterable[Mapping[str, Any]], *, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows as tables of some of them each, as they come; at least one, which may be empty."""
    is_empty = True
    for batch in into_batches(rows, size=_carried_chars, max_size=_TABLE_CHARS, max_items=_TABLE_ROWS):
        yield pa.Table.from_pylist(batch, schema=schema)
        is_empty = False
    if is_empty:
        yield schema.empty_table()


def _carried_chars(row: Mapping[str, Any]) -> int:
    return sum(len(value) for name, value in row.items() if name.startswith(CARRY_PREFIX) and value)


def index_schema(settings: InputConfig) -> pa.Schema:
    """Schema of the index, with the columns to carry."""
    carried = [pa.field(CARRY_PREFIX + name, _TEXT) for name in settings.carry_columns]
    return pa.schema([*INDEX_SCHEMA, *carried])


def row_schema(settings: InputConfig) -> pa.Schema:
    """Schema of indexed rows before they are grouped (`rows.py`): `document_hash` and `num_bytes` are of one row."""
    fields = [each for each in index_schema(settings) if each.name != ROWS_COLUMN]
    return pa.schema([*fields, pa.field("order", pa.list_(_TEXT))])


def require_unique_ids(index: pa.Table, *, documents: Location) -> None:
    """Refuses two documents of one id.

    Raises:
        InputError: names the id and both places.
    """
    doubled = run_query(_DOUBLED, {"documents": index.select(["document_id"])})
    if not doubled.num_rows:
        return
    document_id = doubled["document_id"][0].as_py()
    rows = index.filter(pc.equal(index["document_id"], document_id)).slice(0, 2).to_pylist()
    first, second = (place_of(row, documents=documents) for row in rows)
    num_more = doubled["num_ids"][0].as_py() - 1
    more = f", and {num_more} more ids are doubled" if num_more else ""
    raise InputError(
        f"document_id {document_id!r} is there twice: in {first} and in {second}{more}; "
        "give every document its own id, or name the columns that put its rows in order with "
        "input.order_columns"
    )


def with_missing(index: pa.Table, document_ids: Sequence[str]) -> pa.Table:
    """The index with a row for each document that questions are bound to and that is not there."""
    rows = [index_row(name, error=_MISSING_ERROR, error_type=MISSING_DOCUMENT) for name in document_ids]
    return pa.concat_tables([index, pa.Table.from_pylist(rows, schema=index.schema)])


def in_order(index: pa.Table) -> pa.Table:
    """The index in the order of its files, the same however much of it was made again."""
    with open_database({"documents": index}) as database:
        return query_to_disk(database, _IN_ORDER, schema=index.schema)


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


def require_carry_columns(settings: InputConfig, *, reserved: Collection[str]) -> None:
    """Refuses columns to carry that can't stand in `answers`.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDocuments:
    """An index of documents in two: both are tables of `index_schema`, in the order of the whole."""

    taken: pa.Table
    outside: pa.Table | None
    """What is left out; None where nothing can be."""


def documents_named(index: pa.Table, document_ids: pa.Array) -> SampledDocuments:
    """The documents of these ids, for a second pass."""
    is_named = pc.is_in(index["document_id"], document_ids.cast(index.schema.field("document_id").type))
    return _split(index, is_named)


def _split(index: pa.Table, is_taken: pa.ChunkedArray) -> SampledDocuments:
    return SampledDocuments(taken=filter_to_disk(index, is_taken), outside=filter_to_disk(index, pc.invert(is_taken)))


def sample_documents(index: pa.Table, *, limit: int | None, seed: int) -> SampledDocuments:
    """The documents with the smallest permanent random numbers, of seed and document hash.

    A text that can't be read has no hash; its document_id stands for it. Of equal texts the first ids are taken.
    """
    if limit is None:
        return SampledDocuments(taken=index, outside=None)
    documents = index.select(["document_id", "document_hash"]).append_column("row", pa.array(np.arange(index.num_rows)))
    rows = run_query(_SAMPLED, {"documents": documents}, seed=str(seed), limit=limit)["row"].to_numpy()
    is_taken = np.zeros(index.num_rows, bool)
    is_taken[rows] = True
    return _split(index, pa.chunked_array([is_taken]))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedFiles:
    """The files that an index was made of."""

    versions: Mapping[str, str]
    """Version of a table, or commit of each data set of the hub, by the place as the user names it."""
    files: pa.Table
    rules: str
    """Hash of what else decides the rows that they give the index."""
    is_kept: bool = False
    """Whether the index is the one that an earlier run has kept."""

    @classmethod
    def found(cls, found: FoundShards, *, settings: InputConfig) -> "IndexedFiles":
        """What is indexed with these settings."""
        first, table = found.shards[0], found.table
        scheme = first.documents.rpartition("://")[0].rpartition("://")[2]  # delta://s3://... is read from s3
        place = ["" if scheme in _ON_DISK else scheme, first.root, sorted(table.columns.items()) if table else []]
        place += [sorted(first.number_keys)] if first.number_keys else []
        rules = json.dumps([_CODE, settings.model_dump(mode="json", exclude={"inventory"}), repr(place)])
        return cls(versions=found.versions, files=found.files, rules=sha256(rules.encode()).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptIndex:
    """The index of a run as the next run finds it."""

    documents: pa.Table
    """`index_schema`: the documents that were there."""
    files: pa.Table
    """`FOUND_FILES` of the files that can be known again, each once."""

    @classmethod
    def of(cls, index: pa.Table, indexed: IndexedFiles) -> "KeptIndex":
        """What a run keeps. A file with rows that can't be read is not known: every night looks again."""
        bad = pa.table({"path": index["path"].filter(pc.equal(index["error_type"], BAD_FILE))})
        with open_database({"files": indexed.files, "bad": bad}) as database:
            files = query_to_disk(database, _KEPT, schema=FOUND_FILES)
        rules = {_RULES: indexed.rules.encode()}
        return cls(documents=_split(index, is_there(index)).taken, files=files.replace_schema_metadata(rules))

    def knows(self, path: str, files: pa.Table) -> bool:
        """Whether a file of a listing, `FOUND_FILES`, has the version that this index was made of."""
        now, then = (each["version"].filter(pc.equal(each["path"], path)) for each in (files, self.files))
        return not {*now.drop_null().to_pylist()}.isdisjoint(then.to_pylist())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReusedIndex:
    """What of a kept index is still right."""

    rows: pa.Table
    shards: list[Shard]
    """What is left to index."""
    is_whole: bool
    changed: pa.Table
    """The documents that have rows in a file which is gone or has changed, as the kept index has them."""


def reuse_index(
    kept: KeptIndex | None, indexed: IndexedFiles, shards: Sequence[Shard], *, settings: InputConfig
) -> ReusedIndex:
    """The rows of a kept index whose files have not changed, and the shards that are left to index."""
    if kept is None or (kept.files.schema.metadata or {}).get(_RULES) != indexed.rules.encode():
        nothing = index_schema(settings).empty_table()
        return ReusedIndex(rows=nothing, shards=[*shards], is_whole=False, changed=nothing)
    found = {"files": indexed.files, "kept": kept.files}
    unknown = run_query(_UNKNOWN, found)["path"]
    rows, changed = kept.documents, kept.documents.slice(0, 0)
    is_whole = not len(unknown) and indexed.files.num_rows == kept.files.num_rows
    if not is_whole:
        is_changed = np.zeros(rows.num_rows, bool)
        is_changed[run_query(_CHANGED, found | {"documents": _with_files(rows)})["row"].to_numpy()] = True
        split = _split(rows, pa.chunked_array([is_changed]))
        changed, rows = split.taken, split.outside
    left = [*shards] if len(unknown) == indexed.files.num_rows else _shards_with(shards, set(unknown.to_pylist()))
    return ReusedIndex(rows=rows, shards=left, is_whole=is_whole, changed=changed)


def other_shards(documents: pa.Table, shards: Sequence[Shard], *, read: Sequence[Shard]) -> list[Shard]:
    """The shards with the files that hold rows of some documents of an index, without those that are read already."""
    paths = set(run_query(_FILES, {"documents": _with_files(documents)})["path"].to_pylist())
    return _shards_with(shards, paths.difference(*(shard.paths for shard in read)))


def _with_files(documents: pa.Table) -> pa.Table:
    return documents.select(["path", ROWS_COLUMN]).append_column("row", pa.array(np.arange(documents.num_rows)))


def _shards_with(shards: Iterable[Shard], wanted: Collection[str]) -> list[Shard]:
    """The shards with these files alone."""
    left = ((shard, [path for path in shard.paths if path in wanted]) for shard in shards)
    return [replace(shard, packed_paths=pack_paths(paths)) for shard, paths in left if paths]


def with_new_rows(reused: ReusedIndex, rows: pa.Table) -> pa.Table:
    """The documents that were reused and have another row now, among `rows`, which are those of `reused.shards`."""
    return documents_named(reused.rows, pc.unique(rows["document_id"])).taken


def log_documents(index: pa.Table, found: FoundShards) -> None:
    """Logs how many documents there are, from how many files, and which files were left out."""
    num_documents = int(pc.sum(is_document(index), min_count=0).as_py())
    fields = {
        "num_documents": num_documents,
        "num_files": found.total_files,
        "left_out": list(found.left_out[:_SHOWN_NAMES]),
        "num_left_out": len(found.left_out),
    }
    line = f"{quantity(num_documents, 'document')} from {quantity(found.total_files, 'file')}"
    if found.left_out:
        line += f"; left out: {_quoted(found.left_out)} ({_LEFT_OUT})"
    log.info(line, extra={"event": EventKind.DOCUMENTS_FOUND, **fields})


def warn_of_bad_files(index: pa.Table) -> None:
    """Names the first files and records that can't be read."""
    bad = index.filter(pc.equal(index["error_type"], BAD_FILE))["document_id"].to_pylist()
    if not bad:
        return
    message = f"files, lines or rows that can't be read: {_quoted(bad)}; each has a failed row for each question that "
    fields = {"num_files": len(bad), "names": bad[:_SHOWN_NAMES]}
    log.warning(f"{message}is asked of every document", extra={"event": EventKind.FILES_UNREADABLE, **fields})


def warn_of_missing(document_ids: Sequence[str]) -> None:
    """Names the first documents that questions are bound to and that are not there."""
    if not document_ids:
        return
    message = f"documents that questions are bound to and that are not there: {_quoted(document_ids)}; their rows are "
    fields = {"num_documents": len(document_ids), "document_ids": list(document_ids[:_SHOWN_NAMES])}
    log.warning(f"{message}failed", extra={"event": EventKind.DOCUMENTS_MISSING, **fields})


def _quoted(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN_NAMES])
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES:,} more"
