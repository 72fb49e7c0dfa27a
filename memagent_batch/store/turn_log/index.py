"""Reads the turn log: which readings have ended or begun, and in which files. Holds keys and file names, no texts.

A log file that can't be read is an OutputError that names it.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.readings import Status
from memagent_batch.errors import StorageError
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.keys import (
    FOLLOW_UPS_FOLDER,
    LOG_THREADS,
    OUTCOMES_FOLDER,
    TURNS_FOLDER,
    MapFiles,
    list_folder,
    log_line,
    merged_file,
    read_keys,
    read_log_file,
)
from memagent_batch.store.turn_log.rows import FOLLOW_UP_LOG, OUTCOME_LOG, FollowUpRow, OutcomeRow

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
    read = partial(
        read_log_file,
        folder,
        columns=list(dict.fromkeys([*columns, "fingerprint"])),
        document_hashes=None if document_hashes is None else sorted(document_hashes.to_pylist()),
    )
    try:
        table = read(path)
    except StorageError:
        merged = merged_file(folder, path)
        if merged is None:
            raise
        table = read(merged)  # merged since it was listed
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

    def copy(self) -> "TurnIndex":
        """The same, to add to."""
        return replace(
            self,
            outcomes={**self.outcomes},
            turn_files={key: [*files] for key, files in self.turn_files.items()},
            reused_from={key: [*versions] for key, versions in self.reused_from.items()},
            run_turns={**self.run_turns},
            follow_up_readings={name: {**closed} for name, closed in self.follow_up_readings.items()},
        )

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
    before: TurnIndex | None = None,
    mapped: MapFiles = map,
) -> TurnIndex:
    """Reads the keys of the log: memory grows with readings, not with turns.

    Args:
        output: Where the log is.
        fingerprint: Of the reader.
        follow_up_readings: Fingerprints under which closed readings are kept.
        follow_up_turns: Those of what was asked after the answers.
        begins: A run's id, if only its files are read.
        among: Paths, if only these files count; they are read themselves, and not their keys.
        before: What the other files hold, with `begins`.
        mapped: Runs the tasks of a large scan; see `Executor.map`.
    """
    index = TurnIndex(fingerprint=fingerprint) if before is None else before.copy()
    fingerprints = {fingerprint, *follow_up_turns, *follow_up_readings}
    ended, turns = [], []
    for keys in read_keys(output, fingerprints=fingerprints, begins=[begins], among=among, mapped=mapped):
        is_turn = pc.greater(keys["num_turns"], 0)
        ended.append(keys.filter(pc.invert(is_turn)))
        of_reader = pc.is_in(keys["fingerprint"], pa.array([fingerprint, *follow_up_turns], pa.string()))
        turns.append(keys.filter(pc.and_(is_turn, of_reader)))
    best = _best(map(_by_file, ended), keep=_logged)
    _add_later(index.outcomes, best.pop(fingerprint, {}))
    for name in follow_up_readings:
        if name in best:
            _add_later(index.follow_up_readings.setdefault(name, {}), best[name])
    for table in turns:
        _add_turns(index, table)
    return index


def _add_later(logged: dict[ReadingKey, LoggedOutcome], later: Mapping[ReadingKey, LoggedOutcome]) -> None:
    """Adds what a later run has logged; a failure does not count where an earlier run has an answer."""
    for key, outcome in later.items():
        if key not in logged or outcome.status is Status.OK or logged[key].status is not Status.OK:
            logged[key] = outcome


def last_run_id(output: Location) -> str:
    """The last run that wrote to the log; empty where none did."""
    folders = (OUTCOMES_FOLDER, TURNS_FOLDER, FOLLOW_UPS_FOLDER)
    paths = [path for folder in folders for path in list_folder(output / folder)]
    return max((path.rpartition("/")[2].partition("-")[0] for path in paths), default="")


def scan_turn_files(output: Location, *, fingerprints: Collection[str], begins: str = "") -> dict[str, list[str]]:
    """Turn files by document hash, with those of turns from its earlier versions: of a run or writer, or of all."""
    index = TurnIndex(fingerprint="")
    for keys in read_keys(output, fingerprints=fingerprints, folders=[TURNS_FOLDER], begins=[begins]):
        _add_turns(index, keys)
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for key in index.turn_files:
        found[key[0]].update(dict.fromkeys(index.files_of(key)))
    return {document_hash: sorted(files) for document_hash, files in found.items()}


def _add_turns(index: TurnIndex, keys: pa.Table) -> None:
    columns = ["document_hash", "question_hash", "file", "reused_from", "run_id", "num_turns"]
    files: dict[TurnsKey, dict[str, None]] = defaultdict(dict)
    for document_hash, question_hash, file, version, run_id, num_turns in zip(
        *(keys[name].to_pylist() for name in columns), strict=True
    ):
        key = (document_hash, sys.intern(question_hash))
        files[key][sys.intern(file)] = None
        if version is not None and version not in index.reused_from.setdefault(key, []):
            index.reused_from[key].append(sys.intern(version))  # many versions of a document name the same ones
        counts = index.run_turns.get(run_id, RunTurns(asked=0, held=0))
        name = "asked" if version is None else "held"
        index.run_turns[run_id] = replace(counts, **{name: getattr(counts, name) + num_turns})
    for key, of_key in files.items():
        index.turn_files.setdefault(key, []).extend(of_key)


def scan_outcome_files(
    output: Location, *, fingerprint: str, run_ids: Collection[str]
) -> dict[tuple[ReadingKey, str], list[str]]:
    """Outcome files by reading and run, of these runs. A file holds rows of one run."""
    files: dict[tuple[ReadingKey, str], list[str]] = defaultdict(list)
    columns = ["document_hash", "question_hash", "sample", "run_id", "file"]
    for keys in read_keys(output, fingerprints=[fingerprint], folders=[OUTCOMES_FOLDER], begins=run_ids):
        for *key, run_id, file in zip(*(keys[name].to_pylist() for name in columns), strict=True):
            files[cast(ReadingKey, tuple(key)), sys.intern(run_id)].append(file)
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
    output: Location, *, fingerprints: Collection[str], after: str = "", until: str | None = None
) -> dict[str, dict[ReadingKey, LoggedOutcome]]:
    """The readings that runs after `after`, up to `until`, closed, by fingerprint."""
    keys = read_keys(output, fingerprints=fingerprints, folders=[FOLLOW_UPS_FOLDER])
    return _best((_by_file(_of_runs(table, after=after, until=until)) for table in keys), keep=_logged)


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


def _by_file(keys: pa.Table) -> tuple[str, pa.Table]:
    """Keys for `_best`: each row names its own file."""
    return "", keys


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


def _logged(_: str, row: Row) -> LoggedOutcome:
    return LoggedOutcome(status=_status(row), file=sys.intern(row["file"]), run_id=row["run_id"])


def _current_outcome(file: str, row: Row) -> CurrentOutcome:
    return cast(CurrentOutcome, row | {"line": log_line(file)})


def _of_runs(table: pa.Table, *, after: str, until: str | None) -> pa.Table:
    is_wanted = pc.greater(table["run_id"], after)
    return table.filter(is_wanted if until is None else pc.and_(is_wanted, pc.less_equal(table["run_id"], until)))
