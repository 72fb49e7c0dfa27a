"""Reads the turn log: which readings have ended or begun, and in which files. Holds keys and file names, no texts."""

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import UPDATE, Writes
from memagent_batch.files.errors import storage_errors, table_errors
from memagent_batch.files.location import Location
from memagent_batch.log.schemas import OUTCOME_LOG, TURN_LOG, OutcomeRow, TurnRow
from memagent_batch.log.writer import OUTCOMES_FOLDER, TURNS_FOLDER

LATER_COLUMNS = frozenset({"writes", "menu_logprobs"})
"""Columns of `TURN_LOG` that files of earlier versions lack."""

LOG_THREADS = 16
"""Log files read at once, in a request each: enough to keep a core busy where a store answers in 50 ms."""

ReadingKey = tuple[str, str, int]
"""Document hash, question hash, sample: an address under one reader fingerprint."""

TurnsKey = tuple[str, str]
"""Document hash, and question hash (or the hash of the list that the turns are shared by): where turns stand."""

Row = dict[str, Any]
"""A row of a table by column name."""

OutcomeRank = tuple[bool, str, float]
"""Order among outcomes of one address: a class, the run's id, seconds inside the run. The highest one counts."""

TurnRank = tuple[bool, str, bool, float]
"""Order among turns of one path: a class, the run's id, whether its writer ended the reading, seconds in the run."""


class StandingOutcome(OutcomeRow):
    """The row of the outcome log that counts for a reading."""

    line: str
    """Run and writer of its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedOutcome:
    """Where the outcome of a reading is kept."""

    status: Status
    """How the reading ended."""
    file: str
    """Log file that holds the row."""
    run_id: str
    """The run that wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnIndex:
    """What a log holds under one reader fingerprint."""

    reader_fingerprint: str
    """The reader; turns of other readers are left out."""
    outcomes: dict[ReadingKey, LoggedOutcome] = field(default_factory=dict)
    """Readings that ended."""
    turn_files: dict[TurnsKey, list[str]] = field(default_factory=dict)
    """Turn files by document and question, so that a new question of an old document opens none."""


def scan_log(output: Location, *, reader_fingerprint: str) -> TurnIndex:
    """Reads the keys of the whole log: memory grows with readings, not with turns.

    Raises:
        OutputError: a log file can't be read; names it.
    """
    index = TurnIndex(reader_fingerprint=reader_fingerprint)
    best: dict[ReadingKey, OutcomeRank] = {}
    keys = ["document_hash", "question_hash", "sample", "status", "finished_at", "run_id"]
    for file, table in _read_all(output / OUTCOMES_FOLDER, columns=keys, reader_fingerprint=reader_fingerprint):
        for row in table.to_pylist():
            row |= {name: sys.intern(row[name]) for name in ("question_hash", "run_id")}  # many rows have the same
            key = (row["document_hash"], row["question_hash"], row["sample"])
            rank = _outcome_rank(row)
            if key not in best or rank > best[key]:
                best[key] = rank
                index.outcomes[key] = LoggedOutcome(status=Status(row["status"]), file=file, run_id=row["run_id"])
    index.turn_files.update(_turn_files(output, reader_fingerprint=reader_fingerprint, begins=""))
    return index


def last_run_id(output: Location) -> str:
    """The last run that wrote to the log; empty where none did.

    Raises:
        StorageError: the log can't be listed.
    """
    paths = [*(output / OUTCOMES_FOLDER).files(), *(output / TURNS_FOLDER).files()]
    return max((path.rpartition("/")[2].partition("-")[0] for path in paths), default="")


def scan_turn_files(output: Location, *, reader_fingerprint: str, begins: str = "") -> dict[str, list[str]]:
    """Turn files by document hash: of all files, or of files that a run or a writer wrote.

    Raises:
        OutputError: a log file can't be read; names it.
    """
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for (document_hash, _), files in _turn_files(output, reader_fingerprint=reader_fingerprint, begins=begins).items():
        found[document_hash].update(dict.fromkeys(files))
    return {document_hash: sorted(files) for document_hash, files in found.items()}


def _turn_files(output: Location, *, reader_fingerprint: str, begins: str) -> dict[TurnsKey, list[str]]:
    turn_files: dict[TurnsKey, list[str]] = defaultdict(list)
    columns = ["document_hash", "question_hash"]
    for file, table in _read_all(
        output / TURNS_FOLDER, columns=columns, reader_fingerprint=reader_fingerprint, begins=[begins]
    ):
        pairs = zip(*(table[name].to_pylist() for name in columns), strict=True)
        for document_hash, question_hash in dict.fromkeys(pairs):
            turn_files[document_hash, sys.intern(question_hash)].append(file)
    return dict(turn_files)


def scan_turns(output: Location, *, columns: list[str], reader_fingerprint: str) -> Iterator[pa.Table]:
    """These columns of all turns, a table for each log file; the caller keeps what it needs.

    Raises:
        OutputError: a log file can't be read; names it.
    """
    for _, table in _read_all(output / TURNS_FOLDER, columns=columns, reader_fingerprint=reader_fingerprint):
        yield table


def scan_outcome_files(
    output: Location, *, reader_fingerprint: str, run_ids: Collection[str]
) -> dict[tuple[ReadingKey, str], list[str]]:
    """Outcome files by reading and run, of these runs. A file holds rows of one run.

    Raises:
        OutputError: a log file can't be read; names it.
    """
    files: dict[tuple[ReadingKey, str], list[str]] = defaultdict(list)
    columns = ["document_hash", "question_hash", "sample", "run_id"]
    for file, table in _read_all(
        output / OUTCOMES_FOLDER, columns=columns, reader_fingerprint=reader_fingerprint, begins=run_ids
    ):
        for row in table.to_pylist():
            key = (row["document_hash"], row["question_hash"], row["sample"])
            files[key, sys.intern(row["run_id"])].append(file)
    return dict(files)


def read_outcomes(
    output: Location,
    files: Iterable[str],
    *,
    reader_fingerprint: str,
    document_hashes: Sequence[str] | None = None,
) -> dict[ReadingKey, StandingOutcome]:
    """The outcome rows in these files that count, one for each reading; see `_outcome_rank`.

    Args:
        output: The run's location.
        files: Outcome files.
        reader_fingerprint: The reader.
        document_hashes: The documents; all by default.
    """
    rows: dict[ReadingKey, StandingOutcome] = {}
    files = list(files)
    wanted = None if document_hashes is None else pa.array(document_hashes, pa.string())
    tables = _read_log_files(
        output, files, columns=OUTCOME_LOG.names, reader_fingerprint=reader_fingerprint, document_hashes=wanted
    )
    for file, table in zip(files, tables, strict=True):
        for row in table.to_pylist():
            key = (row["document_hash"], row["question_hash"], row["sample"])
            if key not in rows or _outcome_rank(row) > _outcome_rank(rows[key]):
                rows[key] = row
                row["line"] = _log_line(file)
    return rows


def read_turns(
    output: Location,
    files: Iterable[str],
    *,
    reader_fingerprint: str,
    document_hashes: Sequence[str],
    ended_by: Mapping[ReadingKey, str] = MappingProxyType({}),
    with_tokens: bool = True,
) -> dict[ReadingKey, dict[str, TurnRow]]:
    """The turns of these documents in these files, by reading and turn path.

    Rows are of `TURN_LOG`; without tokens, `num_tokens` stands for token_ids and logprobs, which take most room.
    Where a turn was logged twice, one is taken by a rule that no clock decides; see `_turn_rank`.

    Args:
        output: the run's location.
        files: log files of turns.
        reader_fingerprint: the reader.
        document_hashes: the documents.
        ended_by: the `line` of the outcome that ended a reading; turns of later runs had no part in it.
        with_tokens: whether token_ids and logprobs are read.
    """
    readings: dict[ReadingKey, dict[str, TurnRow]] = defaultdict(dict)
    wanted = pa.array(document_hashes, pa.string())
    names = [name for name in TURN_LOG.names if with_tokens or name not in ("logprobs", "menu_logprobs")]
    ranks: dict[tuple[ReadingKey, str], TurnRank] = {}
    files = list(files)
    tables = _read_log_files(
        output, files, columns=names, reader_fingerprint=reader_fingerprint, document_hashes=wanted
    )
    for file, table in zip(files, tables, strict=True):
        for row in (table if with_tokens else _without_tokens(table)).to_pylist():
            key = (row["document_hash"], row["question_hash"], row["sample"])
            rank = _turn_rank(row, line=_log_line(file), ended_by=ended_by.get(key))
            place = (key, row["path"])
            if place not in ranks or rank > ranks[place]:
                ranks[place] = rank
                readings[key][row["path"]] = row
    return readings


def _without_tokens(table: pa.Table) -> pa.Table:
    num_tokens = pc.list_value_length(table["token_ids"])
    return table.drop_columns(["token_ids"]).append_column("num_tokens", num_tokens)


def reading_key(address: ReadingAddress) -> ReadingKey:
    """The key of an address under its own fingerprint."""
    return (address.document_hash, address.question_hash, address.sample)


def _outcome_rank(row: OutcomeRow) -> OutcomeRank:
    """The rank of an outcome: `ok` above `failed`, then the last run; in a run the first `ok`, or the last failure.

    So a late write of an attempt that was superseded changes nothing.
    """
    finished_at = row["finished_at"].timestamp()
    is_ok = row["status"] == Status.OK
    return (is_ok, row["run_id"], -finished_at if is_ok else finished_at)


def _turn_rank(row: TurnRow, *, line: str, ended_by: str | None) -> TurnRank:
    """The rank of a turn: the last run up to the one that ended the reading; in it that writer, then the first turn.

    A run replays what earlier runs logged and asks for the rest, and so does a reader that replaces one which was cut
    off. The turns of highest rank are the ones that the reading used.
    """
    had_part = ended_by is None or row["run_id"] <= ended_by  # a line begins with its run's id
    return (had_part, row["run_id"], line == ended_by, -row["finished_at"].timestamp())


def _log_line(file: str) -> str:
    """Run and writer of a log file: its name without the number."""
    return file.rpartition("/")[2].rpartition("-")[0]


def _read_all(
    folder: Location, *, columns: list[str], reader_fingerprint: str, begins: Collection[str] = ("",)
) -> Iterator[tuple[str, pa.Table]]:
    """The log files of a folder whose names begin with one of these: a run's id, and a writer's after it."""
    with storage_errors(folder.uri):
        paths = folder.files(begins=next(iter(begins)) if len(begins) == 1 else "")
    files = [path for path in paths if path.endswith(".parquet") and path.rsplit("/", 1)[-1].startswith(tuple(begins))]
    yield from zip(
        files, _read_log_files(folder, files, columns=columns, reader_fingerprint=reader_fingerprint), strict=True
    )


def _read_log_files(
    folder: Location,
    files: Iterable[str],
    *,
    columns: list[str],
    reader_fingerprint: str,
    document_hashes: pa.Array | None = None,
) -> Iterator[pa.Table]:
    read = partial(
        _read_log_file,
        folder,
        columns=columns,
        reader_fingerprint=reader_fingerprint,
        document_hashes=document_hashes,
    )
    with ThreadPoolExecutor(LOG_THREADS) as threads:
        yield from threads.map(read, files)


def _read_log_file(
    folder: Location, path: str, *, columns: list[str], reader_fingerprint: str, document_hashes: pa.Array | None
) -> pa.Table:
    wanted = list(dict.fromkeys([*columns, "reader_fingerprint"]))
    remedy = "restore it, or delete it to read its turns again"
    with storage_errors(path), table_errors(f"log file {path}", remedy=remedy, of_store=False):
        # a store is asked once for the whole file: it is small, and its footer alone would cost several requests
        source = path if folder.is_local else pa.BufferReader(folder.fs.cat_file(path))
        with pq.ParquetFile(source, pre_buffer=False) as file:
            table = file.read(columns=wanted, use_threads=False)
        table = _with_later_columns(table, names=wanted)
        if missing := sorted(set(wanted) - set(table.schema.names)):
            raise pa.ArrowInvalid(f"it has no column {missing[0]!r}")
    table = table.filter(pc.equal(table["reader_fingerprint"], reader_fingerprint))
    return table if document_hashes is None else table.filter(pc.is_in(table["document_hash"], document_hashes))


def _with_later_columns(table: pa.Table, *, names: Sequence[str]) -> pa.Table:
    """With the columns that files of earlier versions lack, where they are among these names."""
    for name in LATER_COLUMNS & set(names) - set(table.schema.names):
        column = pa.nulls(table.num_rows, TURN_LOG.field(name).type)
        if name == "writes":  # only `update` turns wrote anything but answers then
            column = pc.if_else(pc.equal(table["kind"], UPDATE), Writes.MEMORY.value, column)
        table = table.append_column(name, column)
    return table
