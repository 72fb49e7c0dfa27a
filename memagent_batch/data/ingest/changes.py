"""Brings the tables `documents` and `sources` to what tasks report: files are added, written again or removed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.formats.formats import GROUPED, Format
from memagent_batch.data.documents.scope import WHERE_PREFIX, is_inside
from memagent_batch.data.documents.source_listing import into_batches
from memagent_batch.data.ingest.document_files import (
    FILE_BYTES,
    FILE_ROWS,
    DocumentWriter,
    files_table,
    read_row_groups,
    with_schema,
)
from memagent_batch.data.ingest.report import OLD_ROWS, TaskContext, pack_rows
from memagent_batch.data.ingest.tables import DOCUMENTS
from memagent_batch.data.store.database import on_disk, open_database, query_to_disk, run_query
from memagent_batch.data.store.delta import OutputTable, TableFile
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError

_TEXT = pa.large_string()
SEEN = pa.schema(
    [
        pa.field("document_id", _TEXT, nullable=False),
        pa.field("source", _TEXT, nullable=False),
        pa.field("kind", pa.string()),
        pa.field("start", pa.int64()),
        pa.field("stop", pa.int64()),
        pa.field("is_bad", pa.bool_()),
        pa.field("is_written", pa.bool_()),
    ]
)
"""Documents that tasks have read; those that the table has with the same row are not written."""
STORED = pa.schema(
    [
        pa.field("document_id", _TEXT, nullable=False),
        pa.field("source", _TEXT, nullable=False),
        pa.field("row_hash", pa.int64(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("is_inside", pa.bool_(), nullable=False),
    ]
)
"""Documents of the table, with their files, and whether they are inside the scope of the job."""
_MARKED = """
select
    document_id, stored.source, file, is_inside,
    unchanged.source is null and (read.source is not null or ($may_move and is_inside)) as may_change,
    unchanged.source is null and (read.source is not null or ($is_last and is_inside)) as may_go
from stored
    left join (select distinct source from unchanged) as unchanged using (source)
    left join (select distinct source from read) as read using (source)
"""
"""Documents of a source that was read, or of none that is there any more, may be replaced or gone.

Before the last commit, those of a source that will be read or is gone may be replaced, as under its new name, but none
of them is gone yet.
"""
_MARKED_BY_ID = """
select stored.document_id, source, file, affected.document_id is not null or is_inside as is_inside,
    affected.document_id is not null as may_change, affected.document_id is not null as may_go
from stored left join affected using (document_id)
"""
_ALL_IDS = "select document_id from seen union all select document_id from marked where not may_change"
_DOUBLED = f"""
select document_id, count(*) over () as num_ids
from (select document_id from ({_ALL_IDS}) group by all having count(*) > 1) order by document_id limit 1
"""
_PLACES = """
select source, kind, start, stop, is_bad, false as is_outside from seen where document_id = $document_id
union all
select source, null, null, null, false, not is_inside
from marked where document_id = $document_id and not may_change
order by source, start, stop
"""
_DOUBLED_OUTSIDE = """
select distinct source from marked semi join seen using (document_id) where not may_change and not is_inside
"""
_MOVED = """
select document_id, source, file, is_inside, may_change or (not is_inside and source in (from gone)) as may_change,
    may_go
from marked
"""
_COUNTED = """
with
    signed as (
        select document_id, 1 as sign, content from added union all select document_id, -1, content from removed
    ),
    -- with slices, versions of a document between the first and the last may be on both sides: they cancel out
    net as (
        select document_id, sum(sign) as rows, sum(sign * content::hugeint) as content from signed group by document_id
    )
select
    count(*) filter (rows = 1) as added,
    count(*) filter (rows = 0 and content <> 0) as changed,
    count(*) filter (rows = -1) as removed
from net
"""
_CONTENTS = pa.schema(
    [pa.field("document_id", _TEXT, nullable=False), pa.field("content", pa.uint64(), nullable=False)]
)
"""Documents, each with a hash of its text and its columns of the input."""
_REMOVED = """
select marked.document_id, marked.source, marked.file
from marked left join seen using (document_id)
where may_change and if(seen.document_id is null, may_go and is_inside, is_written)
"""
LOOKUP_THREADS = 16
"""Sources that are looked for at once."""
FEW_DOCUMENTS = 100_000
"""Documents up to which rows of table files are looked for one by one; for more, all rows are compared."""
SMALL_BYTES = 4 << 20
"""Size below which a file of `documents` is small."""
SMALL_FILES = 16
"""Small files that may be in the table before they are written as one."""
_REMOVED_OF_FILES = "select file, list(document_id) as ids from removed group by file order by file"


def read_stored(table: OutputTable, version: int | None, *, settings: InputConfig) -> pa.Table:
    """The documents of a version of the table, `STORED`, without their texts; none if there is no table."""
    if version is None:
        return STORED.empty_table()
    names = ["document_id", "source", "row_hash", "reader"]
    names += [name for name in table.schema(version).names if name.startswith(WHERE_PREFIX)]
    places = [(path, table.place / path) for path in table.files(version)]
    return on_disk(_stored_batches(places, names, settings=settings), schema=STORED)


def _stored_batches(
    files: Sequence[tuple[str, Location]], names: list[str], *, settings: InputConfig
) -> Iterator[pa.Table]:
    for path, place in files:
        for group in read_row_groups(place, columns=names):
            rows = group.append_column("file", pa.array([path] * group.num_rows, pa.string()))
            yield (
                rows.append_column("is_inside", pa.array(is_inside(group, settings))).select(STORED.names).cast(STORED)
            )


def pack_old_rows(stored: pa.Table, sources_of_tasks: Sequence[pa.Array | pa.ChunkedArray]) -> Iterator[bytes]:
    """Yields for each task, packed, the rows that the table has of its sources (`OLD_ROWS`).

    Args:
        stored: `STORED`.
        sources_of_tasks: The names of the sources of each task.
    """
    if not stored.num_rows or not sources_of_tasks:
        yield from [b""] * len(sources_of_tasks)
        return
    of_tasks = pa.concat_tables(
        pa.table({"source": sources, "task": pa.repeat(number, len(sources))})
        for number, sources in enumerate(sources_of_tasks)
    )
    sql = "select document_id, row_hash, task from stored join of_tasks using (source) order by task"
    with open_database({"stored": stored, "of_tasks": of_tasks}) as database:
        old = query_to_disk(database, sql)
    stops = np.searchsorted(old["task"].to_numpy(), np.arange(len(sources_of_tasks)), side="right").tolist()
    rows = old.select(OLD_ROWS.names).cast(OLD_ROWS)
    yield from (pack_rows(rows.slice(start, stop - start)) for start, stop in pairwise([0, *stops]))


def mark_by_source(stored: pa.Table, *, read: pa.Table, unchanged: pa.Table, is_last: bool, may_move: bool) -> pa.Table:
    """Marks which stored documents may be replaced or gone, by their sources.

    Args:
        stored: `STORED`.
        read: Column `source`: the sources that tasks have read, whole.
        unchanged: Column `source`: sources whose documents stay as they are.
        is_last: Whether all sources have been read or are unchanged, so that other documents in the scope are gone.
        may_move: Whether documents of other sources in the scope may be replaced by ones of the sources read.
    """
    with open_database({"stored": stored, "read": read, "unchanged": unchanged}) as database:
        return query_to_disk(database, _MARKED, is_last=is_last, may_move=may_move)


def mark_by_id(stored: pa.Table, affected: pa.Table) -> pa.Table:
    """Marks which stored documents may be replaced or gone: those named in `affected`, column `document_id`."""
    with open_database({"stored": stored, "affected": affected}) as database:
        return query_to_disk(database, _MARKED_BY_ID)


def find_removed(seen: pa.Table, marked: pa.Table, *, root: Location) -> pa.Table:
    """Finds the rows of the table that go: those of documents that are gone, or that tasks have written anew.

    Args:
        seen: `SEEN`.
        marked: Stored documents, and which of them `may_change`, that is be replaced, and `may_go`.
        root: The folder of the sources, for messages.

    Returns:
        Columns `document_id`, `source` and `file`.

    Raises:
        InputError: two documents have one id; names both places.
    """
    marked = mark_moved(seen, marked, root=root)
    require_unique_ids(seen, marked, root=root)
    with open_database({"seen": seen, "marked": marked}) as database:
        return query_to_disk(database, _REMOVED)


def mark_moved(seen: pa.Table, marked: pa.Table, *, root: Location) -> pa.Table:
    """Marks stored documents that may be replaced since their source, outside the scope of the job, is not there.

    A document that moved to another partition is one. The arguments are those of `find_removed`.
    """
    sources = run_query(_DOUBLED_OUTSIDE, {"seen": seen, "marked": marked})["source"].to_pylist()
    if not sources:
        return marked
    with ThreadPoolExecutor(LOOKUP_THREADS) as threads:
        are_there = list(threads.map(lambda source: source_place(source, root=root).exists(), sources))
    gone = [source for source, is_there in zip(sources, are_there, strict=True) if not is_there]
    with open_database({"marked": marked, "gone": pa.table({"source": pa.array(gone, _TEXT)})}) as database:
        return query_to_disk(database, _MOVED)


def count_changes(
    removed: Iterable[Location], added: Iterable[Location], *, rewritten: pa.Table, schema: pa.Schema
) -> dict[str, int]:
    """Counts the documents that are `added`, `removed`, or `changed`: with another text or other columns of the input.

    A document whose row was only written again, such as one that moved to another data file, is none of them.

    Args:
        removed: The files that a run has removed from `documents`.
        added: The files that it has added.
        rewritten: Column `document_id`: documents whose rows may differ between these files.
        schema: The schema of the table.
    """
    ids = rewritten["document_id"] if rewritten.num_rows <= FEW_DOCUMENTS else None
    names = ["document_id", "text_hash", *(name for name in schema.names if name not in DOCUMENTS.names)]
    columns = pa.schema([schema.field(name) for name in names])
    sides = {
        name: on_disk(_contents(files, columns, ids=ids), schema=_CONTENTS)
        for name, files in (("removed", removed), ("added", added))
    }
    (counts,) = run_query(_COUNTED, sides).to_pylist()
    return dict(counts)


def _contents(files: Iterable[Location], columns: pa.Schema, *, ids: pa.ChunkedArray | None) -> Iterator[pa.Table]:
    """Reads the documents with these ids, or all documents, from table files; yields rows of `_CONTENTS`."""
    names = ["document_id", *(f"column{number}" for number in range(1, len(columns)))]  # an input may have any names
    for place in files:
        groups = None if ids is None else _groups_of(place, ids)
        for group in read_row_groups(place, columns=columns.names, groups=groups):
            found = group if ids is None else group.filter(pc.is_in(group["document_id"], value_set=ids))
            rows = with_schema(found, columns).rename_columns(names)
            yield run_query("select document_id, hash(rows) as content from rows", {"rows": rows}).cast(_CONTENTS)


def _groups_of(place: Location, ids: pa.ChunkedArray) -> list[int]:
    """The row groups of a file that have rows of these documents."""
    groups = enumerate(read_row_groups(place, columns=["document_id"]))
    return [number for number, rows in groups if pc.any(pc.is_in(rows["document_id"], value_set=ids)).as_py()]


def require_readable(seen: pa.Table, reported: pa.Table) -> None:
    """Refuses sources of which nothing can be read: more likely a wrong column or format than broken files.

    Raises:
        InputError: says why the first one can't be read.
    """
    if seen.num_rows and pc.all(seen["is_bad"]).as_py():
        error = reported["error"].drop_null()[0]
        raise InputError(f"documents: none of the {seen.num_rows} files or rows can be read: {error}")


def require_unique_ids(seen: pa.Table, marked: pa.Table, *, root: Location) -> None:
    """Refuses two documents of one id.

    Raises:
        InputError: names the id and both places.
    """
    doubled = run_query(_DOUBLED, {"seen": seen, "marked": marked}).to_pylist()
    if not doubled:
        return
    document_id, num_more = doubled[0]["document_id"], doubled[0]["num_ids"] - 1
    rows = run_query(_PLACES, {"seen": seen, "marked": marked}, document_id=document_id).to_pylist()
    first, second = (place_of(each, root=root) for each in rows[:2])
    moved = [
        f". This run does not cover {place}: if the document has moved, read that part again first"
        for place, row in zip((first, second), rows[:2], strict=True)
        if row["is_outside"]
    ]
    more = f", and {num_more} more ids are doubled" if num_more else ""
    raise InputError(
        f"document_id {document_id!r} is there twice: in {first} and in {second}{more}; "
        "give every document its own id, or name the columns that put its rows in order with "
        f"input.order_columns{''.join(moved)}"
    )


def place_of(row: Mapping[str, Any], *, root: Location) -> str:
    """Where a document of `SEEN` stands, for a person."""
    file = source_place(row["source"], root=root)
    if row["is_bad"]:
        return f"{file.uri}, which can't be read"
    if row["kind"] in GROUPED:
        return f"{file.uri}, row group {row['start'] + 1}, row {row['stop'] + 1}"
    is_of_lines = row["kind"] in (Format.JSONL, Format.CSV, Format.TSV)
    return f"{file.uri}, line {row['start']}" if is_of_lines else file.uri


def source_place(source: str, *, root: Location) -> Location:
    """The place of a source below the folder of the sources."""
    return root.at(f"{root.path.rstrip('/')}/{source}")


def rewrite_files(
    files: Mapping[str, TableFile],
    removed: pa.Table,
    *,
    folder: Location,
    new: Sequence[TableFile],
    merges: bool,
    run_tasks: "MapRewritings",
    context: TaskContext,
) -> tuple[list[TableFile], list[TableFile]]:
    """Writes the files again that hold rows which go, without these, and many small files as one.

    Args:
        files: The files of the table.
        folder: The folder of the table.
        removed: The rows that go, as `find_removed` returns them.
        new: The files that tasks have written for this commit.
        merges: Whether small files become larger ones.
        run_tasks: Runs the tasks; see `Executor.map`.
        context: The context of the tasks.

    Returns:
        The files to add and those of the table to remove.
    """
    rows = run_query(_REMOVED_OF_FILES, {"removed": removed})
    without = dict(zip(rows["file"].to_pylist(), map(tuple, rows["ids"].to_pylist()), strict=True))
    small = [file for file in files.values() if file.num_bytes < SMALL_BYTES and file.num_rows < FILE_ROWS]
    merged = small if merges and len(small) > SMALL_FILES and (new or without) else []
    changed = [(files[path], ids) for path, ids in without.items() if files[path] not in merged]
    items = [Rewriting(files=((file, ids),)) for file, ids in changed if file.num_rows > len(ids)]
    batches = into_batches(merged, size=attrgetter("num_bytes"), max_size=FILE_BYTES)
    items += [Rewriting(files=tuple((file, without.get(file.path, ())) for file in batch)) for batch in batches]
    rewrite = partial(_rewrite, folder=folder, context=context)
    written = [TableFile(**row) for table in run_tasks(rewrite, items) for row in table.to_pylist()]
    return [*new, *written], [*(file for file, _ in changed), *merged]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """Files of `documents` that are written as one, each with the ids of its rows that go."""

    files: tuple[tuple[TableFile, Sequence[str]], ...]


MapRewritings = Callable[[Callable[[Rewriting], pa.Table], Iterable[Rewriting]], Iterator[pa.Table]]


def _rewrite(item: Rewriting, *, folder: Location, context: TaskContext) -> pa.Table:
    with DocumentWriter(context.folder, schema=context.schema, stem=context.run_id) as writer:
        for file, without in item.files:
            for rows in read_row_groups(folder / file.path):
                ids = rows["document_id"]
                left = rows.filter(pc.invert(pc.is_in(ids, value_set=pa.array(without, ids.type))))
                writer.copy(with_schema(left, context.schema))
    return files_table(writer.files)


def seen_documents(report: pa.Table) -> pa.Table:
    """The documents of a report, `SEEN`."""
    documents = report["documents"].combine_chunks()
    parents = documents.value_parent_indices()
    flat = documents.flatten()
    columns = {name: pc.struct_field(flat, name) for name in ("document_id", "start", "stop", "is_bad", "is_written")}
    columns |= {name: report[name].combine_chunks().take(parents) for name in ("source", "kind")}
    return pa.table({name: columns[name] for name in SEEN.names}).cast(SEEN)
