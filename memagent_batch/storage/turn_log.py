"""The turn log: the append-only record of every finished turn and reading, the one durable fact of a run.

Files are immutable and appear whole or not at all: `log/turns/*.parquet` and `log/outcomes/*.parquet`. A writer buffers
rows and writes them every few seconds or few MiB, off the event loop.
"""

import asyncio
import contextlib
import io
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.domain.addresses import ReadingAddress, token_hash
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.errors import StorageError
from memagent_batch.settings import LogSettings
from memagent_batch.storage.location import Location
from memagent_batch.storage.schemas import OUTCOME_LOG, TURN_LOG

TURNS_FOLDER = "log/turns"
OUTCOMES_FOLDER = "log/outcomes"
ROW_BYTES = 300
"""Bytes that a row takes beside its tokens and text; only paces the flushes."""


class TurnLogWriter:
    """Appends turns and outcomes to a run's location. One for each actor; lives on one event loop.

    Raises:
        StorageError: from every method, once a file could not be written: nothing may count as done that is not kept.
    """

    def __init__(self, output: Location, *, run_id: str, writer_id: str, settings: LogSettings) -> None:
        """Files are named `{run_id}-{writer_id}-{number}`, so that no two writers ever share a name."""
        self._output = output
        self._run_id = run_id
        self._name = f"{run_id}-{writer_id}"
        self._settings = settings
        self._turns: list[dict[str, Any]] = []
        self._outcomes: list[dict[str, Any]] = []
        self._pending_bytes = 0
        self._number = 0
        self._wake = asyncio.Event()
        self._flushed: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: StorageError | None = None

    def record_turn(self, address: ReadingAddress, prompt: Prompt, completion: Completion) -> None:
        """Takes a finished turn; it is durable within the flush interval."""
        span = asdict(prompt.span) if prompt.span else dict.fromkeys(SPAN_COLUMNS)
        self._append(
            self._turns,
            {
                **asdict(address),
                "path": prompt.path,
                "kind": prompt.kind,
                **{SPAN_COLUMNS.get(name, name): value for name, value in span.items()},
                "prompt_hash": token_hash(prompt.token_ids),
                "token_ids": completion.token_ids,
                "text": completion.text,
                "logprobs": completion.logprobs,
                "finish_reason": completion.finish_reason,
                "num_prompt_tokens": completion.num_prompt_tokens,
                "num_cached_prompt_tokens": completion.num_cached_prompt_tokens,
                "engine_seconds": completion.engine_seconds,
                "finished_at": datetime.now(UTC),
            },
            num_bytes=ROW_BYTES + 4 * len(completion.token_ids) + len(completion.text),
        )

    async def record_outcome(self, address: ReadingAddress, result: Mapping[str, Any]) -> None:
        """Takes a reading's end and returns when it is durable."""
        self._append(self._outcomes, {**asdict(address), **result}, num_bytes=2 * ROW_BYTES)
        if self._flushed is None:
            self._flushed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._flushed)

    def flush_soon(self) -> None:
        """Flushes without waiting for the interval: nothing else is under way."""
        self._wake.set()

    async def close(self) -> None:
        """Writes what waits."""
        if self._task is not None:
            self._wake.set()
            await self._task
        if self._error:
            raise self._error

    def _append(self, rows: list[dict[str, Any]], row: dict[str, Any], *, num_bytes: int) -> None:
        if self._error:
            raise self._error
        rows.append({"run_id": self._run_id, **row})
        self._pending_bytes += num_bytes
        if self._pending_bytes >= self._settings.flush_bytes:
            self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush_until_empty())

    async def _flush_until_empty(self) -> None:
        while self._turns or self._outcomes:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), timeout=self._settings.flush_seconds)
            self._wake.clear()
            await self._flush()

    async def _flush(self) -> None:
        turns, self._turns = self._turns, []
        outcomes, self._outcomes = self._outcomes, []
        flushed, self._flushed = self._flushed, None
        self._pending_bytes = 0
        self._number += 1
        if self._error is None:  # after a failed flush an outcome would be kept without its turns
            self._error = await asyncio.to_thread(self._failure, turns, outcomes, self._number)
        if flushed and self._error:
            flushed.set_exception(self._error)
        elif flushed:
            flushed.set_result(None)

    def _failure(self, turns: list[dict[str, Any]], outcomes: list[dict[str, Any]], number: int) -> StorageError | None:
        """Writes the rows; what kept them from being written, so that no flush is waited for for ever."""
        try:
            self._write(turns, outcomes, number)
        except StorageError as error:
            return error
        except (pa.ArrowException, TypeError, ValueError) as error:
            return StorageError(f"rows of {self._name} do not fit the log: {type(error).__name__}: {error}")
        return None

    def _write(self, turns: list[dict[str, Any]], outcomes: list[dict[str, Any]], number: int) -> None:
        """Turns first: an outcome is never there without the turns that explain it."""
        for folder, rows, schema in ((TURNS_FOLDER, turns, TURN_LOG), (OUTCOMES_FOLDER, outcomes, OUTCOME_LOG)):
            if rows:
                table = pa.Table.from_pylist(rows, schema=schema)
                (self._output / f"{folder}/{self._name}-{number:06d}.parquet").write_bytes(parquet_bytes(table))


SPAN_COLUMNS = {
    "index": "chunk_index",
    "token_start": "token_start",
    "token_end": "token_end",
    "char_start": "char_start",
    "char_end": "char_end",
}
"""Fields of a ChunkSpan and the columns that hold them."""


def parquet_bytes(table: pa.Table) -> bytes:
    """The table as one Parquet file, zstd."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def new_run_id() -> str:
    """A run's id: UTC time to the millisecond, sortable, such as `20260131T235959.123Z`."""
    now = time.time()
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S") + f".{int(now * 1000) % 1000:03d}Z"
