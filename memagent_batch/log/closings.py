"""Reads what the closing turns of readings brought: which were closed, in which files, and the rows themselves."""

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from memagent_batch.files.location import Location
from memagent_batch.log.files import ReadingKey, log_line, read_log, read_log_files
from memagent_batch.log.schemas import CLOSING_LOG, ClosingRow
from memagent_batch.log.writer import CLOSINGS_FOLDER

ClosingRank = tuple[bool, str, float]
"""Order among closings of one address: whether no turn failed, the run's id, seconds inside the run."""

_RANKED_BY = ["document_hash", "question_hash", "sample", "is_failed", "finished_at", "run_id"]
"""Columns that say which row of a reading counts."""


class StandingClosing(ClosingRow):
    """The row of the log of closings that counts for a reading."""

    line: str
    """Run and writer of its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedClosing:
    """Where the log keeps what the closing turns of a reading brought."""

    file: str
    """Log file that holds the row."""
    is_failed: bool
    """Whether one of them failed."""


def scan_closings(
    output: Location, *, fingerprints: Collection[str], after: str = "", until: str | None = None, begins: str = ""
) -> dict[str, dict[ReadingKey, LoggedClosing]]:
    """The readings that were closed, by fingerprint.

    Args:
        output: The run's location.
        fingerprints: Of what was asked after the answers.
        after: A run: only what later ones closed.
        until: A run: only what this one closed, or one before it; None for all.
        begins: A run: only its files.

    Raises:
        OutputError: a log file can't be read; names it.
    """
    found: dict[str, dict[ReadingKey, LoggedClosing]] = defaultdict(dict)
    best: dict[tuple[str, ReadingKey], ClosingRank] = {}
    tables = read_log(output / CLOSINGS_FOLDER, columns=_RANKED_BY, fingerprints=fingerprints, begins=[begins])
    for file, table in tables:
        for row in table.to_pylist():
            if not after < row["run_id"] <= (until or row["run_id"]):
                continue
            fingerprint, key = sys.intern(row["reader_fingerprint"]), _row_key(row)
            rank = _closing_rank(row)
            if (fingerprint, key) not in best or rank > best[fingerprint, key]:
                best[fingerprint, key] = rank
                found[fingerprint][key] = LoggedClosing(file=file, is_failed=row["is_failed"])
    return dict(found)


def read_closings(
    output: Location,
    files: Iterable[str],
    *,
    fingerprints: Collection[str],
    document_hashes: Sequence[str] | None = None,
    columns: Sequence[str] = tuple(CLOSING_LOG.names),
) -> dict[str, dict[ReadingKey, StandingClosing]]:
    """The rows in these files that count, by fingerprint and reading; see `_closing_rank`.

    Args:
        output: The run's location.
        files: Files of closings.
        fingerprints: Of what was asked after the answers.
        document_hashes: The documents; all by default.
        columns: What the rows have beside the columns that they are ranked by.
    """
    rows: dict[str, dict[ReadingKey, StandingClosing]] = defaultdict(dict)
    files = list(files)
    wanted = None if document_hashes is None else pa.array(document_hashes, pa.string())
    names = [*_RANKED_BY, *columns]
    tables = read_log_files(output, files, columns=names, fingerprints=fingerprints, document_hashes=wanted)
    for file, table in zip(files, tables, strict=True):
        for row in table.to_pylist():
            of_kind, key = rows[row["reader_fingerprint"]], _row_key(row)
            if key not in of_kind or _closing_rank(row) > _closing_rank(of_kind[key]):
                of_kind[key] = row
                row["line"] = log_line(file)
    return dict(rows)


def _row_key(row: Mapping[str, Any]) -> ReadingKey:
    return (row["document_hash"], sys.intern(row["question_hash"]), row["sample"])


def _closing_rank(row: Mapping[str, Any]) -> ClosingRank:
    """The rank of a closing: whole above failed, then the last run; in a run the first whole one, or the last failure.

    So a late write of an attempt that was superseded changes nothing.
    """
    finished_at = row["finished_at"].timestamp()
    is_whole = not row["is_failed"]
    return (is_whole, row["run_id"], -finished_at if is_whole else finished_at)
