"""Reads the turn log: which readings have ended or begun, and in which files. Holds keys and file names, no texts.

A log file that can't be read is an OutputError that names it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.store.database import open_database, query_to_disk, run_query
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.keys import (
    FOLLOW_UPS_FOLDER,
    LOG_KEYS,
    LOG_THREADS,
    OUTCOMES_FOLDER,
    TURNS_FOLDER,
    MapFiles,
    list_folder,
    merged_file,
    read_ahead,
    read_keys,
    read_log_file,
    run_tasks,
)
from memagent_batch.data.store.turn_log.rows import FOLLOW_UP_LOG, OUTCOME_LOG, FollowUpRow, OutcomeRow
from memagent_batch.errors import StorageError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.types import Status

ReadingKey = tuple[str, str, int]
"""Document hash, question hash, sample: an address under one fingerprint."""
Row = dict[str, Any]
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


def read_log_files(
    folder: Location,
    files: Iterable[str],
    *,
    columns: list[str],
    fingerprints: Collection[str],
    document_hashes: Sequence[str] | None = None,
    document_id: str | None = None,
    num_threads: int = LOG_THREADS,
) -> Iterator[pa.Table]:
    """Rows of these fingerprints, and of these texts or of the document, in files of the log; a table for each file."""
    read = partial(read_log_file, folder, document_hashes=document_hashes, document_id=document_id)
    filtered = partial(_read_log_file, folder, read, columns=columns, fingerprints=fingerprints)
    yield from read_ahead(filtered, files, num_threads=num_threads)


def _read_log_file(
    folder: Location,
    read: Callable[..., pa.Table],
    path: str,
    *,
    columns: list[str],
    fingerprints: Collection[str],
) -> pa.Table:
    names = list(dict.fromkeys([*columns, "fingerprint"]))
    try:
        table = read(path, columns=names)
    except StorageError:
        merged = merged_file(folder, path)
        if merged is None:
            raise
        table = read(merged, columns=names)  # merged since it was listed
    return table.filter(pc.is_in(table["fingerprint"], pa.array(list(fingerprints), pa.string())))


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
    mapped: MapFiles = run_tasks,
) -> LogIndex:
    """Reads the keys of the log: memory grows with readings, not with turns.

    Closed readings are kept under the fingerprints `follow_up_readings`, what was asked after answers under
    `follow_up_turns`. `begins` is the id of a run if only its files are read; `before` then says what the others hold.
    `mapped` runs the tasks of a large scan; see `Executor.map`.
    """
    before = before or LogIndex()
    fingerprints = {fingerprint, *follow_up_turns, *follow_up_readings}
    keys = read_keys(output, fingerprints=fingerprints, begins=begins, mapped=mapped)
    with open_database({"keys": pa.concat_tables([keys, before.outcomes, before.closed])}) as database:
        database.execute(_DOUBLED)
        found = partial(query_to_disk, database, schema=LOG_KEYS)
        turns = found(_TURN_KEYS, fingerprints=[fingerprint, *follow_up_turns])
        outcomes, closed = (
            pa.concat_tables(found(sql, fingerprints=each) for sql in (_ENDED_KEYS.format("not in"), _COUNTED_KEYS))
            for each in ([fingerprint], [*follow_up_readings])
        )
        return LogIndex(outcomes=outcomes, closed=closed, turns=pa.concat_tables([before.turns, turns]))


def last_run_id(output: Location) -> str:
    """The last run that wrote to the log; empty where none did."""
    folders = (OUTCOMES_FOLDER, TURNS_FOLDER, FOLLOW_UPS_FOLDER)
    paths = [path for folder in folders for path in list_folder(output / folder)]
    return max((path.rpartition("/")[2].partition("-")[0] for path in paths), default="")


def scan_turn_files(output: Location, *, fingerprints: Collection[str], begins: str = "") -> dict[str, list[str]]:
    """Turn files by document hash and by document id: those of a run or writer, or of all."""
    files: dict[str, set[str]] = defaultdict(set)
    keys = read_keys(output, fingerprints=fingerprints, folders=[TURNS_FOLDER], begins=begins)
    for name in ("document_hash", "document_id"):
        for document, file in zip(keys[name].to_pylist(), keys["file"].to_pylist(), strict=True):
            files[document].add(file)
    return {document: sorted(of_document) for document, of_document in files.items()}


def read_outcomes(
    output: Location, files: Iterable[str], *, fingerprint: str, document_hashes: Sequence[str] | None = None
) -> dict[ReadingKey, OutcomeRow]:
    """The outcome rows in these files that count (see `counted_rows`), of these texts or of all; by reading."""
    rows = _read_counted(
        output, files, columns=OUTCOME_LOG.names, fingerprints=[fingerprint], document_hashes=document_hashes
    )
    return cast("dict[ReadingKey, OutcomeRow]", rows.get(fingerprint, {}))


def read_follow_ups(
    output: Location, files: Iterable[str], *, fingerprints: Collection[str]
) -> dict[str, dict[ReadingKey, FollowUpRow]]:
    """The rows in these files that count, by fingerprint and reading; see `counted_rows`."""
    rows = _read_counted(output, files, columns=FOLLOW_UP_LOG.names, fingerprints=fingerprints)
    return cast("dict[str, dict[ReadingKey, FollowUpRow]]", rows)


def reading_key(address: ReadingAddress) -> ReadingKey:
    """The key of an address under its own fingerprint."""
    return (address.document_hash, address.question_hash, address.sample)


def _read_counted(
    output: Location,
    files: Iterable[str],
    *,
    columns: list[str],
    fingerprints: Collection[str],
    document_hashes: Sequence[str] | None = None,
) -> dict[str, dict[ReadingKey, Row]]:
    tables = [
        *read_log_files(output, files, columns=columns, fingerprints=fingerprints, document_hashes=document_hashes)
    ]
    counted: dict[str, dict[ReadingKey, Row]] = defaultdict(dict)
    for row in counted_rows(pa.concat_tables(tables)).to_pylist() if tables else ():
        counted[row["fingerprint"]][row["document_hash"], row["question_hash"], row["sample"]] = row
    return dict(counted)


def counted_rows(rows: pa.Table) -> pa.Table:
    """Of the rows of each reading and fingerprint the one that counts, by `_COUNTS`."""
    if rows.num_rows < 2:
        return rows
    is_ended = "status" in rows.schema.names
    status = rows["status"] if is_ended else pc.if_else(rows["is_failed"], Status.FAILED, Status.OK)
    ranked = rows.select(_RANKED_BY).append_column("status", status)
    ranked = ranked.append_column("row", pa.array(np.arange(rows.num_rows)))
    return rows.take(run_query(f"select row from ranked {_COUNTS} order by row", {"ranked": ranked})["row"])
