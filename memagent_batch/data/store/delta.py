"""The Delta tables of an output. Tasks write Parquet files; the driver commits them; anyone reads any version.

Every commit of a run carries the run's number as an application transaction. A table refuses the commit of a run whose
number is smaller than the one it has seen: a run that was replaced by a newer one can't change anything any more.
"""

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem, SubTreeFileSystem

from memagent_batch.data.store.deltalake_options import deltalake_options, deltalake_uri
from memagent_batch.data.store.errors import storage_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes
from memagent_batch.errors import ErasedError, OutputError, StorageError, StorageOutageError, SupersededError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltalake import CommitProperties, DeltaTable

Result = TypeVar("Result")

UNCOMMITTED_DAYS = 1.0
"""Age from which a file that no commit names is taken for a leftover of a run that was killed, days."""
HASH_DIGITS = 16
"""Hex digits of a file's SHA-256 in its name."""
CONFIGURATION: Mapping[str, str] = {
    "delta.enableChangeDataFeed": "true",
    "delta.checkpointInterval": "10",
    "delta.logRetentionDuration": "interval 3650 days",
}
"""Properties of the tables. deltalake reads all commits since the last checkpoint whenever it is asked something of a
table, and a night asks some hundred times: with 100 commits between checkpoints, its default, that took an object store
thousands of requests. `record.keep_days` alone says how long versions are kept."""
COMMIT_TRIES, COMMIT_PAUSE_SECONDS = 6, 2.0
"""How often a commit is tried on a store that does not answer, beside deltalake's own tries, and the pause between."""
CONFLICT_TRIES, CONFLICT_PAUSE_SECONDS = 20, 0.1
"""How often a commit is made again for what other runs have committed meanwhile, and what its pauses grow by."""
COMMIT_ID = "commit_id"
"""Text in the history of a table by which a commit is found of which no reply came."""
ERASER = "memagent/forget"
"""Writer of `memagent forget`, whose commits end all runs that began before."""
SERIAL = "memagent/serial"
"""Application transaction of serial commits: of two that were made for the same version, one is refused."""
_OPENED: ContextVar[dict[tuple[str, int | None], "DeltaTable"] | None] = ContextVar("opened", default=None)
"""Tables that are open, by place and version; None outside `shared_tables`."""


@contextmanager
def shared_tables() -> "Iterator[None]":
    """The block, or as a decorator the function, in which a table's log is read once and then only followed."""
    if _OPENED.get() is not None:
        yield
        return
    token = _OPENED.set({})
    try:
        yield
    finally:
        _OPENED.reset(token)


class FilesChangedError(SupersededError):
    """Another run has changed files of a table, for which what this one would commit was not made."""


def retry_conflicts(attempt: Callable[[], Result]) -> Result:
    """Calls `attempt`, which makes a commit for the newest state of the tables, until no other run commits meanwhile.

    Raises:
        FilesChangedError: other runs commit again and again.
    """
    for number in range(1, CONFLICT_TRIES):
        try:
            return attempt()
        except FilesChangedError:
            time.sleep(random.uniform(0, number * CONFLICT_PAUSE_SECONDS))
    return attempt()


class _KnownSizes(FSSpecHandler):  # type: ignore[misc]  # pyarrow has no types
    """Opens files of a bucket without asking for their sizes, which are known: two requests less for each file."""

    def __init__(self, fs: Any, sizes: Mapping[str, int]) -> None:
        """`sizes`: bytes of each file, by its path; others may be opened too."""
        super().__init__(fs)
        self._sizes = sizes

    def open_input_file(self, path: str) -> pa.PythonFile:
        size = self._sizes.get(path)
        if size is None:
            return super().open_input_file(path)
        file = self.fs.open(path, mode="rb", size=size)
        file.details = {"name": path, "size": size, "type": "file"}  # s3fs would ask for them
        return pa.PythonFile(file, mode="r")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNumber:
    """Which run commits. Numbers of one writer grow; only `ERASER` fences others."""

    number: int
    run_id: str
    writer: str = "memagent"
    """Name of the application transaction: one for an output, and one for each slice of a corpus."""
    num_erasures: int = 0
    """Number of the last `memagent forget` that began before this run: it can't commit after a later one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A Parquet file of a table."""

    path: str
    """Below the folder of the table. The name ends with the first digits of the file's SHA-256."""
    num_bytes: int
    num_rows: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    """Values of the partition columns."""


def write_table_files(
    folder: Location, rows: pa.Table, *, stem: str, partition_by: Sequence[str] = (), row_group_rows: int = 65_536
) -> list[TableFile]:
    """Writes rows as Parquet, zstd: one file, or one for each value of the partition columns.

    Args:
        folder: The folder of the table.
        rows: Rows of the table's schema. Without rows nothing is written.
        stem: Beginning of the names. They end with a part of the content's hash, so a repeated task that writes other
            bytes never overwrites a file that is in use.
        partition_by: Columns that the table is partitioned by.
        row_group_rows: Most rows of a row group.

    Raises:
        StorageError: a file can't be written.
    """
    files = []
    for values, part in _partitions(rows, partition_by):
        data = parquet_bytes(part, group_rows=row_group_rows)
        name = f"{stem}-{sha256(data).hexdigest()[:HASH_DIGITS]}.parquet"
        (folder / name).write_bytes(data)
        files.append(TableFile(path=name, num_bytes=len(data), num_rows=part.num_rows, partition=values))
    return files


def _partitions(rows: pa.Table, partition_by: Sequence[str]) -> "Iterator[tuple[dict[str, str | None], pa.Table]]":
    if not rows.num_rows:
        return
    if not partition_by:
        yield {}, rows
        return
    # by texts: NaN does not equal itself, and 0.0 equals -0.0
    texts = {column: [_partition_text(value) for value in rows[column].to_pylist()] for column in partition_by}
    numbers: dict[tuple[str | None, ...], list[int]] = {}
    for number, values in enumerate(zip(*texts.values(), strict=True)):
        numbers.setdefault(values, []).append(number)
    for values, of_part in numbers.items():
        part = rows.take(of_part)  # with these columns: Polars takes them from the file
        yield dict(zip(partition_by, values, strict=True)), part


def _partition_text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def named_hash(path: str) -> str:
    """The digits of the content's SHA-256 in the name of a table file."""
    return path.rpartition("-")[2].removesuffix(".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTable:
    """A Delta table below an output."""

    output: Location
    name: str

    @property
    def place(self) -> Location:
        """The folder of the table."""
        return self.output / self.name

    def dataset_if_there(self) -> ds.Dataset | None:
        """The latest version; None if the table was not created yet."""
        with storage_errors(self.place.uri):
            table = self._open()
            return None if table is None else self._dataset_of(table)

    def exists(self) -> bool:
        """Whether the table was created."""
        return self._open() is not None

    def open(self, version: int | None = None) -> "DeltaTable":
        """The table at a version, by default the latest.

        Raises:
            OutputError: there is no such table or version.
            StorageError: the store does not answer.
        """
        table = self._open(version)
        if table is None:
            at = "" if version is None else f" at version {version}"
            raise OutputError(
                f"output: {self.place} has no Delta table{at}; run the same command to its end, or choose a version "
                "that `VACUUM` has kept"
            )
        return table

    def version(self) -> int | None:
        """The latest version; None if the table was not created yet."""
        table = self._open()
        return None if table is None else int(table.version())

    def run_number(self, writer: str) -> int:
        """The largest number of a run of this writer that has committed; 0 if none has."""
        table = self._open()
        return 0 if table is None else self._number(table, writer)

    def require_newest(self, run: RunNumber) -> None:
        """Returns if no newer run of the same writer has committed, and no erasure that the run does not know.

        Raises:
            SupersededError: one has.
            StorageError: nobody can tell: the store does not answer.
        """
        table = self._open()
        if table is not None:
            self._require_newest(table, run)

    def _require_newest(self, table: "DeltaTable", run: RunNumber, *, is_first: bool = False) -> None:
        known = {ERASER: run.num_erasures, run.writer: run.number - is_first}
        newer = [writer for writer, number in known.items() if self._number(table, writer) > number]
        if newer:
            kind = ErasedError if ERASER in newer else SupersededError
            raise kind(
                f"output: {self.output} was taken over by a newer run; this one, run {run.run_id}, leaves and changes "
                "nothing. What it has read is in the log, and is not read again"
            )

    def _number(self, table: "DeltaTable", writer: str) -> int:
        """The number of an application transaction in a version of the table; 0 if it has none."""
        with storage_errors(self.place.uri):  # it may read the log
            return int(table.transaction_version(writer) or 0)

    def schema(self, version: int | None = None) -> pa.Schema:
        """The schema as Arrow."""
        return self.dataset(version).schema

    def has_layout(self, schema: pa.Schema, partition_by: Sequence[str], *, version: int | None = None) -> bool:
        """Whether the table has the columns of a schema with their types, and is partitioned by these."""
        from deltalake import Schema

        wanted = pa.schema(Schema.from_arrow(schema).to_arrow())  # Delta has one type for each kind of text
        types, wanted_types = ({field.name: field.type for field in each} for each in (self.schema(version), wanted))
        return types == wanted_types and self.open(version).metadata().partition_columns == [*partition_by]

    def dataset(self, version: int | None = None) -> ds.Dataset:
        """A version as an Arrow dataset: it streams, and reads only the columns and files that are asked for."""
        with storage_errors(self.place.uri):
            return self._dataset_of(self.open(version))

    def _dataset_of(self, table: "DeltaTable") -> ds.Dataset:
        # with deltalake's own file system, Python may abort when it exits
        fs: FileSystem = LocalFileSystem()
        if not self.place.is_local:
            fs = PyFileSystem(self._files_of_known_size(table) if self.place.is_s3 else FSSpecHandler(self.place.fs))
        return table.to_pyarrow_dataset(filesystem=SubTreeFileSystem(self.place.path, fs))

    def _files_of_known_size(self, table: "DeltaTable") -> "_KnownSizes":
        actions = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"])
        paths, sizes = (column.to_pylist() for column in actions.columns)
        return _KnownSizes(
            self.place.fs, {f"{self.place.path}/{unquote(path)}": size for path, size in zip(paths, sizes, strict=True)}
        )

    def dataset_of(self, files: Iterable[TableFile], schema: pa.Schema) -> ds.Dataset:
        """Files of the table, which may not be committed yet, as a dataset of these columns."""
        paths = [(self.place / file.path).path for file in files]
        if not paths:
            return ds.dataset(schema.empty_table())
        return ds.dataset(paths, filesystem=self.place.fs, format="parquet", schema=schema)

    def files(self, version: int | None = None) -> dict[str, TableFile]:
        """The files of a version, by their paths below the table."""
        with storage_errors(self.place.uri):
            table = self.open(version)
            columns = list(table.metadata().partition_columns)
            actions = pa.table(table.get_add_actions(flatten=True))
        return {
            row["path"]: TableFile(
                path=row["path"],
                num_bytes=row["size_bytes"],
                num_rows=row["num_records"] or 0,
                partition={column: _partition_text(row[f"partition.{column}"]) for column in columns},
            )
            for row in actions.to_pylist()
        }

    def commit(
        self,
        *,
        run: RunNumber,
        schema: pa.Schema,
        add: Iterable[TableFile] = (),
        remove: Iterable[TableFile] = (),
        partition_by: Sequence[str] = (),
        replaces_all: bool = False,
        is_first: bool = False,
        is_serial: bool = False,
        read_version: int | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Commits files in one transaction, and creates the table if it is not there; returns the new version.

        Args:
            run: The run that commits.
            schema: The schema of the table.
            add: Files that tasks have written.
            remove: Files of the latest version whose rows are no longer those of the table.
            partition_by: Columns that the table is partitioned by.
            replaces_all: Whether the added files are all files from now on; the schema may differ then.
            is_first: Whether the run commits to the table once: nothing is committed if it has done so already.
            is_serial: Whether nothing is committed if another serial commit was made after `read_version`.
            read_version: The version that the changes were made for, by default the latest. Of a serial commit, None
                says that there was no table.
            metadata: Texts for the table's history, beside the run's id.

        Raises:
            SupersededError: a newer run has committed to the table; nothing was changed.
            FilesChangedError: another run has committed something that this commit does not know; nothing was changed.
            StorageError: the store does not answer.
        """
        table = self._open(0 if is_serial and read_version is None else read_version)
        if table is None:
            table = self._create(schema, partition_by)
        commit = partial(
            table.create_write_transaction,
            _actions(add, remove),
            "overwrite" if replaces_all else "append",
            schema,
            partition_by=list(partition_by) or None,
        )
        return self._commit_once(table, commit, run=run, is_first=is_first, is_serial=is_serial, metadata=metadata)

    def add_columns(self, columns: pa.Schema, *, run: RunNumber, is_first: bool = False) -> None:
        """Adds columns, which are null in all rows of the table, in a commit; see `commit`.

        Raises:
            SupersededError: a newer run has committed to the table.
            FilesChangedError: another run has committed to it at the same moment.
            StorageError: the store does not answer.
        """
        from deltalake import Schema

        table = self.open()
        commit = partial(table.alter.add_columns, Schema.from_arrow(columns).fields)
        self._commit_once(table, commit, run=run, is_first=is_first)

    def _commit_once(
        self,
        table: "DeltaTable",
        commit: Callable[..., object],
        *,
        run: RunNumber,
        is_first: bool,
        is_serial: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Calls `commit` with its properties until it is made; returns its version.

        A request whose reply was lost may have been carried out. It is repeated below deltalake, which then takes its
        own commit for that of another run, or by this method. So a commit that fails is first looked for by its id. As
        it has an application transaction, deltalake never makes it twice.
        """
        self._require_newest(table, run, is_first=is_first)
        commit_id, since = uuid4().hex, int(table.version())
        transactions = {run.writer: run.number}
        if is_serial:
            transactions[SERIAL] = self._number(table, SERIAL) + 1
        properties = _properties(run, transactions, {**(metadata or {}), COMMIT_ID: commit_id})
        for tries_left in reversed(range(COMMIT_TRIES)):
            try:
                with storage_errors(self.place.uri, done="written"), self._conflicts(run):
                    commit(commit_properties=properties)
                break
            except (FilesChangedError, StorageOutageError) as error:
                if self._find_commit(commit_id, since=since) is not None:
                    break
                if isinstance(error, FilesChangedError):
                    self._require_newest(self.open(), run, is_first=is_first)
                    raise
                if not tries_left:
                    raise
                time.sleep(COMMIT_PAUSE_SECONDS)
        version = self._find_commit(commit_id, since=since)
        if version is None:
            raise StorageError(f"{self.place} has no trace of a commit that it took; was it restored meanwhile?")
        return version

    def _find_commit(self, commit_id: str, *, since: int) -> int | None:
        """The version after `since` that a commit has made; None if it was not made."""
        commits = self._commits(range(self.version() or 0, since, -1))
        return next((int(each["version"]) for each in commits if each.get(COMMIT_ID) == commit_id), None)

    def history(self, *, since: int) -> list[dict[str, Any]]:
        """The commits after a version, newest first: `version`, `timestamp` (milliseconds), and texts of the run."""
        latest = self.version()
        return [] if latest is None else [*self._commits(range(latest, since, -1))]

    def _commits(self, versions: Iterable[int]) -> "Iterator[dict[str, Any]]":
        """What is recorded of commits. `DeltaTable.history` would block all threads of this process meanwhile."""
        for version in versions:
            file = self.place / "_delta_log" / f"{version:020}.json"
            with storage_errors(file.uri):
                actions = [json.loads(line) for line in file.read_bytes().splitlines()]
            infos = (action["commitInfo"] for action in actions if "commitInfo" in action)
            yield {**next(infos, {}), "version": version}

    def vacuum(self, *, days: float, uncommitted_days: float = UNCOMMITTED_DAYS) -> int:
        """Deletes files that no version younger than this refers to; returns their number.

        Files that no commit names may belong to a run that has not committed yet: only those older than
        `uncommitted_days` are deleted.
        """
        with storage_errors(self.place.uri, done="removed"):
            removed = self._vacuum(max(days, uncommitted_days), full=True)
            if days < uncommitted_days:
                removed += self._vacuum(days, full=False)
        return len(removed)

    def _vacuum(self, days: float, *, full: bool) -> list[str]:
        hours = ceil(days * 24)
        table = self.open()
        return list(table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=full))

    def _open(self, version: int | None = None) -> "DeltaTable | None":
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        place, opened = self.place, _OPENED.get()
        uri = deltalake_uri(place)
        table = opened.get((uri, version)) if opened is not None else None
        with storage_errors(place.uri):
            try:
                if table is None:
                    table = DeltaTable(uri, version=version, storage_options=deltalake_options(place.storage_options))
                elif version is None:
                    table.update_incremental()  # a listing, and the commits that are new
            except TableNotFoundError:
                return None
            except DeltaError:
                if version is None:
                    raise
                return None  # the version is not there
        if opened is not None:
            opened[uri, version] = table
        return table

    def _create(self, schema: pa.Schema, partition_by: Sequence[str]) -> "DeltaTable":
        from deltalake import DeltaTable

        place = self.place
        for tries_left in reversed(range(COMMIT_TRIES)):
            try:
                with storage_errors(place.uri, done="written"):
                    DeltaTable.create(
                        deltalake_uri(place),
                        schema,
                        mode="ignore",  # another run may create it at the same moment
                        partition_by=list(partition_by) or None,
                        configuration={**CONFIGURATION},
                        storage_options=deltalake_options(place.storage_options),
                    )
                break
            except StorageOutageError:
                if not tries_left:
                    raise
                time.sleep(COMMIT_PAUSE_SECONDS)
        return self.open(0)

    @contextmanager
    def _conflicts(self, run: RunNumber) -> "Iterator[None]":
        from deltalake.exceptions import CommitFailedError

        try:
            yield
        except CommitFailedError as error:
            raise FilesChangedError(
                f"output: another run has changed {self.place} at the same moment as run {run.run_id}; run the "
                "same command again. What was read is in the log, and is not read again"
            ) from error


def _actions(add: Iterable[TableFile], remove: Iterable[TableFile]) -> list[Any]:
    """The actions of a transaction."""
    from deltalake.transaction import AddAction, RemoveAction

    now = int(time.time() * 1000)
    added = [
        AddAction(
            path=file.path,
            size=file.num_bytes,
            partition_values={**file.partition},
            modification_time=now,
            data_change=True,
            stats=json.dumps({"numRecords": file.num_rows}),
        )
        for file in add
    ]
    removed = [
        RemoveAction(
            path=file.path,
            data_change=True,
            deletion_timestamp=now,
            size=file.num_bytes,
            partition_values={**file.partition},
        )
        for file in remove
    ]
    return [*added, *removed]


def _properties(run: RunNumber, transactions: Mapping[str, int], metadata: Mapping[str, str]) -> "CommitProperties":
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        app_transactions=[Transaction(*each) for each in transactions.items()],
        custom_metadata={"run_id": run.run_id, **metadata},
    )
