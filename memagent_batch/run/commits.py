"""How a run commits its tables: all of them, or none, whenever a process is killed.

1. The run notes in its row of `runs` which files it adds to each table and removes: the row is `committing` now. Only
   one row can be.
2. Each table gets its files in one commit, which carries the run's number. The table refuses to take it twice.
3. The row names the versions of the tables: the run has finished.

A run that finds another row committing does its steps 2 and 3, and then begins its own. So a run that was killed after
the first step is ended by the next one, and a run that was killed before it has changed no table.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from memagent_batch.data.store.delta import FilesChangedError, OutputTable, RunNumber, TableFile, retry_conflicts
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError, SupersededError
from memagent_batch.run.history import (
    COMMITTING,
    FINISHED,
    RunRow,
    commit_row,
    commit_row_at,
    ended_columns,
    make_row,
    read_rows,
)
from memagent_batch.run.manifest import Manifest, RunRecord
from memagent_batch.run.tables import ANSWERS_TABLE, DOCUMENT_ID, RUNS_TABLE

_COMMITS = "commits"
"""Where the manifest of a run that commits has the files of each table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUpdate:
    """What a run changes in one table."""

    schema: pa.Schema
    partition_by: Sequence[str] = ()
    kept: Sequence[TableFile] = ()
    added: Sequence[TableFile] = ()
    removed: Sequence[TableFile] = ()
    replaces_all: bool = False
    """Whether the table gets another schema, and all files are new."""
    is_of_run: bool = True
    """Whether the run has the table; else its rows go."""

    @property
    def files(self) -> list[TableFile]:
        """All files of the table after the update."""
        return [*self.kept, *self.added]


def commit_run(
    output: Location,
    run: RunNumber,
    record: RunRecord,
    updates: Mapping[str, TableUpdate],
    manifest: Mapping[str, Any],
    *,
    state: str = FINISHED,
) -> Manifest:
    """Commits the tables of a run, and last its row; returns its manifest.

    Args:
        output: The output.
        run: The run.
        record: What it was asked.
        updates: What changes in each table, in the order of the commits.
        manifest: Its manifest, without the versions of the tables and the digest.
        state: The state of the run when the tables are committed.

    Raises:
        FilesChangedError: another run has changed the tables since the updates were made. Nothing was committed.
        SupersededError: a newer run has begun. It ends what this one has begun to commit.
    """
    commits = {name: _to_json(update) for name, update in updates.items()}
    noted = {**manifest, _COMMITS: {"tables": commits, "state": state, "num_erasures": run.num_erasures}}
    ended = ended_columns({**noted, "table_versions": {}, "digest": None})
    row = cast("RunRow", {**make_row(run, record), **ended, "state": COMMITTING})
    runs = OutputTable(output=output, name=RUNS_TABLE)

    def note() -> None:
        version = runs.version()
        while end_commits(output, run):
            version = runs.version()
        for name, update in updates.items():
            _require_same_files(OutputTable(output=output, name=name), update)
        commit_row_at(runs, version, run, row, is_serial=True)

    retry_conflicts(note)
    return _end_commit(output, row, run=run)


def end_commits(output: Location, run: RunNumber) -> int:
    """Ends the commits that other runs have begun, which may still be at work or were killed; returns their number.

    Raises:
        SupersededError: a run newer than `run` has begun.
    """
    rows = read_rows(output, only=ds.field("state") == COMMITTING)
    for row in rows:
        _end_commit(output, row, run=run)
    return len(rows)


def _end_commit(output: Location, row: RunRow, *, run: RunNumber) -> Manifest:
    """Commits the tables of a row that is committing, if they are not yet, and its end; `run` does it."""
    manifest = json.loads(row["manifest"] or "")
    noted = manifest.pop(_COMMITS)
    owner = RunNumber(
        number=row["number"], run_id=row["run_id"], writer=row["writer"], num_erasures=noted["num_erasures"]
    )
    versions, files = dict[str, int](), dict[str, list[str]]()
    for name, commit in noted["tables"].items():
        table, update = OutputTable(output=output, name=name), _from_json(commit)
        _commit_once(table, update, run=owner)
        if update.is_of_run:
            versions[name], files[name] = table.version() or 0, [*table.files()]
    manifest |= {"table_versions": versions, "digest": digest_of(files, before=manifest["digest_before"])}
    ended = cast("RunRow", {**row, **ended_columns(manifest), "state": noted["state"]})
    commit_row(output, run, ended, after_state=COMMITTING)
    return cast("Manifest", manifest)


def _commit_once(table: OutputTable, update: TableUpdate, *, run: RunNumber) -> None:
    """Commits an update, if there is something to do, unless it was committed before.

    Raises:
        OutputError: files that the update removes are not in the table: their rows would be there twice.
    """
    is_empty = not update.added and not update.removed and not update.replaces_all
    version = table.version()
    if (is_empty and version is not None) or table.run_number(run.writer) >= run.number:
        return
    if update.removed and not update.replaces_all and not _has_files(table, update.removed, version=version):
        raise OutputError(
            f"output: run {run.run_id} was killed while it changed {table.place}, and another program has rewritten "
            f"the files of the table since; restore the version before that ({_last_version(table, update.removed)}) "
            "with `DeltaTable.restore`, and run the same command again"
        )
    try:
        table.commit(
            run=run,
            schema=update.schema,
            add=update.added,
            remove=() if update.replaces_all else update.removed,
            partition_by=update.partition_by,
            replaces_all=update.replaces_all,
            is_first=True,
            read_version=version,
        )
    except SupersededError:
        if table.run_number(run.writer) < run.number:  # else another run has committed it at the same moment
            raise


def _has_files(table: OutputTable, files: Sequence[TableFile], *, version: int | None) -> bool:
    """Whether a version of a table has all of these files."""
    return {file.path for file in files} <= table.files(version).keys()


def _last_version(table: OutputTable, files: Sequence[TableFile]) -> int | str:
    """The latest version that has all of these files, for a message."""
    versions = (int(commit["version"]) for commit in table.history(since=-1))
    return next((each for each in versions if _has_files(table, files, version=each)), "it was vacuumed")


def _require_same_files(table: OutputTable, update: TableUpdate) -> None:
    """Returns if an update fits the files that a table has now: other runs may have committed meanwhile.

    Raises:
        FilesChangedError: files that the update removes are gone, the table has another schema, or other files have
            rows of the documents of the added ones.
    """
    if not table.exists():
        return
    there, removed = table.files(), {file.path for file in update.removed}
    others = [file for path, file in there.items() if path not in removed | {file.path for file in update.kept}]
    is_same = removed <= there.keys() and not (update.replaces_all and others)
    if is_same and update.added and not update.replaces_all:
        is_same = table.has_layout(update.schema, update.partition_by)
    if is_same and others and table.name == ANSWERS_TABLE:
        ids = [table.dataset_of(files, pa.schema([DOCUMENT_ID])).to_table()[0] for files in (update.added, others)]
        is_same = not pc.any(pc.is_in(ids[0], value_set=ids[1].combine_chunks()), min_count=0).as_py()
    if not is_same:
        raise FilesChangedError(
            f"output: another run has changed files of {table.place} that this one replaces too; run the same command "
            "again. What was read is in the log, and is not read again"
        )


def digest_of(files: Mapping[str, Sequence[str]], *, before: str) -> str:
    """SHA-256 over the names of the files of each table, which hold their hashes, and the digest of the run before."""
    lines = sorted(f"{table}/{path}" for table, paths in files.items() for path in paths)
    return sha256("\n".join([before, *lines]).encode()).hexdigest()


def _to_json(update: TableUpdate) -> dict[str, Any]:
    return {
        "schema": b64encode(update.schema.serialize().to_pybytes()).decode(),
        "partition_by": [*update.partition_by],
        "added": [asdict(file) for file in update.added],
        "removed": [asdict(file) for file in update.removed],
        "replaces_all": update.replaces_all,
        "is_of_run": update.is_of_run,
    }


def _from_json(commit: Mapping[str, Any]) -> TableUpdate:
    files = {name: [TableFile(**file) for file in commit[name]] for name in ("added", "removed")}
    return TableUpdate(**{**commit, **files, "schema": pa.ipc.read_schema(pa.py_buffer(b64decode(commit["schema"])))})
