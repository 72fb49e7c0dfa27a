"""The table `runs`: one row for each run, written when it begins and again when it has finished.

A row names the versions of all tables as its run left them: tables that are read at the versions of one row fit each
other.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, Any, TypedDict, cast

import pyarrow as pa
import pyarrow.dataset as ds

from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE
from memagent_batch.data.store.columns import Column, arrow_schema
from memagent_batch.data.store.delta import (
    ERASER,
    OutputTable,
    RunNumber,
    TableFile,
    retry_conflicts,
    write_table_files,
)
from memagent_batch.data.store.errors import output_errors, table_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.question_list import read_asked
from memagent_batch.data.store.turn_log.writer import new_run_id
from memagent_batch.errors import OutputError, StorageError, SupersededError
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.run.document_texts import documents_of
from memagent_batch.run.manifest import FORMAT, Manifest, RunRecord
from memagent_batch.run.tables import EVIDENCE, EVIDENCE_TABLE, LATEST, READING_TABLES, RUNS_TABLE

PREVIOUS = "previous"
"""Names the finished run before it."""
RUNNING, COMMITTING, ERASING, FINISHED = "running", "committing", "erasing", "finished"
"""States of a run. One that is erasing is a `memagent forget` that now deletes the files of earlier versions."""
SUPERSEDED = "superseded"
"""State of a run that was running when a newer one of its writer began, or a `memagent forget`: it can't commit."""
HAS_ENDED = ds.field("state").isin([ERASING, FINISHED])
SHOWN_RUNS = 10
GONE_REMEDY = "`VACUUM` may have removed it: look at a later run, or raise record.keep_days"
OLD_FILES = ("manifest.json", "run.json")
"""Files of an output of an earlier version."""
COMPACT_FILES = 16
"""When `runs` has so many files, those of runs that have ended are written as one. Each night adds a file, and reads
all of them many times."""
UNFINISHED_COLUMNS = ["run_id", "writer", "state", "started_at", "documents_forgotten"]
"""Columns that `unfinished_runs` looks at."""
_PENDING_COLUMNS = ["run_id", "state", "documents_forgotten"]
"""Columns by which an erasure is found that has not ended."""
_BEGIN_TRIES = 20


class RunRow(TypedDict):
    """One row for each run."""

    run_id: Annotated[str, Column("the run")]
    number: Annotated[int, Column("its number among the runs of its writer, from 1")]
    writer: Annotated[str, Column("application transaction of its commits; each slice has its own")]
    state: Annotated[
        str,
        Column(
            "running (or killed, or stopped by an error), superseded (a later run took over before it had finished), "
            "committing (if it was killed, the next run completes its commits), finished, or erasing (the same command "
            "continues)"
        ),
    ]
    started_at: Annotated[datetime, Column("when it began")]
    finished_at: Annotated[datetime | None, Column("when it finished")]
    fingerprint: Annotated[str, Column("hash of the agent, hex")]
    readings: Annotated[int, Column("readings asked for", "readings")]
    ok: Annotated[int | None, Column("of these, with an answer", "readings")]
    failed: Annotated[int | None, Column("of these, failed", "readings")]
    not_read: Annotated[int | None, Column("of these, for the next run to read", "readings")]
    answers_changed: Annotated[
        int | None, Column("rows of `answers` that are new, gone, or differ in answer, value or status", "rows")
    ]
    documents_added: Annotated[int | None, Column("documents that the run before did not have", "documents")]
    documents_changed: Annotated[int | None, Column("documents with another text", "documents")]
    documents_removed: Annotated[int | None, Column("documents that are gone", "documents")]
    documents_forgotten: Annotated[
        int | None, Column("documents deleted by `memagent forget`; null for other runs", "documents")
    ]
    seconds: Annotated[float | None, Column("how long it took", "seconds")]
    answers_version: Annotated[int | None, Column("version of `answers` after it")]
    digest: Annotated[
        str | None, Column("SHA-256 over the files of all tables after it, and the digest of the run before")
    ]
    record: Annotated[str, Column("questions, settings, and what the server of an endpoint says of itself, as JSON")]
    manifest: Annotated[str | None, Column("counts, reasons, changes, versions, timings, as JSON; null until it ends")]


RUNS = arrow_schema(RunRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A finished run."""

    output: Location
    run_id: str
    manifest: Manifest

    @property
    def questions(self) -> pa.Table:
        """Its question list, as `PlannedQuestions.hashed`."""
        return read_asked(self.output, asked_id=self.manifest["asked_id"])

    def table(self, name: str) -> OutputTable:
        """A table of its output."""
        return OutputTable(output=self.output, name=name)

    def version(self, name: str) -> int:
        """The version of a table as the run left it.

        Raises:
            OutputError: the run has no such table; names those that it has.
        """
        versions = self.manifest["table_versions"]
        if name not in versions:
            has_typed = "; give questions an answer_type" if name == "results" else ""
            raise OutputError(
                f"output: run {self.run_id} has no table {name!r}; it has {', '.join(sorted(versions))}{has_typed}"
            )
        return versions[name]

    def dataset(self, name: str) -> ds.Dataset:
        """A table as the run left it.

        Raises:
            OutputError: the run has no such table, or files of that version were vacuumed.
        """
        if name == DOCUMENTS_TABLE:
            documents = documents_of(self.output, self.manifest)
            return documents.table.dataset(documents.version)
        if name in READING_TABLES or name in self.manifest["table_versions"]:
            return self.table(name).dataset(self.version(name))
        return self.table(name).dataset()

    def read(self, name: str) -> pa.Table:
        """Reads a table as the run left it.

        Raises:
            OutputError: the run has no such table, or files of that version were vacuumed.
        """
        with table_errors(self.table(name).place.uri, remedy=GONE_REMEDY):
            return self.dataset(name).to_table()

    def evidence(self) -> ds.Dataset:
        """The table `evidence`; without rows if the run asked for none."""
        if EVIDENCE_TABLE in self.manifest["table_versions"]:
            return self.dataset(EVIDENCE_TABLE)
        return ds.dataset(EVIDENCE.empty_table())


def require_readable(output: Location) -> None:
    """Refuses an output that an earlier version wrote.

    Raises:
        OutputError: says what to do.
    """
    for name in OLD_FILES:
        if (output / name).exists():
            raise OutputError(
                f"output: {output} was written by an earlier version of memagent-batch, whose tables this version does "
                f"not read ({name} is there); keep it for that version, and choose an empty folder"
            )


def read_rows(output: Location, *, columns: list[str] | None = None, only: ds.Expression | None = None) -> list[RunRow]:
    """Reads rows of the table `runs`; none if there is no table."""
    runs = OutputTable(output=output, name=RUNS_TABLE).dataset_if_there()
    if runs is None:
        require_readable(output)
        return []
    return cast("list[RunRow]", runs.to_table(columns=columns, filter=only).to_pylist())


def finished_runs(output: Location) -> list[str]:
    """Ids of the runs that have finished, in the order in which they committed.

    Runs before the last `memagent forget` are left out: their tables can't be read any more.
    """
    columns = ["run_id", "answers_version", "documents_forgotten"]
    rows = read_rows(output, columns=columns, only=HAS_ENDED)
    rows.sort(key=lambda row: (row["answers_version"] or 0, row["run_id"]))
    erasures = [number for number, row in enumerate(rows) if row["documents_forgotten"] is not None]
    return [row["run_id"] for row in rows[max(erasures, default=0) :]]


def find_run(output: Location, name: str = LATEST) -> PastRun:
    """The run that a user names: by its id, as `latest`, or as `previous`.

    Raises:
        OutputError: there is no such run, or the output can't be reached; names the runs that there are.
    """
    with output_errors(output.uri):
        runs = finished_runs(output)
    named = {LATEST: runs[-1:], PREVIOUS: runs[-2:-1]}.get(name, [run_id for run_id in runs if run_id == name])
    if named:
        return open_run(output, named[0])
    if not runs:
        with output_errors(output.uri):
            if not output.exists():
                raise OutputError(f"output: nothing is at {output}; name the output of a run")
        raise OutputError(f"output: no run has finished at {output}; run the same command to its end")
    erased = _erasure_words(output, runs[0])
    if name == PREVIOUS:
        raise OutputError(f"output: {runs[0]} is the only finished run at {output} yet; run it again first{erased}")
    earlier = f"{len(runs) - SHOWN_RUNS} earlier ones, " if len(runs) > SHOWN_RUNS else ""
    raise OutputError(
        f"output: there is no finished run {name!r} at {output}; there are {earlier}{', '.join(runs[-SHOWN_RUNS:])}"
        f"{erased}"
    )


def _erasure_words(output: Location, run_id: str) -> str:
    """Says why no run before the first one that can be read is named; empty if none was erased."""
    erased = open_run(output, run_id).manifest.get("forgotten")
    if erased is None:
        return ""
    return (
        f". Run {run_id} was `memagent forget`: it erased {quantity(erased['documents'], 'document')} and all earlier "
        "versions of the tables, so runs before it can't be read or compared"
    )


def open_run(output: Location, run_id: str) -> PastRun:
    """A finished run by its id."""
    only = (ds.field("run_id") == run_id) & HAS_ENDED
    (row,) = read_rows(output, columns=["run_id", "manifest"], only=only)
    manifest = json.loads(row["manifest"] or "{}")
    if manifest.get("format") != FORMAT:
        raise OutputError(
            f"output: {output} has the layout {manifest.get('format')!r}, this version reads {FORMAT!r}; keep it for "
            "the version that wrote it, and choose another output"
        )
    return PastRun(output=output, run_id=run_id, manifest=cast(Manifest, manifest))


def last_run(output: Location) -> PastRun | None:
    """The last finished run; None if there is none."""
    runs = finished_runs(output)
    return open_run(output, runs[-1]) if runs else None


def read_manifest(output: Location) -> Manifest | None:
    """The manifest of the last finished run; None if there is none."""
    past = last_run(output)
    return past.manifest if past else None


def require_manifest(output: Location) -> Manifest:
    """The manifest of the last finished run.

    Raises:
        OutputError: no run has finished there.
    """
    return find_run(output).manifest


def read_run_record(output: Location) -> dict[str, Any] | None:
    """What the latest run of an output, finished or not, was asked; None if there is none."""
    rows = read_rows(output, columns=["run_id", "started_at", "record"])
    if not rows:
        return None
    latest = max(rows, key=lambda row: row["run_id"])
    record: dict[str, Any] = json.loads(latest["record"])
    return record


def latest_number(output: Location, *, writer: str) -> RunNumber:
    """The number of the latest run of a writer, without its id; 0 if it has none."""
    runs = OutputTable(output=output, name=RUNS_TABLE)
    return RunNumber(number=runs.run_number(writer), run_id="", writer=writer, num_erasures=runs.run_number(ERASER))


def next_number(output: Location, *, writer: str, after: str) -> RunNumber:
    """The number and id that the next run of a writer takes, if no other takes it first.

    Args:
        output: The output.
        writer: Name of the application transaction.
        after: An id behind which the run's id sorts, beside those of the runs before.

    Raises:
        OutputError: a `memagent forget` is at work, or was killed, and this is not another one: it deletes files that
            the run would read. One that begins later supersedes the number.
    """
    latest = latest_number(output, writer=writer)
    rows = read_rows(output, columns=_PENDING_COLUMNS)
    if writer != ERASER and _is_erasure_pending(rows):
        raise OutputError(
            f"output: `memagent forget` is at work at {output}; run the same command again when it has ended. If it "
            "was killed, give its command again first"
        )
    last_id = max((row["run_id"] for row in rows), default="")
    return replace(latest, number=latest.number + 1, run_id=new_run_id(after=max(after, last_id)))


def begin(
    output: Location,
    make_record: Callable[[str], RunRecord],
    *,
    writer: str,
    after: str,
    latest: RunNumber | None = None,
) -> RunNumber:
    """Begins a run: takes the next number of its writer, and commits a row with the state "running" to `runs`.

    Args:
        output: The output.
        make_record: Makes the record of the run, by its id.
        writer: Name of the application transaction.
        after: An id behind which the run's id sorts, beside those of the runs before.
        latest: `latest_number` when the sources were listed; None if it doesn't matter whether another run has begun
            since.

    Raises:
        SupersededError: another run has begun since `latest`: this one may know an older state of the sources.
        OutputError: a `memagent forget` has not ended.
        StorageError: other runs begin again and again.
    """
    for _ in range(_BEGIN_TRIES):
        if latest is not None:
            require_newest(output, latest)
        run = next_number(output, writer=writer, after=after)
        try:
            commit_row(output, run, make_row(run, make_record(run.run_id)), is_first=True)
        except SupersededError:
            continue
        return run
    raise StorageError(f"{output / RUNS_TABLE} changes whenever it is looked at; see how many runs are started")


def finish(output: Location, run: RunNumber, record: RunRecord, manifest: Manifest, *, has_begun: bool = True) -> None:
    """Commits the row of a finished run, in place of the one that it wrote when it began, if it has.

    Raises:
        SupersededError: a newer run has begun; nothing was changed.
    """
    row = {**make_row(run, record), **ended_columns(manifest), "state": FINISHED}
    commit_row(output, run, cast("RunRow", row), is_first=not has_begun)


def make_row(run: RunNumber, record: RunRecord) -> RunRow:
    """The row of a run that begins."""
    return {
        **cast("RunRow", dict.fromkeys(RunRow.__annotations__)),
        "run_id": run.run_id,
        "number": run.number,
        "writer": run.writer,
        "state": RUNNING,
        "started_at": datetime.fromisoformat(record.started_at),
        "fingerprint": record.fingerprint,
        "readings": record.asked,
        "documents_forgotten": record.forgotten,
        "record": json.dumps(asdict(record), ensure_ascii=False),
    }


def ended_columns(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row that a run has at its end."""
    counts, changes = manifest["counts"], manifest["changes"]
    return {
        "finished_at": datetime.fromisoformat(manifest["finished_at"]),
        "ok": counts["ok"],
        "failed": counts["failed"],
        "not_read": counts["not_read"],
        "answers_changed": changes["answers"],
        "documents_added": changes["documents"]["added"],
        "documents_changed": changes["documents"]["changed"],
        "documents_removed": changes["documents"]["removed"],
        "seconds": manifest["seconds"],
        "answers_version": manifest["table_versions"].get("answers"),
        "digest": manifest["digest"],
        "manifest": json.dumps(manifest, ensure_ascii=False),
    }


def run_number_of(output: Location, run_id: str) -> RunNumber:
    """The number of a run that has begun."""
    (row,) = read_rows(output, columns=["number", "writer"], only=ds.field("run_id") == run_id)
    return replace(latest_number(output, writer=row["writer"]), number=row["number"], run_id=run_id)


def require_newest(output: Location, run: RunNumber) -> None:
    """Returns if no newer run of the same writer, and no `memagent forget`, has begun.

    Raises:
        SupersededError: one has.
        StorageError: nobody can tell: the store does not answer.
    """
    OutputTable(output=output, name=RUNS_TABLE).require_newest(run)


def commit_row(
    output: Location, run: RunNumber, row: RunRow, *, is_first: bool = False, after_state: str | None = None
) -> None:
    """Commits a row in place of the one that its run has, and those of many small files as one file.

    A run that begins marks the running ones of its writer as superseded. A run that forgets documents writes all rows
    again, without messages that may quote them. What another writer commits meanwhile is read, and the row committed
    to that.

    Args:
        output: The output.
        run: The run that commits.
        row: The row, of this run or of another one.
        is_first: Whether the run commits to the table for the first time.
        after_state: The state that the row must have now: with another one nothing is committed.

    Raises:
        SupersededError: a newer run has begun; nothing was changed.
    """
    table, only = OutputTable(output=output, name=RUNS_TABLE), ds.field("run_id") == row["run_id"]

    def commit() -> None:
        version = table.version()
        if after_state is not None:
            states = table.dataset(version).to_table(columns=["state"], filter=only)["state"].to_pylist()
            if states != [after_state]:
                return
        commit_row_at(table, version, run, row, is_first=is_first)

    retry_conflicts(commit)


def commit_row_at(
    table: OutputTable,
    version: int | None,
    run: RunNumber,
    row: RunRow,
    *,
    is_first: bool = False,
    is_serial: bool = False,
) -> None:
    """The same for a version of `runs`.

    Raises:
        FilesChangedError: another writer has changed the same files meanwhile, or, if it is serial, has made such a
            commit.
    """
    files = {} if version is None else table.files(version)
    superseded = _superseded_runs(table, version, run) if is_first and version is not None else []
    own = _files_of([row["run_id"]], files)
    is_erasure = row["documents_forgotten"] is not None and row["state"] in (ERASING, FINISHED)
    rewritten = superseded if is_first else [*superseded, row["run_id"]]
    is_among_others = not all(_files_of([run_id], files) for run_id in rewritten)  # a row is in a file of another run
    replaced = own | _files_of(superseded, files)
    if is_erasure or is_among_others:
        replaced = files
    elif len(files) >= COMPACT_FILES and row["state"] == FINISHED:
        known = table.dataset(version).to_table(columns=UNFINISHED_COLUMNS).to_pylist()
        going_on = [each["run_id"] for each in _unfinished(known) if each["run_id"] not in rewritten]
        kept = _files_of(going_on, files)
        ended = {path: file for path, file in files.items() if path not in kept}
        replaced = ended if len(ended) >= COMPACT_FILES else replaced
    rows = pa.Table.from_pylist([row], schema=RUNS)
    if any(path not in own or file.num_rows != 1 for path, file in replaced.items()):  # they hold rows of other runs
        there = table.dataset_of(replaced.values(), table.schema(version))
        others = there.to_table(filter=ds.field("run_id") != row["run_id"]).cast(RUNS).to_pylist()
        if is_erasure:
            others = [_after_erasure(each, row["run_id"]) for each in others]
        others = [{**each, "state": SUPERSEDED} if each["run_id"] in superseded else each for each in others]
        rows = pa.concat_tables([pa.Table.from_pylist(others, schema=RUNS), rows])
    table.commit(
        run=run,
        schema=RUNS,
        add=write_table_files(table.place, rows, stem=f"run-{row['number']:06d}-{row['run_id']}"),
        remove=replaced.values(),
        is_first=is_first,
        is_serial=is_serial,
        read_version=version,
    )


def _files_of(run_ids: Collection[str], files: Mapping[str, TableFile]) -> dict[str, TableFile]:
    """The files that these runs have written, by path: each holds the row of its run, and maybe others."""
    return {path: file for path, file in files.items() if any(run_id in path for run_id in run_ids)}


def _superseded_runs(table: OutputTable, version: int, run: RunNumber) -> list[str]:
    """Ids of the runs of the same writer that have not finished, and can't commit any more once `run` has begun."""
    is_older = (ds.field("writer") == run.writer) & (ds.field("number") < run.number)
    rows = table.dataset(version).to_table(columns=["run_id"], filter=is_older & (ds.field("state") == RUNNING))
    return cast("list[str]", rows["run_id"].to_pylist())


def _after_erasure(row: RunRow, erasure_id: str) -> RunRow:
    """The row of an earlier or a later run as an erasure leaves it: without messages, and ended if it began before."""
    manifest = json.loads(row["manifest"]) | {"reasons": {}} if row["manifest"] else None
    states = {ERASING: FINISHED} | ({RUNNING: SUPERSEDED} if row["run_id"] < erasure_id else {})
    state = states.get(row["state"], row["state"])
    return {**row, "state": state, "manifest": manifest and json.dumps(manifest, ensure_ascii=False)}


def unfinished_runs(output: Location) -> list[RunRow]:
    """Runs that are running, or were killed or stopped: of each writer the latest one, and those that commit tables.

    Those before the last `memagent forget` don't count: they can't commit any more.
    """
    return _unfinished(read_rows(output, columns=UNFINISHED_COLUMNS))


def _unfinished(rows: Iterable[RunRow]) -> list[RunRow]:
    rows = sorted(rows, key=lambda row: row["run_id"])
    erasures = [row for row in rows if row["documents_forgotten"] is not None and row["state"] in (ERASING, FINISHED)]
    since = erasures[-1]["run_id"] if erasures else ""
    latest = {row["writer"]: row["run_id"] for row in rows}
    return [
        row
        for row in rows
        if row["state"] == COMMITTING
        or (row["state"] == RUNNING and row["run_id"] == latest[row["writer"]] and row["run_id"] > since)
    ]


def has_pending_erasure(output: Location) -> bool:
    """Whether a `memagent forget` is at work, or was killed before its end."""
    return _is_erasure_pending(read_rows(output, columns=_PENDING_COLUMNS))


def _is_erasure_pending(rows: Sequence[RunRow]) -> bool:
    latest = max(rows, key=lambda row: row["run_id"], default=None)
    is_killed = latest is not None and latest["state"] != FINISHED and latest["documents_forgotten"] is not None
    return is_killed or any(row["state"] == ERASING for row in rows)


def is_erasing(output: Location) -> bool:
    """Whether a `memagent forget` has deleted all rows, and was killed while it removed files of earlier versions."""
    return bool(read_rows(output, columns=["run_id"], only=ds.field("state") == ERASING))


def has_unfinished(output: Location, *, writer: str) -> bool:
    """Whether a run commits tables, or the latest run of a writer has not finished."""
    rows = read_rows(output, columns=["run_id", "state", "writer"])
    latest = max((row for row in rows if row["writer"] == writer), key=lambda row: row["run_id"], default=None)
    is_unfinished = latest is not None and latest["state"] != FINISHED
    return is_unfinished or any(row["state"] == COMMITTING for row in rows)
