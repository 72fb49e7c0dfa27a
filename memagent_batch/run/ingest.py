"""Ingest: brings `sources` and `documents` of an output up to date. Only what is new or changed is opened.

1. `find_sources` lists the sources and compares them with the table `sources`.
2. Tasks read the new and changed ones and write files of `documents`; see `row_tasks` and `file_tasks`.
3. The driver compares the ids that they report with the table, has files with replaced rows written again without
   these, and commits `documents`, then `sources`.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from shutil import rmtree

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.ingest.changes import (
    SEEN,
    count_changes,
    find_removed,
    mark_by_id,
    mark_by_source,
    pack_old_rows,
    read_stored,
    require_readable,
    rewrite_files,
    seen_documents,
)
from memagent_batch.data.ingest.columns import (
    StoredColumn,
    documents_schema,
    find_columns,
    folder_columns,
    require_own_columns,
)
from memagent_batch.data.ingest.file_tasks import FileSettings, FileTask, plan_file_batches, read_files
from memagent_batch.data.ingest.part_plan import PartChanges, choose_buckets, plan_joins, read_ids, read_part_sources
from memagent_batch.data.ingest.part_tasks import READ_PARTS, join_parts, read_parts
from memagent_batch.data.ingest.report import REPORTS, TaskContext, unpack_rows
from memagent_batch.data.ingest.row_tasks import (
    RowSettings,
    RowTask,
    plan_row_tasks,
    read_rows,
    search_columns,
)
from memagent_batch.data.ingest.source_rows import commit_sources
from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE, SOURCES_TABLE
from memagent_batch.data.store.database import filter_to_disk, on_disk, release_memory
from memagent_batch.data.store.delta import FilesChangedError, OutputTable, RunNumber, TableFile, retry_conflicts
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, StorageError, SupersededError
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.masking import mask_url
from memagent_batch.run.claim import INGEST_FOLDER
from memagent_batch.run.executors.executor import Executor
from memagent_batch.run.sources import FoundSources, sources_place
from memagent_batch.run.wiring import make_documents

CHECKPOINT_SECONDS = 60.0
"""Least time between commits of what tasks have read: a kill costs little more."""
CHECKPOINT_SHARE = 10
"""How many times as long as the last of these commits took the next one waits."""
LOGGED_SOURCES = 5
_IDS = pa.schema([pa.field("document_id", pa.large_string())])
_SOURCE_NAMES = pa.schema([pa.field("source", pa.large_string())])

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What a run reads its documents from."""

    output: Location
    """The place of the tables: that of the run, or the output that the documents are."""
    documents_version: int | None
    """Version of `documents`; None if there is no such table yet, in a plan."""
    files: tuple[Location, ...]
    """The Parquet files of `documents`, in a plan also those that were not committed."""
    num_documents: int
    """Documents of these files, with rows in place of what can't be read."""
    schema: pa.Schema
    counts: Mapping[str, int]
    left_out: tuple[str, ...] = ()
    """Names of files that are not read."""
    versions: Mapping[str, str]
    """Version of a table of a lake, or commit of each data set of the hub, by the place as the user names it."""
    columns: tuple[str, ...] = ()
    """Carried columns, as `documents` names them."""
    is_committed: bool = True
    """Whether the files are those of the version of the table; not so in a plan."""

    @property
    def documents(self) -> StoredDocuments:
        """The documents, for a plan and for the tasks of a run."""
        if self.is_committed:
            return StoredDocuments(output=self.output, version=self.documents_version)
        return StoredDocuments(output=self.output, version=self.documents_version, files=self.files, schema=self.schema)


def ingest(found: FoundSources, *, executor: Executor, run: RunNumber, scratch: Location | None = None) -> Ingested:
    """Reads the new and changed sources, inside a session of the executor, and commits `documents`, then `sources`.

    Nothing is committed if nothing has changed.

    Args:
        found: The sources.
        executor: What does the work.
        run: The run that commits.
        scratch: For a plan: where files of `documents` go instead. Then nothing is committed.

    Raises:
        InputError: a source can't be read, or two documents have one id; names the place.
        SupersededError: a newer run has committed to the output.
    """
    if found.listing is not None:
        return _Ingest(found, executor=executor, run=run, scratch=scratch).run()
    table = OutputTable(output=found.output, name=DOCUMENTS_TABLE)
    version = table.version()
    files = table.files(version)
    return Ingested(
        output=found.output,
        documents_version=version,
        files=tuple(table.place / path for path in files),
        num_documents=sum(file.num_rows for file in files.values()),
        schema=table.schema(version),
        counts={},
        versions={str(found.output): str(version)},
        columns=tuple(found.config.input.carried.values()),
    )


class _Ingest:
    """One ingest of an output."""

    def __init__(self, found: FoundSources, *, executor: Executor, run: RunNumber, scratch: Location | None) -> None:
        assert found.listing is not None
        assert found.changes is not None
        self._found, self._executor, self._run = found, executor, run
        self._listing, self._changes = found.listing, found.changes
        self._settings = found.config.input
        self._place = make_documents(found.config)[0]
        self._documents = OutputTable(output=found.output, name=DOCUMENTS_TABLE)
        self._sources = OutputTable(output=found.output, name=SOURCES_TABLE)
        self._root = self._place.at(found.listing.place.root)
        self._split_sources = set[str]()
        self._scratch = scratch
        self._added_files = dict[str, TableFile]()
        """Files that this ingest has added to the table, or has written to `scratch`, and not removed again."""
        self._uncommitted = set[str]()
        """Files in the table's folder that tasks have reported, and no commit has."""
        self._removed_files = set[str]()
        """Files of others that it has removed."""
        self._rewritten: list[pa.Table] = []
        """Column `document_id`: documents whose rows it has removed or written."""
        self._is_first = True
        """Whether this ingest has committed nothing to `documents` yet."""
        self._read_table()

    def _read_table(self) -> None:
        """Reads the latest version of `documents` again, since other slices may have committed to it."""
        self._version = self._documents.version()
        self._table_schema = None if self._version is None else self._documents.schema(self._version)
        self._files = {} if self._version is None else self._documents.files(self._version)
        """The files of `documents` as they are after the ingest."""

    def run(self) -> Ingested:
        """Reads, compares and commits; if a newer run has taken over, nothing that was read stays behind."""
        try:
            try:
                return self._bring_up_to_date()
            except StorageError:
                self._documents.require_newest(self._run)  # else `memagent forget` may have deleted the file
                raise
        except SupersededError:
            self._delete_uncommitted()
            raise

    def _delete_uncommitted(self) -> None:
        """Deletes what tasks have written and no version of the table has: a commit may have lost only its reply."""
        version = self._documents.version()
        committed = set() if version is None else self._documents.files(version).keys()
        places = (self._documents.place / path for path in self._uncommitted - committed)
        self._found.output.delete_files([place.path for place in places])

    def _bring_up_to_date(self) -> Ingested:
        columns = self._columns()
        joins_rows = bool(self._settings.order_columns) and not self._listing.reads_files
        schema = self._extended_schema(documents_schema(columns), adds_columns=joins_rows)
        if self._has_changes and joins_rows:
            self._apply_parts(columns=columns, schema=schema)
        elif self._has_changes:
            self._apply(self._read(columns=columns, schema=schema), schema=schema)
        self._require_documents()
        return self._ingested(columns=columns, schema=schema)

    def _require_documents(self) -> None:
        if any(file.num_rows for file in self._files.values()):
            return
        part = self._settings.slice
        of_slice = f" of slice {part}: divide the documents into fewer slices" if part else ""
        raise InputError(
            f"documents: the files at {', '.join(map(mask_url, self._found.config.documents))} hold no "
            f"document{of_slice}"
        )

    def _extended_schema(self, schema: pa.Schema, *, adds_columns: bool) -> pa.Schema:
        """The schema of the table, with the new columns of this job.

        With `adds_columns` the table gets them now. That is best done once the sources are read: a column that they
        turn out not to have would stay in the table for good, as text.
        """
        if self._table_schema is None:
            return schema
        require_own_columns(self._table_schema, self._found.output)
        new = pa.schema([field for field in schema if field.name not in self._table_schema.names])
        if adds_columns and new.names and self._scratch is None and self._has_changes:
            try:
                self._documents.add_columns(new, run=self._run, is_first=self._is_first)
            except FilesChangedError:
                self._read_table()
                return self._extended_schema(schema, adds_columns=True)
            self._is_first = False
            self._read_table()
        others = [field for field in self._table_schema if field.name not in schema.names]
        return pa.schema([*schema, *others])

    @property
    def _has_changes(self) -> bool:
        return bool(self._found.num_changed or self._changes.gone.num_rows)

    def _row_tasks(self, is_read: npt.NDArray[np.bool_]) -> list[RowTask]:
        """Tasks for data files, large ones in several."""
        tasks = plan_row_tasks(
            self._listing,
            is_read,
            settings=self._settings,
            storage_options=self._found.config.storage_options,
            num_cpus=self._executor.num_cpus,
        )
        split = [task for task in tasks if task.groups is not None]
        self._split_sources |= {name for task in split for name in unpack_rows(task.sources)["source"].to_pylist()}
        return tasks

    def _columns(self) -> tuple[StoredColumn, ...]:
        """The columns that `documents` holds beside its own."""
        settings = self._settings
        if self._listing.reads_files:
            return folder_columns(self._listing, settings)
        if not self._found.num_changed and self._table_schema is not None:
            return tuple(
                StoredColumn(name=name, stored=stored, type=self._table_schema.field(stored).type)
                for name, stored in settings.carried.items()
                if stored in self._table_schema.names
            )
        return find_columns(
            self._listing,
            self._changes.is_changed,
            settings=settings,
            options=self._found.config.storage_options,
            table=self._table_schema,
            search=self._search_columns,
        )

    def _search_columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Looks for columns in all sources that are read; see `search_columns`."""
        tasks = self._row_tasks(self._changes.is_changed)
        of_files = [task for task in tasks if task.groups is None or task.groups[0] == 0]
        if len(of_files) > 1:
            log.info(f"looking for {', '.join(map(repr, names))} in {self._found.num_changed:,} files")
        return self._executor.map(partial(search_columns, names=names, settings=self._row_settings(())), of_files)

    def _read(self, *, columns: tuple[StoredColumn, ...], schema: pa.Schema) -> Iterator[pa.Table]:
        """The reports of the tasks that read the changed sources."""
        config, context = self._found.config, self._context(schema)
        if not self._listing.reads_files:
            read = partial(read_rows, context=context, settings=self._row_settings(columns))
            tasks = self._row_tasks(self._changes.is_changed)
            old = pack_old_rows(self._read_stored(), [unpack_rows(task.sources)["source"] for task in tasks])
            with_rows = (replace(task, old_rows=rows) for task, rows in zip(tasks, old, strict=True))
            return self._executor.map(read, with_rows)
        read_file = partial(
            read_files,
            context=context,
            settings=FileSettings.of(config, documents=self._place, converters=self._found.converters),
        )
        return self._executor.map(read_file, self._file_tasks(columns), is_heavy=True)

    def _row_settings(self, columns: tuple[StoredColumn, ...]) -> RowSettings:
        return RowSettings(
            input=self._settings,
            columns=columns,
            place=self._listing.place,
            storage_options=self._found.config.storage_options,
        )

    def _context(self, schema: pa.Schema) -> TaskContext:
        return TaskContext(
            folder=self._scratch or self._documents.place,
            schema=schema,
            run_id=self._run.run_id,
            scope=self._found.scope,
            settings_hash=self._found.settings_hash,
        )

    def _file_tasks(self, columns: Sequence[StoredColumn]) -> Iterator[FileTask]:
        """Tasks for document files, each with the rows that the table has of them."""
        batches = plan_file_batches(self._listing, self._changes, columns, num_cpus=self._executor.num_cpus)
        names = [pa.array([file.name for file in batch], pa.large_string()) for batch in batches]
        old = pack_old_rows(self._read_stored(), names)
        return (FileTask(files=tuple(batch), old_rows=rows) for batch, rows in zip(batches, old, strict=True))

    def _apply(self, reports: Iterator[pa.Table], *, schema: pa.Schema) -> None:
        """Commits what tasks report: now and then, so that a kill costs little, and at the end."""
        waiting = list[pa.Table]()
        is_unchanged = pa.chunked_array([pa.array(~self._changes.is_changed)])
        unchanged = [filter_to_disk(self._listing.sources.select(["source"]), is_unchanged).cast(_SOURCE_NAMES)]
        pause, last = CHECKPOINT_SECONDS, time.monotonic()
        for report in reports:
            self._note_files(report)
            waiting.append(on_disk([report], schema=REPORTS))
            if self._scratch is None and time.monotonic() - last > pause:
                began = time.monotonic()
                whole, waiting = self._whole_sources(waiting)
                self._commit(whole, unchanged=pa.concat_tables(unchanged), schema=schema, is_last=False)
                unchanged += [each.select(["source"]).cast(_SOURCE_NAMES) for each in whole]
                last = time.monotonic()
                pause = max(CHECKPOINT_SECONDS, CHECKPOINT_SHARE * (last - began))
        self._commit(waiting, unchanged=pa.concat_tables(unchanged), schema=schema, is_last=True)

    def _note_files(self, report: pa.Table) -> None:
        if self._scratch is None:
            self._uncommitted |= {row["path"] for row in pc.list_flatten(report["files"]).to_pylist()}

    def _whole_sources(self, reports: list[pa.Table]) -> tuple[list[pa.Table], list[pa.Table]]:
        """Reports of sources that one task reads, and those of sources that several read, which wait for each other."""
        is_split = [not self._split_sources.isdisjoint(each["source"].to_pylist()) for each in reports]
        whole = [each for each, is_part in zip(reports, is_split, strict=True) if not is_part]
        return whole, [each for each, is_part in zip(reports, is_split, strict=True) if is_part]

    def _commit(self, reports: Sequence[pa.Table], *, unchanged: pa.Table, schema: pa.Schema, is_last: bool) -> None:
        """Commits the documents of the sources that tasks have reported.

        If another run commits to the table at the same moment, what changes is found again for its new state.
        """
        release_memory()
        reported = pa.concat_tables(reports) if reports else REPORTS.empty_table()
        warn_of_unfetched(reported)
        commit = partial(self._commit_documents_of, reported, unchanged=unchanged, schema=schema, is_last=is_last)
        removed = retry_conflicts(commit)
        self._commit_sources(reported, moved=removed, is_last=is_last)

    def _commit_documents_of(
        self, reported: pa.Table, *, unchanged: pa.Table, schema: pa.Schema, is_last: bool
    ) -> pa.Table:
        if self._scratch is None:
            self._read_table()
            schema = self._extended_schema(schema, adds_columns=True)
        is_same = reported["is_unchanged"]
        stays, read = (reported.select(["source"]).filter(each) for each in (is_same, pc.invert(is_same)))
        stored = self._read_stored()
        marked = mark_by_source(
            stored,
            read=read.cast(_SOURCE_NAMES),
            unchanged=pa.concat_tables([unchanged, stays.cast(_SOURCE_NAMES)]),
            is_last=is_last,
            may_move=is_last or not self._found.reads_files,  # the id of a document file begins with its source
        )
        batches = (pa.Table.from_batches([each]) for each in reported.to_batches())
        seen = on_disk(map(seen_documents, batches), schema=SEEN)
        if not stored.num_rows:
            require_readable(seen, reported)
        removed = find_removed(seen, marked, root=self._root)
        self._commit_documents(reported, removed, seen=seen, schema=schema)
        return removed

    def _read_stored(self) -> pa.Table:
        """The documents of the table, `STORED`."""
        return read_stored(self._documents, self._version, settings=self._settings)

    def _commit_documents(self, reported: pa.Table, removed: pa.Table, *, seen: pa.Table, schema: pa.Schema) -> None:
        self._rewritten += [
            removed.select(["document_id"]).cast(_IDS),
            filter_to_disk(seen.select(["document_id"]), seen["is_written"]).cast(_IDS),
        ]
        new = [TableFile(**row) for row in pc.list_flatten(reported["files"]).to_pylist()]
        add, remove = rewrite_files(
            self._files,
            removed,
            folder=self._documents.place,
            new=new,
            # slices commit at the same time: what one has merged, it would often have to merge again
            merges=self._scratch is None and self._settings.slice is None,
            run_tasks=self._executor.map,
            context=self._context(schema),
        )
        for file in remove:
            del self._files[file.path]
        self._files |= {file.path: file for file in add}
        if self._scratch is None:
            self._uncommitted |= {file.path for file in add}
        if self._scratch is None and (add or remove or self._version is None):
            self._version = self._documents.commit(
                run=self._run,
                schema=schema,
                add=add,
                remove=remove,
                is_first=self._is_first,
                is_serial=True,
                read_version=self._version,
            )
            self._is_first = False
            self._uncommitted -= {file.path for file in add}
        for file in remove:
            if self._added_files.pop(file.path, None) is None:
                self._removed_files.add(file.path)
        self._added_files |= {file.path: file for file in add}

    def _commit_sources(self, reported: pa.Table, *, moved: pa.Table, is_last: bool) -> None:
        if self._scratch is not None:
            return
        commit_sources(
            self._sources,
            reported,
            listed=self._listing.sources,
            gone=self._changes.gone if is_last else self._changes.gone.slice(0, 0),
            moved=moved.slice(0, 0) if is_last else moved,
            scope=self._found.scope,
            run=self._run,
            place=sources_place(self._found.config),
        )

    def _apply_parts(self, *, columns: tuple[StoredColumn, ...], schema: pa.Schema) -> None:
        """Reads and joins documents of many rows, and commits them."""
        folder = (self._scratch or self._found.output) / INGEST_FOLDER / self._run.run_id

        def join() -> None:
            try:
                self._join(columns=columns, schema=schema, folder=folder)
            except FilesChangedError:
                self._read_table()
                raise
            finally:
                folder.delete_files(folder.files())
                if folder.is_local:
                    rmtree(folder.path, ignore_errors=True)

        retry_conflicts(join)

    def _join(self, *, columns: tuple[StoredColumn, ...], schema: pa.Schema, folder: Location) -> None:
        context, settings = self._context(schema), self._row_settings(columns)
        stored = self._read_stored()
        part_sources = read_part_sources(self._documents, self._version)
        source_bytes = self._found.changed_bytes
        table_bytes = sum(file.num_bytes for file in self._files.values())
        num_buckets = choose_buckets(source_bytes=source_bytes, table_bytes=table_bytes)
        read = partial(read_parts, context=context, settings=settings, folder=folder, num_buckets=num_buckets)
        reports = [READ_PARTS.empty_table()]
        is_read = was_read = self._changes.is_changed
        while True:
            read_now = self._executor.map(read, self._row_tasks(is_read))
            reports += [on_disk([report], schema=READ_PARTS) for report in read_now]
            reported = pa.concat_tables(reports)
            changes = PartChanges(
                stored=stored,
                part_sources=part_sources,
                read_documents=read_ids(reports),
                changed_sources=pa.concat_tables(
                    [
                        reported.select(["source"]).filter(pc.invert(reported["is_unchanged"])).cast(_SOURCE_NAMES),
                        self._changes.gone.cast(_SOURCE_NAMES),
                    ]
                ),
            )
            further = changes.unreadable_sources()
            if not further:
                break
            is_further = pc.is_in(self._listing.sources["source"], value_set=pa.array(further, pa.large_string()))
            is_read = np.asarray(is_further.to_numpy(), dtype=bool) & ~was_read
            was_read = was_read | is_read
            if not is_read.any():
                break
        joins = plan_joins(
            changes,
            pc.list_flatten(reported["groups"]).to_pylist(),
            num_buckets=num_buckets,
            source_bytes=source_bytes,
            num_cpus=self._executor.num_cpus,
        )
        join = partial(join_parts, context=context, settings=settings, folder=folder, root=self._root)
        joined = list[pa.Table]()
        for report in self._executor.map(join, joins):
            self._note_files(report)
            joined.append(on_disk([report], schema=REPORTS))
        seen = on_disk(map(seen_documents, joined), schema=SEEN)
        if not stored.num_rows:
            require_readable(seen, reported)
        removed = find_removed(seen, mark_by_id(stored, changes.affected()), root=self._root)
        files = pa.concat_tables(joined) if joined else REPORTS.empty_table()
        self._commit_documents(files, removed, seen=seen, schema=schema)
        self._commit_sources(reported.select(REPORTS.names), moved=removed, is_last=True)

    def _ingested(self, *, columns: Sequence[StoredColumn], schema: pa.Schema) -> Ingested:
        counts = self._count_documents(schema)
        return Ingested(
            output=self._found.output,
            documents_version=self._version,
            files=tuple(map(self._file_place, self._files)),
            num_documents=sum(file.num_rows for file in self._files.values()),
            schema=schema,
            counts={
                "sources": self._found.num_sources,
                "sources_read": self._found.num_changed,
                "sources_gone": self._changes.gone.num_rows,
                **{f"documents_{name}": num for name, num in counts.items()},
            },
            left_out=self._listing.left_out,
            versions=self._listing.versions,
            columns=tuple(column.stored for column in columns if column.is_carried),
            is_committed=self._scratch is None,
        )

    def _count_documents(self, schema: pa.Schema) -> dict[str, int]:
        """Documents `added`, `changed` and `removed`; see `count_changes`."""
        if not self._removed_files:  # as on the first night, whose files need not be read for this
            return {"added": sum(file.num_rows for file in self._added_files.values()), "changed": 0, "removed": 0}
        removed, added = ([*map(self._file_place, paths)] for paths in (self._removed_files, self._added_files))
        return count_changes(removed, added, rewritten=pa.concat_tables(self._rewritten), schema=schema)

    def _file_place(self, path: str) -> Location:
        """The place of a file of the table, or of `scratch`."""
        return (self._scratch if self._scratch and path in self._added_files else self._documents.place) / path


def warn_of_unfetched(reported: pa.Table) -> None:
    """Logs the first sources that could not be fetched now."""
    lost = reported.select(["source", "losses"]).filter(reported["is_retried"])
    for row in lost.slice(0, LOGGED_SOURCES).to_pylist():
        log.warning(f"not read: {row['source']}: {row['losses'][-1]['detail']}; the next ingest tries again")
    if lost.num_rows > LOGGED_SOURCES:
        more = quantity(lost.num_rows - LOGGED_SOURCES, "more source")
        log.warning(f"not read: {more}; see the table {SOURCES_TABLE}")
