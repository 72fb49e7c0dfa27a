"""The turn log: the append-only record of every finished turn and reading, the one durable fact of a run.

Files are immutable and appear whole or not at all: `log/turns/*.parquet`, `log/outcomes/*.parquet`,
`log/follow_ups/*.parquet`, and their keys. A writer buffers rows and writes them every few seconds or few MiB, off the
event loop.
"""

import asyncio
import contextlib
import secrets
import time
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from memagent_batch.config.job import LogConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.files import (
    FOLLOW_UPS_FOLDER,
    LOG_SCHEMAS,
    OUTCOMES_FOLDER,
    TURNS_FOLDER,
    write_log_files,
)
from memagent_batch.data.store.turn_log.rows import ClosedRow, EndedRow, RowCheck, outcome_row, turn_row
from memagent_batch.errors import StorageError, StorageOutageError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.types import Completion, Prompt

LOG_CHECKS = {folder: RowCheck(schema) for folder, schema in LOG_SCHEMAS.items()}
TURN_ROW_BYTES = 300
"""Bytes that a row takes beside its tokens and text; only paces the flushes."""
FLUSH_BYTES = 4 * 1024 * 1024
"""A flush comes before its time when so many bytes wait."""
ROOM_FLUSHES = 8
"""Times `FLUSH_BYTES` that may wait in memory while the store fails; then turns wait too."""
FIRST_PAUSE_SECONDS = 0.5
"""Pause before a failed flush is tried again; doubled each time."""
MAX_PAUSE_SECONDS = 15.0
"""Doubling stops here: a store that comes back is found soon."""

STAMP_FORMAT = "%Y%m%dT%H%M%S.%fZ"
STAMP_LENGTH = len("20260131T235959.123Z")


class TurnLogWriter:
    """Appends turns and outcomes to a run's location. One for each actor; lives on one event loop.

    Raises:
        LogRowError: from `record_*`: the row does not fit the log; it concerns its reading alone.
        StorageError: from every method, once a file could not be written for `log.outage_seconds`, or can never be:
            nothing may count as done that is not kept.
    """

    def __init__(
        self, output: Location | None, *, run_id: str, writer_id: str, settings: LogConfig, replicas: int = 1
    ) -> None:
        """Files are named `{run_id}-{writer_id}-{number}`, so that no two writers ever share a name.

        Without an output every row is checked as if it were to be kept, and then dropped.
        """
        self._output = output
        self.run_id = run_id
        """The run that its rows name."""
        self._name = f"{run_id}-{writer_id}"
        self._settings, self._flush_seconds = settings, settings.paced(replicas)
        self._rows: dict[str, list[Mapping[str, object]]] = defaultdict(list)  # what waits for a flush, by folder
        self._waiting_bytes = self._flushing_bytes = 0
        self._number = 0
        self._room = asyncio.Event()
        self._room.set()
        self._wake = asyncio.Event()
        self._flushed: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: StorageError | None = None
        self._thread = ThreadPoolExecutor(1, "turn-log")  # a flush must not wait for rankings in the loop's own threads
        self.num_flushes = 0
        """Flushes so far."""
        self.num_bytes = 0
        """Bytes of all files so far."""

    def record_turn(
        self, address: ReadingAddress, prompt: Prompt, completion: Completion, *, document_id: str = ""
    ) -> None:
        """Takes a finished turn, or a copy of an equal one; it is durable within the flush interval.

        `document_id`: the document as which this text is read.
        """
        row = turn_row(address, prompt, completion, run_id=self.run_id, document_id=document_id)
        memory = len(row["memory_after"] or "")
        self._take(row, TURNS_FOLDER, TURN_ROW_BYTES + 4 * len(completion.token_ids) + len(completion.text) + memory)

    async def record_outcome(self, address: ReadingAddress, result: EndedRow) -> None:
        """Takes a reading's end and returns when it is durable."""
        self._take(outcome_row(address, result, run_id=self.run_id), OUTCOMES_FOLDER, 2 * TURN_ROW_BYTES)
        await self.settle()

    async def record_follow_ups(self, address: ReadingAddress, closed: ClosedRow) -> None:
        """Takes what the follow-up questions of a reading brought, and returns when it is durable.

        The address has their fingerprint.
        """
        row = {"run_id": self.run_id, **asdict(address), **closed}
        self._take(row, FOLLOW_UPS_FOLDER, 2 * TURN_ROW_BYTES)
        await self.settle()

    async def room(self) -> None:
        """Returns when more may be recorded: at once, but while the store fails and much waits to be written."""
        await self._room.wait()

    def flush_soon(self) -> None:
        """Flushes without waiting for the interval: nothing else runs."""
        self._wake.set()

    async def flush(self) -> None:
        """Writes what was recorded so far, and returns when it is durable."""
        self._wake.set()
        await self.settle()

    async def settle(self) -> None:
        """Returns when what was recorded so far is durable, at the end of the next flush.

        Of one that has begun it may be too late to be part.
        """
        if self._error:
            raise self._error
        if self._task is not None and not self._task.done():
            if self._flushed is None:
                self._flushed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._flushed)

    def _take(self, row: Mapping[str, object], folder: str, num_bytes: int) -> None:
        """Takes a row that fits its table, and begins to flush."""
        if self._error:
            raise self._error
        LOG_CHECKS[folder].require(row)
        if self._output is None:
            return
        self._rows[folder].append(row)
        self._waiting_bytes += num_bytes
        if self._waiting_bytes >= FLUSH_BYTES:
            self._wake.set()
        self._open_or_close_room()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush_until_empty())

    def _open_or_close_room(self) -> None:
        if self._error or self._waiting_bytes + self._flushing_bytes < ROOM_FLUSHES * FLUSH_BYTES:
            self._room.set()
        else:
            self._room.clear()

    async def _flush_until_empty(self) -> None:
        while self._rows or self._flushed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), timeout=self._flush_seconds)
            self._wake.clear()
            await self._flush()

    async def _flush(self) -> None:
        rows, self._rows = self._rows, defaultdict(list)
        flushed, self._flushed = self._flushed, None
        self._flushing_bytes, self._waiting_bytes = self._waiting_bytes, 0
        self._number += 1
        if self._error is None:  # after a failed flush an outcome would be kept without its turns
            try:
                await self._write(rows)
            except StorageError as error:
                self._error = error
            except Exception as error:  # noqa: BLE001 - nobody may wait forever for a flush that failed
                self._error = StorageError(f"the log of {self._name} can't be written: {type(error).__name__}: {error}")
        self._flushing_bytes = 0
        self._open_or_close_room()
        if flushed and self._error:
            flushed.set_exception(self._error)
        elif flushed:
            flushed.set_result(None)

    async def _write(self, rows: Mapping[str, list[Mapping[str, object]]]) -> None:
        """Writes the rows in a thread, and tries again through an outage.

        Raises:
            StorageError: they can't be written, or could not for `log.outage_seconds`.
        """
        assert self._output is not None  # without one, no row waits
        output, name = self._output, f"{self._name}-{self._number:06d}.parquet"

        def write() -> int:
            tables = {folder: pa.Table.from_pylist(each, schema=LOG_SCHEMAS[folder]) for folder, each in rows.items()}
            return write_log_files(output, tables, name=name)

        began, pause_seconds = time.monotonic(), FIRST_PAUSE_SECONDS
        while True:
            try:
                self.num_bytes += await asyncio.get_running_loop().run_in_executor(self._thread, write)
            except StorageOutageError as error:
                if time.monotonic() - began + pause_seconds > self._settings.outage_seconds:
                    tried = f"tried for {self._settings.outage_seconds:g} s (log.outage_seconds)"
                    raise StorageError(f"{error}; {tried}") from error
            else:
                self.num_flushes += 1
                return
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)


def new_run_id(*, after: str = "") -> str:
    """A run's id: UTC time to the millisecond and four random hex digits, such as `20260131T235959.123Z.07af`.

    It sorts behind `after`, the id of the run before in the same output, though the clock may have gone back since:
    among rows of several runs the later run's stand, and no clock must decide which that is.
    """
    now = datetime.now(UTC)
    with contextlib.suppress(ValueError):  # an id that is not a time, as of an output that was made by hand
        before = datetime.strptime(after[:STAMP_LENGTH], STAMP_FORMAT).replace(tzinfo=UTC)
        now = max(now, before + timedelta(milliseconds=1))
    stamp = now.strftime("%Y%m%dT%H%M%S.") + f"{now.microsecond // 1000:03d}Z"
    return f"{stamp}.{secrets.token_hex(2)}"
