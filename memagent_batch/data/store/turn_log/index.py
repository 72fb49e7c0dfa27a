"""Reads the turn log: which readings have ended or begun, and in which files. Holds keys and file names, no texts.

A log file that can't be read is an OutputError that names it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.store.database import BATCH_ROWS, on_disk, open_database, query_to_disk, run_query
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.files import (
    FOLLOW_UPS_FOLDER,
    KEYS_FOLDER,
    LOG_KEYS,
    LOG_SCHEMAS,
    OUTCOMES_FOLDER,
    TURNS_FOLDER,
    MapTasks,
    base_name,
    list_folder,
    read_ahead,
    read_file_keys,
    read_log_files,
    run_tasks,
)
from memagent_batch.data.store.turn_log.rows import FOLLOW_UP_LOG, OUTCOME_LOG, FollowUpRow, OutcomeRow
from memagent_batch.errors import StorageError, StorageOutageError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.types import Status

ReadingKey = tuple[str, str, int]
"""Document hash, question hash, sample: an address under one fingerprint."""
Row = dict[str, Any]
SCAN_TRIES = 3
"""Times that a scan lists the log, since a file that it had listed was merged meanwhile."""
TASK_FILES = 2000
"""Number of log files that one task scans: 2.5 s of work if a request takes 20 ms."""
_RANKED_BY = ["document_hash", "question_hash", "sample", "fingerprint", "finished_at", "run_id"]
"""Columns that say which row of a reading counts, beside its status."""
_COUNTS = """
qualify row_number() over (partition by document_hash, question_hash, sample, fingerprint
                           order by status = 'ok' desc, run_id desc,
                                    if(status = 'ok', 1, -1) * epoch_us(finished_at)) = 1
"""
"""Of the rows of each reading and fingerprint the one that counts. Whole counts above failed, then the last run; in a
run the first whole one, or the last failure. So a late write of an attempt that was superseded changes nothing."""
_TURN_KEYS = "from keys where num_turns > 0 and list_contains($fingerprints::varchar[], fingerprint)"
_READING = "hash(document_hash, question_hash, sample, fingerprint)"
_DOUBLED = f"""
create temp table doubled as
select {_READING} as reading from keys where num_turns = 0 group by reading having count(*) > 1
"""
"""Few readings end twice: only these are sorted, and no query has to hold the others."""
_ENDED_KEYS = f"""
from keys where num_turns = 0 and list_contains($fingerprints::varchar[], fingerprint)
and {_READING} {{}} (from doubled)
"""
_COUNTED_KEYS = _ENDED_KEYS.format("in") + _COUNTS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIndex:
    """What a log holds under one fingerprint, and under those of what is asked after its answers: `LOG_KEYS`."""

    outcomes: pa.Table = field(default_factory=LOG_KEYS.empty_table)
    """The outcomes that count: one row for each reading that has ended."""
    closed: pa.Table = field(default_factory=LOG_KEYS.empty_table)
    """What follow-up questions brought: one row for each reading that was closed, and fingerprint of what was asked."""
    turns: pa.Table = field(default_factory=LOG_KEYS.empty_table)
    """One row for each reading, run and log file with turns of it."""


def scan_log(
    output: Location,
    *,
    fingerprint: str,
    follow_up_readings: Collection[str] = (),
    follow_up_turns: Collection[str] = (),
    begins: str = "",
    before: LogIndex | None = None,
    mapped: MapTasks = run_tasks,
) -> LogIndex:
    """Reads the keys of the log: memory grows with readings, not with turns.

    Closed readings are kept under the fingerprints `follow_up_readings`, what was asked after answers under
    `follow_up_turns`. `begins` is the id of a run if only its files are read; `before` then says what the others hold.
    `mapped` runs the tasks of a large scan; see `Executor.map`.
    """
    before = before or LogIndex()
    fingerprints = {fingerprint, *follow_up_turns, *follow_up_readings}
    keys = _read_keys(output, fingerprints=fingerprints, begins=begins, mapped=mapped)
    with open_database({"keys": pa.concat_tables([keys, before.outcomes, before.closed])}) as database:
        database.execute(_DOUBLED)
        query = partial(query_to_disk, database, schema=LOG_KEYS)
        turns = query(_TURN_KEYS, fingerprints=[fingerprint, *follow_up_turns])
        outcomes, closed = (
            pa.concat_tables(query(sql, fingerprints=of_table) for sql in (_ENDED_KEYS.format("not in"), _COUNTED_KEYS))
            for of_table in ([fingerprint], [*follow_up_readings])
        )
        return LogIndex(outcomes=outcomes, closed=closed, turns=pa.concat_tables([before.turns, turns]))


def _read_keys(
    output: Location,
    *,
    fingerprints: Collection[str],
    folders: Collection[str] = tuple(LOG_SCHEMAS),
    begins: str = "",
    mapped: MapTasks = run_tasks,
) -> pa.Table:
    """The keys of these fingerprints: a table of `LOG_KEYS`, in no order, where `file` is the path of a log file."""
    for tries_left in reversed(range(SCAN_TRIES)):
        of_name = {base_name(path): path for path in list_folder(output / KEYS_FOLDER, begins=begins)}
        files: dict[str, list[str]] = defaultdict(list)  # of each file that is read for keys, those that it is about
        for folder in reversed(LOG_SCHEMAS):  # turns last: if a run goes on, none of an outcome is missing
            for path in list_folder(output / folder, begins=begins) if folder in folders else ():
                files[of_name.get(base_name(path), path)].append(path)
        of_file = pa.array(files.values(), pa.list_(pa.string()))
        listed = pa.table({"path": pa.array([*files], pa.string()), "files": of_file})
        tasks = [listed.slice(first, TASK_FILES).combine_chunks() for first in range(0, listed.num_rows, TASK_FILES)]
        task = partial(_read_task, output=output, fingerprints=tuple(fingerprints))
        try:
            return on_disk((run_tasks if len(tasks) <= 1 else mapped)(task, tasks), schema=LOG_KEYS)
        except StorageError as error:  # a run that merges files meanwhile may have removed one; Ray loses the cause
            if not tries_left or isinstance(error, StorageOutageError):
                raise
    raise AssertionError("unreachable")


def _read_task(files: pa.Table, *, output: Location, fingerprints: Collection[str]) -> Iterator[pa.Table]:
    rows, num_rows, wanted = [LOG_KEYS.empty_table()], 0, pa.array(fingerprints, pa.string())
    tables = read_ahead(partial(read_file_keys, output), files["path"].to_pylist())
    for keys, of_files in zip(tables, files["files"], strict=True):
        file = pc.binary_join_element_wise(output.path.rstrip("/"), keys["file"], "/")
        keys = keys.set_column(LOG_KEYS.get_field_index("file"), LOG_KEYS.field("file"), file)
        is_wanted = pc.is_in(keys["fingerprint"], wanted)
        rows.append(keys.filter(pc.and_(is_wanted, pc.is_in(keys["file"], of_files.values))))
        num_rows += rows[-1].num_rows
        if num_rows >= BATCH_ROWS:
            yield pa.concat_tables(rows).combine_chunks()
            rows, num_rows = [LOG_KEYS.empty_table()], 0
    yield pa.concat_tables(rows).combine_chunks()


def last_run_id(output: Location) -> str:
    """The last run that wrote to the log; empty where none did."""
    folders = (OUTCOMES_FOLDER, TURNS_FOLDER, FOLLOW_UPS_FOLDER)
    paths = [path for folder in folders for path in list_folder(output / folder)]
    return max((base_name(path).partition("-")[0] for path in paths), default="")


def scan_turn_files(output: Location, *, fingerprints: Collection[str], begins: str = "") -> dict[str, list[str]]:
    """Turn files by document hash and by document id: those of a run or writer, or of all."""
    files: dict[str, set[str]] = defaultdict(set)
    keys = _read_keys(output, fingerprints=fingerprints, folders=[TURNS_FOLDER], begins=begins)
    for name in ("document_hash", "document_id"):
        for document, file in zip(keys[name].to_pylist(), keys["file"].to_pylist(), strict=True):
            files[document].add(file)
    return {document: sorted(of_document) for document, of_document in files.items()}


def read_outcomes(
    output: Location, files: Iterable[str], *, fingerprint: str, document_hashes: Sequence[str] | None = None
) -> dict[ReadingKey, OutcomeRow]:
    """The outcome rows in these files that count, of these texts or of all; by reading."""
    tables = read_log_files(
        output, files, columns=OUTCOME_LOG.names, fingerprints=[fingerprint], document_hashes=document_hashes
    )
    return cast("dict[ReadingKey, OutcomeRow]", _counted_rows(tables)[fingerprint])


def read_follow_ups(
    output: Location, files: Iterable[str], *, fingerprints: Collection[str]
) -> dict[str, dict[ReadingKey, FollowUpRow]]:
    """The rows of follow-up questions in these files that count, by fingerprint and reading."""
    tables = read_log_files(output, files, columns=FOLLOW_UP_LOG.names, fingerprints=fingerprints)
    return cast("dict[str, dict[ReadingKey, FollowUpRow]]", _counted_rows(tables))


def _counted_rows(tables: Iterable[pa.Table]) -> dict[str, dict[ReadingKey, Row]]:
    """Of the rows of each reading and fingerprint the one that counts, by `_COUNTS`."""
    counted: dict[str, dict[ReadingKey, Row]] = defaultdict(dict)
    if not (read := [*tables]):
        return counted
    rows = pa.concat_tables(read)
    if rows.num_rows > 1:
        is_outcome = "status" in rows.schema.names
        status = rows["status"] if is_outcome else pc.if_else(rows["is_failed"], Status.FAILED, Status.OK)
        ranked = rows.select(_RANKED_BY).append_column("status", status)
        ranked = ranked.append_column("row", pa.array(np.arange(rows.num_rows)))
        rows = rows.take(run_query(f"select row from ranked {_COUNTS} order by row", {"ranked": ranked})["row"])
    for row in rows.to_pylist():
        counted[row["fingerprint"]][row["document_hash"], row["question_hash"], row["sample"]] = row
    return counted


def reading_key(address: ReadingAddress) -> ReadingKey:
    """The key of an address under its own fingerprint."""
    return (address.document_hash, address.question_hash, address.sample)
