"""Commits of the table `sources`: rows of sources that were read are replaced, those of gone sources removed."""

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.ingest.document_files import read_row_groups, with_schema
from memagent_batch.data.ingest.readers.converter import PartStatus
from memagent_batch.data.ingest.sources import IS_REWRITTEN
from memagent_batch.data.ingest.tables import SOURCES
from memagent_batch.data.store.database import on_disk, open_database, query_to_disk
from memagent_batch.data.store.delta import OutputTable, RunNumber, TableFile, retry_conflicts, write_table_files

FILE_ROWS = 200_000
"""Rows of a file of `sources`: a source that changes has so many written again."""
"""Tries of a commit where other slices commit to the table at the same moment."""
LAST_COMMITS = 5
"""Commits that are looked at for the place of the sources."""
SMALL_FILES = 16
"""Files with fewer than half of these rows that may be there before they are put together."""
PLACE = "documents"
"""Text of each commit that says where the sources are."""
_COMPARED = [name for name in SOURCES.names if name not in ("source", "scope", "run_id", "ingested_at")]
_REPORTED = """
select
    source, any_value(scope) as scope, any_value(if(is_retried, null, version)) as version,
    any_value(content_hash) as content_hash, any_value(num_bytes) as num_bytes, any_value(kind) as kind,
    any_value(reader) as reader, any_value(settings_hash) as settings_hash,
    sum(num_documents)::bigint as num_documents,
    if(count(*) = 1 or sum(num_documents) = 0, min(status), 'ok') as status, any_value(error) as error,
    any_value(losses) as losses, any_value(run_id) as run_id, any_value(ingested_at) as ingested_at,
    bool_and(is_unchanged) as is_unchanged
from (select * exclude (documents, files, version, num_bytes) from reported) join listed using (source)
group by source
"""
"""A large source is reported by several tasks; it has failed if none of them could read anything."""
_KEPT = ", ".join(
    f"if(new.is_unchanged and old.source is not null, old.{name}, new.{name}) as {name}"
    for name in _COMPARED
    if name not in ("version", "num_bytes", "losses")
)
_KEPT_LOSSES = f"""
if(
    new.is_unchanged,
    coalesce(
        if(old.version is null, [loss for loss in old.losses if loss.kind != '{PartStatus.NOT_READ}'], old.losses), []
    ) || new.losses,
    new.losses
) as losses
"""
"""A source that could not be fetched has the losses of its documents, which stay, and that it was not read."""
_CHANGED_ROWS = f"""
with
    new as ({_REPORTED}),
    old as (from sources where scope is not distinct from $scope),
    -- rows that are older than those of another scope are written again, else their sources would be read each night
    overtaken as (
        select distinct s.source from old as s join sources as other using (source)
        where {IS_REWRITTEN}
    ),
    -- what is the same by its content keeps its row, with the version of now
    merged as (
        select new.source, new.scope, new.version, new.num_bytes, new.run_id, new.ingested_at, {_KEPT},
            {_KEPT_LOSSES}
        from new left join old using (source)
    )
select {", ".join(f"merged.{name}" for name in SOURCES.names)}
from merged left join old using (source)
where old.source is null or merged.source in (from overtaken) or ({", ".join(f"merged.{name}" for name in _COMPARED)})
    is distinct from ({", ".join(f"old.{name}" for name in _COMPARED)})
union all
select {", ".join("null as version" if name == "version" else f"old.{name}" for name in SOURCES.names)}
from old semi join moved using (source) anti join new using (source)
where version is not null
"""


def commit_sources(
    table: OutputTable,
    reported: pa.Table,
    *,
    listed: pa.Table,
    gone: pa.Table,
    moved: pa.Table,
    scope: str | None,
    run: RunNumber,
    place: str,
) -> None:
    """Brings `sources` to what tasks report, in one commit; none if that changes nothing.

    Args:
        table: The table `sources`.
        reported: `REPORTS`.
        listed: `LISTED`.
        gone: Column `source`.
        moved: Column `source`: sources, not reported, that had documents which are now those of others. They are read
            again by the next ingest if this one does not reach them.
        scope: The part of the documents that the job covers. A job that covers all removes rows of every scope.
        run: The run that commits.
        place: Where the sources are, for the table's history.

    Raises:
        SupersededError: a newer run has committed to the table.
        FilesChangedError: other runs commit to it again and again.
    """

    def commit() -> None:
        version = table.version()
        rows = _new_rows(table, reported, listed=listed, moved=moved, scope=scope)
        others, old = _other_rows(table, rows["source"], gone=gone["source"], scope=scope)
        if not rows.num_rows and not old:
            return
        kept = pa.concat_tables([rows, others])
        new = [
            file
            for start in range(0, kept.num_rows, FILE_ROWS)
            for file in write_table_files(table.place, kept.slice(start, FILE_ROWS).combine_chunks(), stem=run.run_id)
        ]
        table.commit(
            run=run,
            schema=SOURCES,
            add=new,
            remove=old,
            is_serial=True,
            read_version=version,
            metadata={PLACE: place},
        )

    retry_conflicts(commit)


def _new_rows(
    table: OutputTable, reported: pa.Table, *, listed: pa.Table, moved: pa.Table, scope: str | None
) -> pa.Table:
    """Rows of `sources` that are new, or differ from the old ones in more than the run."""
    tables = {"reported": reported, "listed": listed}
    if not table.exists():
        with open_database(tables) as database:
            sql = f"select {', '.join(SOURCES.names)} from ({_REPORTED})"
            return query_to_disk(database, sql, schema=SOURCES)
    with open_database({**tables, "moved": moved, "sources": table.dataset()}) as database:
        return query_to_disk(database, _CHANGED_ROWS, schema=SOURCES, scope=scope)


def _other_rows(
    table: OutputTable, changed: pa.ChunkedArray, *, gone: pa.ChunkedArray, scope: str | None
) -> tuple[pa.Table, list[TableFile]]:
    """The files that hold rows of changed or gone sources, and their other rows. Small files count too if many."""
    if not table.exists():
        return SOURCES.empty_table(), []
    files = table.files()
    small = [file for file in files.values() if file.num_rows < FILE_ROWS // 2]
    replaced = small if len(small) > SMALL_FILES and (len(changed) or len(gone)) else []
    others = list[pa.Table]()
    for file in files.values():
        of_file, has_changed = list[pa.Table](), file in replaced
        for rows in read_row_groups(table.place / file.path):
            is_same_scope = pc.equal(pc.fill_null(rows["scope"], ""), scope or "")
            is_changed = pc.and_(_is_in(rows["source"], changed), is_same_scope)
            is_gone = _is_in(rows["source"], gone)
            goes = pc.or_(is_changed, is_gone if scope is None else pc.and_(is_gone, is_same_scope))
            has_changed |= bool(pc.any(goes).as_py())
            of_file.append(with_schema(rows.filter(pc.invert(goes)), SOURCES))
        if has_changed:
            others += of_file
            replaced = [*replaced, *([] if file in replaced else [file])]
    return on_disk(others, schema=SOURCES), replaced


def _is_in(sources: pa.ChunkedArray, names: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(sources, value_set=names.combine_chunks().cast(sources.type))


def last_place(table: OutputTable) -> str | None:
    """Where the sources of the last commit were; None if nothing was committed yet."""
    version = table.version()
    commits = [] if version is None else table.history(since=max(0, version - LAST_COMMITS))
    return next((str(commit[PLACE]) for commit in commits if PLACE in commit), None)
