"""What a log holds, written by hand."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from memagent_batch.data.store.turn_log.files import LOG_KEYS
from memagent_batch.data.store.turn_log.index import LogIndex, ReadingKey
from memagent_batch.types import Status

TurnsKey = tuple[str, str]
"""Document hash and question hash."""


def log_index(
    outcomes: Mapping[ReadingKey, tuple[Status, str]] | None = None,
    *,
    closed: Mapping[tuple[str, ReadingKey], tuple[Status, str]] | None = None,
    turn_files: Mapping[TurnsKey, list[str]] | None = None,
    turn_files_of_id: Mapping[tuple[str, str], list[str]] | None = None,
) -> LogIndex:
    """Statuses and files of readings that ended, and that were closed by the fingerprint `closed` names; turn files.

    `turn_files_of_id`: those of other versions, by document id and question hash.
    """
    turns = [_row((*key, 0), file=file, num_turns=1) for key, files in (turn_files or {}).items() for file in files]
    turns += [
        _row((f"old {document_id}", question_hash, 0), document_id=document_id, file=file, num_turns=1)
        for (document_id, question_hash), files in (turn_files_of_id or {}).items()
        for file in files
    ]
    return LogIndex(
        outcomes=_keys([_row(key, status=ended[0], file=ended[1]) for key, ended in (outcomes or {}).items()]),
        closed=_keys(
            [
                _row(key, fingerprint=fingerprint, status=ended[0], file=ended[1])
                for (fingerprint, key), ended in (closed or {}).items()
            ]
        ),
        turns=_keys(turns),
    )


def readings_of(keys: pa.Table) -> dict[ReadingKey, dict[str, Any]]:
    return {(row["document_hash"], row["question_hash"], row["sample"]): row for row in keys.to_pylist()}


def turn_keys(index: LogIndex) -> set[TurnsKey]:
    return {(row["document_hash"], row["question_hash"]) for row in index.turns.to_pylist()}


def _row(key: Any, **values: Any) -> dict[str, Any]:
    document_hash, question_hash, sample = key
    address = {"document_hash": document_hash, "question_hash": question_hash, "sample": sample, "fingerprint": "f"}
    ended = {"run_id": "r", "finished_at": datetime(2026, 1, 1, tzinfo=UTC), "num_turns": 0, "num_copies": 0}
    return {**address, **ended, **values}


def _keys(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=LOG_KEYS)
