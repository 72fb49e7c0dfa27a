"""Reads the turn log: which readings have ended or begun, and in which files. Holds keys and file names, no texts.

A log file that can't be read is an OutputError that names it.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.readings import Status
from memagent_batch.store.errors import storage_errors, table_errors
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.rows import FOLLOW_UP_LOG, OUTCOME_LOG, FollowUpRow, OutcomeRow
from memagent_batch.store.turn_log.writer import FOLLOW_UPS_FOLDER, OUTCOMES_FOLDER, TURNS_FOLDER

LOG_THREADS = 16
"""Log files read at once, in a request each: enough to keep a core busy where a store answers in 50 ms."""
ReadingKey = tuple[str, str, int]
"""Document hash, question hash, sample: an address under one fingerprint."""
Row = dict[str, Any]
TurnsKey = tuple[str, str]
"""Document hash, and question hash (or the hash of the list that the turns are shared by): where turns stand."""
Rank = tuple[bool, str, float]
"""Order among rows of one address: whether it is whole, the run's id, seconds inside the run. The highest counts."""
_RANKED_BY = ["document_hash", "question_hash", "sample", "finished_at", "run_id"]
"""Columns that say which row of a reading counts, beside `status` or `is_failed`."""
T = TypeVar("T")


def log_line(file: str) -> str:
    """Run and writer of a log file: its name without the number."""
    return file.rpartition("/")[2].rpartition("-")[0]


def read_log(
    folder: Location,
    *,
    columns: list[str],
    fingerprints: Collection[str],
    begins: Collection[str] = ("",),
    among: Collection[str] | None = None,
) -> Iterator[tuple[str, pa.Table]]:
    """The log files of a folder whose names begin with one of these: a run's id, and a writer's after it.

    `among` are paths, if only some files count.
    """
    with storage_errors(folder.uri):
        paths = folder.files(begins=next(iter(begins)) if len(begins) == 1 else "")
    files = [path for path in paths if path.endswith(".parquet") and path.rsplit("/", 1)[-1].startswith(tuple(begins))]
    files = files if among is None else [path for path in files if path in among]
    yield from zip(files, read_log_files(folder, files, columns=columns, fingerprints=fingerprints), strict=True)


def read_log_files(
    folder: Location,
    files: Iterable[str],
    *,
    columns: list[str],
    fingerprints: Collection[str],
    document_hashes: pa.Array | None = None,
) -> Iterator[pa.Table]:
    """Rows of these fingerprints, and of these documents, in files of the log; a table for each file."""
    read = partial(
        _read_log_file,
        folder,
        columns=columns,
        fingerprints=fingerprints,
        document_hashes=document_hashes,
    )
    with ThreadPoolExecutor(LOG_THREADS) as threads:
        yield from threads.map(read, files)


def _read_log_file(
    folder: Location, path: str, *, columns: list[str], fingerprints: Collection[str], document_hashes: pa.Array | None
) -> pa.Table:
    wanted = list(dict.fromkeys([*columns, "fingerprint"]))
    remedy = "restore it, or delete it to read its turns again"
    with storage_errors(path), table_errors(f"log file {path}", remedy=remedy, of_store=False):
        # a store is asked once for the whole file: it is small, and its footer alone would cost several requests
        source = path if folder.is_local else pa.BufferReader(folder.fs.cat_file(path))
        with pq.ParquetFile(source, pre_buffer=False) as file:
            table = file.read(columns=wanted, use_threads=False)
        if missing := sorted(set(wanted) - set(table.schema.names)):
            raise pa.ArrowInvalid(f"it has no column {missing[0]!r}")
    table = table.filter(pc.is_in(table["fingerprint"], pa.array(list(fingerprints), pa.string())))
    return table if document_hashes is None else table.filter(pc.is_in(table["document_hash"], document_hashes))


class CurrentOutcome(OutcomeRow):
    """The row of the outcome log that counts for a reading."""

    line: str
    """Run and writer of its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedOutcome:
    """Where the outcome of a reading is kept, or what its follow-up questions brought."""

    status: Status
    """How the reading ended, or its follow-up questions: `failed` if one of them did."""
    file: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTurns:
    """How many turns a run brought to the log, follow-up questions among them."""

    asked: int
    """Turns that the engine was asked."""
    held: int
    """Turns that were taken from earlier versions of their documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnIndex:
    """What a log holds under one fingerprint, and under those of what is asked after its answers."""

    fingerprint: str
    """The reader; turns of other readers are left out."""
    outcomes: dict[ReadingKey, LoggedOutcome] = field(default_factory=dict)
    turn_files: dict[TurnsKey, list[str]] = field(default_factory=dict)
    """Turn files by document and question, so that a new question of an old document opens none."""
    reused_from: dict[TurnsKey, list[str]] = field(default_factory=dict)
    """Hashes of earlier versions of a document that turns were taken from, by document and question."""
    run_turns: dict[str, RunTurns] = field(default_factory=dict)
    follow_up_readings: dict[str, dict[ReadingKey, LoggedOutcome]] = field(default_factory=dict)
    """Readings that were closed, by the fingerprint of what was asked after the answer."""

    def files_of(self, key: TurnsKey) -> Iterator[str]:
        """Files that hold turns of a document and question, those of earlier versions that it takes turns from too."""
        for document_hash in dict.fromkeys((key[0], *self.reused_from.get(key, ()))):
            yield from self.turn_files.get((document_hash, key[1]), ())


def scan_log(
    output: Location,
    *,
    fingerprint: str,
    follow_up_readings: Collection[str] = (),
    follow_up_turns: Collection[str] = (),
    begins: str = "",
    among: Collection[str] | None = None,
) -> TurnIndex:
    """Reads the keys of the whole log: memory grows with readings, not with turns.

    `follow_up_readings` and `follow_up_turns` are the fingerprints under which closed readings and their turns are
    kept; with `begins`, a run, or with `among`, paths, only those files are read.
    """
    index = TurnIndex(fingerprint=fingerprint)
    tables = read_log(
        output / OUTCOMES_FOLDER,
        columns=[*_RANKED_BY, "status"],
        fingerprints=[fingerprint],
        begins=[begins],
        among=among,
    )
    index.outcomes.update(_best(tables, keep=_logged).get(fingerprint, {}))
    _add_turns(index, output, fingerprints=[fingerprint, *follow_up_turns], begins=begins, among=among)
    if follow_up_readings:
        index.follow_up_readings.update(
            scan_follow_ups(output, fingerprints=follow_up_readings, begins=begins, among=among)
        )
    return index


def last_run_id(output: Location) -> str:
    """The last run that wrote to the log; empty where none did."""
    folders = (OUTCOMES_FOLDER, TURNS_FOLDER, FOLLOW_UPS_FOLDER)
    paths = [path for folder in folders for path in (output / folder).files()]
    return max((path.rpartition("/")[2].partition("-")[0] for path in paths), default="")


def scan_turn_files(output: Location, *, fingerprints: Collection[str], begins: str = "") -> dict[str, list[str]]:
    """Turn files by document hash, with those of turns from its earlier versions: of a run or writer, or of all."""
    index = TurnIndex(fingerprint="")
    _add_turns(index, output, fingerprints=fingerprints, begins=begins)
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for key in index.turn_files:
        found[key[0]].update(dict.fromkeys(index.files_of(key)))
    return {document_hash: sorted(files) for document_hash, files in found.items()}


def _add_turns(
    index: TurnIndex,
    output: Location,
    *,
    fingerprints: Collection[str],
    begins: str,
    among: Collection[str] | None = None,
) -> None:
    turn_files: dict[TurnsKey, list[str]] = defaultdict(list)
    reused_from: dict[TurnsKey, list[str]] = defaultdict(list)
    asked, held = Counter[str](), Counter[str]()
    columns = ["document_hash", "question_hash", "reused_from"]
    folder = output / TURNS_FOLDER
    tables = read_log(folder, columns=columns, fingerprints=fingerprints, begins=[begins], among=among)
    for file, table in tables:
        run_id, num_asked = log_line(file).partition("-")[0], table["reused_from"].null_count
        asked[run_id] += num_asked
        held[run_id] += table.num_rows - num_asked
        keys = dict.fromkeys(zip(*(table[name].to_pylist() for name in columns), strict=True))
        for document_hash, question_hash in dict.fromkeys(key[:2] for key in keys):
            turn_files[document_hash, sys.intern(question_hash)].append(file)
        for document_hash, question_hash, version in keys if num_asked < table.num_rows else ():
            if version is not None:  # many versions of a document name the same ones
                reused_from[document_hash, sys.intern(question_hash)].append(sys.intern(version))
    index.turn_files.update(turn_files)
    index.reused_from.update(reused_from)
    index.run_turns.update({run_id: RunTurns(asked=count, held=held[run_id]) for run_id, count in asked.items()})


def scan_outcome_files(
    output: Location, *, fingerprint: str, run_ids: Collection[str]
) -> dict[tuple[ReadingKey, str], list[str]]:
    """Outcome files by reading and run, of these runs. A file holds rows of one run."""
    files: dict[tuple[ReadingKey, str], list[str]] = defaultdict(list)
    columns = ["document_hash", "question_hash", "sample", "run_id"]
    for file, table in read_log(output / OUTCOMES_FOLDER, columns=columns, fingerprints=[fingerprint], begins=run_ids):
        for row in table.to_pylist():
            key = (row["document_hash"], row["question_hash"], row["sample"])
            files[key, sys.intern(row["run_id"])].append(file)
    return dict(files)


def read_outcomes(
    output: Location,
    files: Iterable[str],
    *,
    fingerprint: str,
    document_hashes: Sequence[str] | None = None,
    columns: Sequence[str] = tuple(OUTCOME_LOG.names),
) -> dict[ReadingKey, CurrentOutcome]:
    """The outcome rows in these files that count, one for each reading; see `_rank`.

    Rows have `columns` beside those that they are ranked by.
    """
    files = list(files)
    wanted = None if document_hashes is None else pa.array(document_hashes, pa.string())
    names = [*_RANKED_BY, "status", *columns]
    tables = read_log_files(output, files, columns=names, fingerprints=[fingerprint], document_hashes=wanted)
    return _best(zip(files, tables, strict=True), keep=_current_outcome).get(fingerprint, {})


def scan_follow_ups(
    output: Location,
    *,
    fingerprints: Collection[str],
    after: str = "",
    until: str | None = None,
    begins: str = "",
    among: Collection[str] | None = None,
) -> dict[str, dict[ReadingKey, LoggedOutcome]]:
    """The readings that were closed, by fingerprint.

    Only what runs after `after` closed, up to `until`; with `begins`, a run, only its files are read.
    """
    columns = [*_RANKED_BY, "is_failed"]
    folder = output / FOLLOW_UPS_FOLDER
    tables = read_log(folder, columns=columns, fingerprints=fingerprints, begins=[begins], among=among)
    within = ((file, _of_runs(table, after=after, until=until)) for file, table in tables)
    return _best(within, keep=_logged)


def read_follow_ups(
    output: Location,
    files: Iterable[str],
    *,
    fingerprints: Collection[str],
    document_hashes: Sequence[str] | None = None,
    columns: Sequence[str] = tuple(FOLLOW_UP_LOG.names),
) -> dict[str, dict[ReadingKey, FollowUpRow]]:
    """The rows in these files that count, by fingerprint and reading; see `_rank`."""
    files = list(files)
    wanted = None if document_hashes is None else pa.array(document_hashes, pa.string())
    names = [*_RANKED_BY, "is_failed", *columns]
    tables = read_log_files(output, files, columns=names, fingerprints=fingerprints, document_hashes=wanted)
    return _best(zip(files, tables, strict=True), keep=lambda _, row: cast(FollowUpRow, row))


def reading_key(address: ReadingAddress) -> ReadingKey:
    """The key of an address under its own fingerprint."""
    return (address.document_hash, address.question_hash, address.sample)


def _best(tables: Iterable[tuple[str, pa.Table]], *, keep: Callable[[str, Row], T]) -> dict[str, dict[ReadingKey, T]]:
    """What `keep` makes of the rows that count, by fingerprint and reading: one for each, that of the highest rank."""
    kept: dict[str, dict[ReadingKey, T]] = defaultdict(dict)
    ranks: dict[str, dict[ReadingKey, Rank]] = defaultdict(dict)
    for file, table in tables:
        for row in table.to_pylist():
            row |= {name: sys.intern(row[name]) for name in ("fingerprint", "question_hash", "run_id")}
            fingerprint, key = row["fingerprint"], (row["document_hash"], row["question_hash"], row["sample"])
            rank = _rank(row)
            if key not in ranks[fingerprint] or rank > ranks[fingerprint][key]:
                ranks[fingerprint][key] = rank
                kept[fingerprint][key] = keep(file, row)
    return dict(kept)


def _rank(row: Row) -> Rank:
    """The rank of a row: whole above failed, then the last run; in a run the first whole one, or the last failure.

    So a late write of an attempt that was superseded changes nothing.
    """
    finished_at = row["finished_at"].timestamp()
    is_whole = _status(row) is Status.OK
    return (is_whole, row["run_id"], -finished_at if is_whole else finished_at)


def _status(row: Row) -> Status:
    if "status" in row:
        return Status(row["status"])
    return Status.FAILED if row["is_failed"] else Status.OK


def _logged(file: str, row: Row) -> LoggedOutcome:
    return LoggedOutcome(status=_status(row), file=file, run_id=row["run_id"])


def _current_outcome(file: str, row: Row) -> CurrentOutcome:
    return cast(CurrentOutcome, row | {"line": log_line(file)})


def _of_runs(table: pa.Table, *, after: str, until: str | None) -> pa.Table:
    is_wanted = pc.greater(table["run_id"], after)
    return table.filter(is_wanted if until is None else pc.and_(is_wanted, pc.less_equal(table["run_id"], until)))
