"""Which documents of many rows have changed: by the sources of their parts, and by the rows that were read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from memagent_batch.data.ingest.document_files import read_row_groups
from memagent_batch.data.ingest.part_tasks import JoinTask, bucket_of
from memagent_batch.data.store.database import on_disk, open_database, query_to_disk, run_query
from memagent_batch.data.store.delta import OutputTable

BUCKET_BYTES = 32 << 20
"""Bytes of sources and documents for which there is a bucket."""
MAX_BUCKETS = 1024
JOIN_BYTES = 128 << 20
"""Rows that one task joins, about, bytes."""
UNPACKED = 3
"""How many times as large rows are as their files, about."""
_TEXT = pa.large_string()
PART_SOURCES = pa.schema(
    [
        pa.field("document_id", _TEXT, nullable=False),
        pa.field("source", _TEXT, nullable=False),
        pa.field("num_bytes", pa.int64(), nullable=False),
        pa.field("has_text", pa.bool_(), nullable=False),
    ]
)
"""The sources of the parts of stored documents; `num_bytes` is the size of the whole document."""
_AFFECTED = """
select document_id from read_documents
union
select document_id from part_sources semi join changed_sources using (source) semi join (
    from stored where is_inside
) as inside using (document_id)
"""
"""Documents with new rows, and those inside the scope that have parts of sources that were read, or are gone."""
_UNREADABLE_SOURCES = f"""
select distinct source
from part_sources semi join ({_AFFECTED}) using (document_id) anti join changed_sources using (source)
where not has_text
"""
"""A document without a text has no parts to take from the table: all its sources are read."""
_STORED_CHANGED = f"select document_id, file from stored semi join ({_AFFECTED}) using (document_id)"

_CHANGED_SOURCES = f"""
select distinct document_id, source
from part_sources semi join changed_sources using (source) semi join ({_AFFECTED}) using (document_id)
"""
_STORED_BYTES = f"""
select coalesce(sum(num_bytes), 0)::bigint as num_bytes
from (select distinct document_id, num_bytes from part_sources semi join ({_AFFECTED}) using (document_id))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartChanges:
    """What is known before parts are joined."""

    stored: pa.Table
    """`STORED`."""
    part_sources: pa.Table
    """`PART_SOURCES`."""
    read_documents: pa.Table
    """Column `document_id`: documents that have rows in sources that were read."""
    changed_sources: pa.Table
    """Column `source`: sources that were read, or are gone."""

    def query(self, sql: str) -> pa.Table:
        """What a query finds among these tables."""
        tables = {name: getattr(self, name) for name in self.__slots__}
        with open_database(tables) as database:
            return query_to_disk(database, sql)

    def affected(self) -> pa.Table:
        """Column `document_id`: the documents that are joined again."""
        return self.query(_AFFECTED)

    def unreadable_sources(self) -> list[str]:
        """Further sources that have to be read."""
        return list(self.query(_UNREADABLE_SOURCES)["source"].to_pylist())


def read_part_sources(table: OutputTable, version: int | None) -> pa.Table:
    """The sources of the parts of all documents of a version, `PART_SOURCES`; none if there is no table."""
    sql = """
        select distinct document_id, num_bytes, text_hash is not null as has_text, unnest(parts).source as source
        from documents
    """
    columns = ["document_id", "num_bytes", "text_hash", "parts.list.element.source"]
    found = (
        run_query(sql, {"documents": documents}).select(PART_SOURCES.names).cast(PART_SOURCES)
        for path in (table.files(version) if version is not None else ())
        for documents in read_row_groups(table.place / path, columns=columns)
    )
    return on_disk(found, schema=PART_SOURCES)


def choose_buckets(*, source_bytes: int, table_bytes: int) -> int:
    """How many buckets the documents are divided into."""
    return max(1, min(MAX_BUCKETS, (source_bytes + table_bytes) // BUCKET_BYTES))


def plan_joins(
    changes: PartChanges, groups: Iterable[dict[str, int | str]], *, num_buckets: int, source_bytes: int, num_cpus: int
) -> list[JoinTask]:
    """The tasks that join the parts, of one or several buckets each."""
    of_bucket: dict[int, list[tuple[str, int]]] = {}
    for group in groups:
        of_bucket.setdefault(int(group["bucket"]), []).append((str(group["path"]), int(group["row_group"])))
    stored = changes.query(_STORED_CHANGED)
    sources = changes.query(_CHANGED_SOURCES)
    sizes = changes.query(_STORED_BYTES)
    num_bytes = UNPACKED * source_bytes + sizes["num_bytes"][0].as_py()
    num_tasks = max(1, min(num_buckets, max(num_cpus, num_bytes // JOIN_BYTES)))
    old_files, old_sources = _by_bucket(stored, "file", num_buckets), _by_bucket(sources, "source", num_buckets)
    tasks = []
    for number in range(num_tasks):
        buckets = range(number, num_buckets, num_tasks)
        files: dict[str, list[str]] = {}
        for document_id, file in chain.from_iterable(old_files.get(bucket, ()) for bucket in buckets):
            files.setdefault(file, []).append(document_id)
        own = tuple(chain.from_iterable(of_bucket.get(bucket, ()) for bucket in buckets))
        changed = chain.from_iterable(old_sources.get(bucket, ()) for bucket in buckets)
        if own or files:
            tasks.append(
                JoinTask(
                    groups=own,
                    stored=tuple((file, tuple(ids)) for file, ids in files.items()),
                    changed_sources=frozenset(source for _, source in changed),
                )
            )
    return tasks


def _by_bucket(rows: pa.Table, column: str, num_buckets: int) -> dict[int, list[tuple[str, str]]]:
    found: dict[int, list[tuple[str, str]]] = {}
    for document_id, value in zip(rows["document_id"].to_pylist(), rows[column].to_pylist(), strict=True):
        found.setdefault(bucket_of(document_id, num_buckets), []).append((document_id, value))
    return found


def read_ids(reports: Sequence[pa.Table]) -> pa.Table:
    """Column `document_id`: documents that have rows in the sources of some reports."""
    schema = pa.schema([pa.field("document_id", _TEXT)])
    with open_database({"reports": pa.concat_tables(reports)}) as database:
        sql = "select distinct unnest(documents).document_id as document_id from reports"
        return query_to_disk(database, sql, schema=schema)
