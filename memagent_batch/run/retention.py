"""How long an output keeps what nobody needs any more: earlier versions of its tables, and unused rows of the log."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE, SOURCES_TABLE
from memagent_batch.data.store.database import open_database, run_query
from memagent_batch.data.store.delta import UNCOMMITTED_DAYS, OutputTable
from memagent_batch.data.store.errors import storage_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.merge import rewrite_log
from memagent_batch.data.store.turn_log.question_list import ASKED_FOLDER
from memagent_batch.errors import OutputError
from memagent_batch.run.claim import INGEST_FOLDER, SCRATCH_FOLDER
from memagent_batch.run.history import PastRun, find_run, unfinished_runs
from memagent_batch.run.state import NOTES_FOLDER
from memagent_batch.run.tables import ANSWERS_TABLE, READING_TABLES, ROLLOUTS_TABLE, RUNS_TABLE

DATA_TABLES = (SOURCES_TABLE, DOCUMENTS_TABLE, *READING_TABLES, ROLLOUTS_TABLE)
"""Tables that may hold something of a document."""
CLOCK_SKEW = timedelta(hours=1)
"""How far the clocks of a driver and of a store may differ."""
_PLAN_FILE = re.compile(f"/{SCRATCH_FOLDER}/[0-9a-f]{{32}}/")
"""A file of a plan, and none that someone else has put there."""
FOLLOW_UP_KINDS = ("value", "evidence", "support")
"""Turns after the answer; their fingerprints are not in `answers`."""


def data_tables(output: Location) -> list[OutputTable]:
    """The tables of an output that may hold something of a document."""
    tables = [OutputTable(output=output, name=name) for name in DATA_TABLES]
    return [table for table in tables if table.exists()]


def vacuum_tables(output: Location, *, keep_days: float, uncommitted_days: float = UNCOMMITTED_DAYS) -> int:
    """Deletes files that only earlier versions of the tables have, and leftovers; returns their number.

    Nothing that was there since the oldest unfinished run began is deleted: it may be reading these files, or have
    written them without a commit yet, and the next run takes back what it has committed.
    """
    now = datetime.now(UTC)
    began = [now - row["started_at"] + CLOCK_SKEW for row in unfinished_runs(output)]
    days = max([keep_days, *(age / timedelta(days=1) for age in began)])
    tables = [*data_tables(output), OutputTable(output=output, name=RUNS_TABLE)]
    num_files = sum(table.vacuum(days=days, uncommitted_days=uncommitted_days) for table in tables)
    return num_files + remove_leftovers(output, days=uncommitted_days)


def remove_leftovers(output: Location, *, days: float = UNCOMMITTED_DAYS) -> int:
    """Deletes files that killed ingests and plans have left, if they are older than so many days; returns their number.

    Younger files may belong to an ingest or a plan that is at work.
    """
    paths = (output / INGEST_FOLDER).files()
    paths += [path for path in (output / SCRATCH_FOLDER).files() if _PLAN_FILE.search(path)]
    since = datetime.now(UTC) - timedelta(days=days)
    with storage_errors(output.uri):
        paths = [path for path in paths if not days or output.fs.modified(path) < since]
    output.delete_files(paths)
    return len(paths)


def prune_log(output: Location, *, keep_days: float) -> int:
    """Removes rows of the log that no row of `answers` refers to; returns their number.

    Rows of the documents and fingerprints of `answers`, and rows that are younger than `keep_days`, stay: later runs
    take them as they are. Question lists and notes of older runs go too, except for those of the last finished run.

    Documents are compared by 64 bits of their hash, which takes 80 MB for ten million: nothing that is needed is
    removed, and a row in very many may stay.
    """
    run, since = find_run(output), datetime.now(UTC) - timedelta(days=keep_days)
    with open_database({"answers": run.table(ANSWERS_TABLE).dataset()}) as database:  # which spills to disk
        sql = "select distinct hash(document_hash) as hash from answers where document_hash is not null"
        used = np.sort(database.sql(sql).fetchnumpy()["hash"])
        fingerprints = database.sql("select distinct fingerprint from answers").to_arrow_table()["fingerprint"]

    def is_needed(rows: pa.Table) -> pa.ChunkedArray:
        hashes = run_query("select hash(document_hash) as hash from rows", {"rows": rows})["hash"].to_numpy()
        places = np.searchsorted(used, hashes).clip(max=max(len(used) - 1, 0))
        is_of_document = pa.array(used[places] == hashes if len(used) else np.zeros(len(hashes), bool))
        is_of_reader = pc.is_in(rows["fingerprint"], value_set=fingerprints.cast(pa.string()))
        if "kind" in rows.schema.names:
            is_of_reader = pc.or_(is_of_reader, pc.is_in(rows["kind"], value_set=pa.array(FOLLOW_UP_KINDS)))
        elif "status" not in rows.schema.names:
            is_of_reader = pa.chunked_array([pa.repeat(True, rows.num_rows)])
        return pc.or_(pc.and_(is_of_document, is_of_reader), pc.greater_equal(rows["finished_at"], since))

    num_rows = rewrite_log(output, is_needed)
    _remove_records(output, since=since, last=run)
    return num_rows


def _remove_records(output: Location, *, since: datetime, last: PastRun) -> None:
    """Removes question lists and notes of runs that began before a time, except for those of the last finished run."""
    runs = (
        OutputTable(output=output, name=RUNS_TABLE).dataset().to_table(["run_id", "started_at", "record"]).to_pylist()
    )
    used = [row for row in runs if row["started_at"] >= since]
    lists = {f"{json.loads(row['record'])['asked_id']}.parquet" for row in used} | {
        f"{last.manifest['asked_id']}.parquet"
    }
    notes = {row["run_id"] for row in used} | {last.run_id}
    paths = [path for path in (output / ASKED_FOLDER).files() if path.rpartition("/")[2] not in lists]
    paths += [path for path in (output / NOTES_FOLDER).files() if path.split("/")[-2] not in notes]
    output.delete_files(paths)


class VacuumReport(TypedDict):
    """What `memagent vacuum` has removed."""

    files: int
    """Files of earlier versions of the tables, and what was left by processes that were killed."""
    log_rows: int
    """Rows of the turn log."""


def vacuum(output: Location, *, keep_days: float | None = None, log_keep_days: float | None = None) -> VacuumReport:
    """Deletes files of earlier versions of the tables, and rows of the log that nothing refers to.

    Args:
        output: The output.
        keep_days: Days for which earlier versions stay; by default `record.keep_days` of the last run.
        log_keep_days: Days for which unused rows of the log stay; by default `log.keep_days` of the last run.

    Raises:
        OutputError: no run has finished here, or the latest one has not finished.
        StorageError: a file can't be read, written or removed.
    """
    settings = find_run(output).manifest["settings"]
    for run in unfinished_runs(output):
        raise OutputError(
            f"output: run {run['run_id']} has not finished; wait for it, or give its command again, and vacuum then"
        )
    kept = {name: settings[name]["keep_days"] for name in ("record", "log")}
    return {
        "files": vacuum_tables(output, keep_days=kept["record"] if keep_days is None else keep_days),
        "log_rows": prune_log(output, keep_days=kept["log"] if log_keep_days is None else log_keep_days),
    }
