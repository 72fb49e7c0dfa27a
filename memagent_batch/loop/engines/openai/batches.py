"""The Files and Batches API of an OpenAI-compatible endpoint: requests that may wait for hours, at half the price.

Requests wait here until no reading goes on: none was added for some seconds, and none of the caller's is under way
elsewhere. All that wait then become one batch, or several where they exceed the limits of one. No counter of readings
could say this more exactly: documents that are still being tokenised are not known to it. A batch that is sent too
early costs nothing but another batch.

Before a batch is made, a record of it is stored beside the turn log. It goes when the turns that the batch answered are
in the log. After a crash, a request that is in a record waits for that batch instead of being sent, and paid, again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from pydantic import BaseModel

from memagent_batch.errors import (
    EngineRefusedError,
    EngineUnavailableError,
    MemagentError,
    StorageError,
)
from memagent_batch.logs import EventKind
from memagent_batch.loop.engines.engine import BatchLimits, Folder
from memagent_batch.loop.engines.openai.api import Response
from memagent_batch.loop.engines.openai.batch_api import BatchApi, BatchObject
from memagent_batch.loop.engines.openai.client import OpenAIClient
from memagent_batch.loop.engines.openai.outage import CircuitBreaker, Failure

log = logging.getLogger(__name__)

TICK_SECONDS, QUIET_TICKS = 0.5, 10
"""A batch is sent after so many ticks in a row without a new request. Ticks, since a process that was held up for some
seconds has not been quiet."""

LIMITS = BatchLimits(num_requests=50_000, num_bytes=190 * 10**6)
"""OpenAI takes 50,000 requests and 200 MB."""

RECORD_DAYS = 30
"""A record is dropped after so many days, in which OpenAI removes what a batch has written."""

OVER_LIMIT = "token_limit_exceeded"
"""Why a batch fails while too many tokens of other batches wait at OpenAI."""

Result = Response | Failure | MemagentError


class Record(BaseModel):
    """What is stored of a batch. Without `batch_id` the run died while it made the batch, which may exist or not."""

    input_file_id: str
    batch_id: str = ""
    requests: list[str]


@dataclass(slots=True, kw_only=True, eq=False)
class Batch:
    """Requests that are sent together."""

    name: str
    """Name of its record. Names sort in the order in which the batches were made."""
    requests: set[str]
    """Ids of its requests whose answer may not be in the turn log yet."""
    lines: list[bytes] = field(default_factory=list)
    """What is to be uploaded."""
    input_file_id: str = ""
    batch_id: str = ""
    files: list[str] = field(default_factory=list)
    """Files at the endpoint that go with its record."""
    results: dict[str, Result] | None = None
    """Results that nobody has asked for yet; None until the batch has ended."""
    may_exist: bool = False
    """Whether the endpoint may have made it without our knowledge, since the answer was lost."""
    task: "asyncio.Task[None] | None" = None


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    line: bytes
    """Empty once it is part of a batch."""
    result: "asyncio.Future[Response | Failure]"
    num_waiting: int = 0


class Batches:
    """All batches of one engine. Lives on its event loop."""

    def __init__(self, client: OpenAIClient, outage: CircuitBreaker, *, path: str) -> None:
        """`path`: where the requests would go one by one, such as `completions`."""
        self._url = f"/v1/{path}"
        self._api = BatchApi(client, outage, url=self._url)
        self._folder: Folder | None = None
        self._flush: Callable[[], Awaitable[None]] | None = None
        self._requests: dict[str, _Request] = {}
        self._batches: dict[str, Batch] = {}
        """The batch of each request that was sent, by the request's id."""
        self._running: set[asyncio.Task[None]] = set()
        self._unsettled: set[Batch] = set()
        """Batches of which results were handed out whose turns may not be in the log yet."""
        self._sender: asyncio.Task[None] | None = None
        self._num_events = self._num_turns = self._num_waiting = 0

    def keep_in(self, folder: Folder, *, flush: Callable[[], Awaitable[None]]) -> None:
        """Takes the folder of the records; see `Engine.keep_in`."""
        self._folder, self._flush = folder, flush

    async def load(self) -> None:
        """Reads the records of batches that an engine before this one has made."""
        for batch in await asyncio.to_thread(self._read_records):
            for request in batch.requests:
                if request in self._batches:  # it was not done in the earlier batch
                    self._batches[request].requests.discard(request)
                self._batches[request] = batch

    def _read_records(self) -> list[Batch]:
        batches = list[Batch]()
        if self._folder is None:
            return batches
        for path in self._folder.files():
            name, file = path.rpartition("/")[2], self._folder.at(path)
            if int(name.partition("-")[0]) < time.time() - RECORD_DAYS * 86_400:
                file.delete()
                continue
            record = Record.model_validate_json(file.read_bytes())
            batches.append(
                Batch(
                    name=name,
                    requests=set(record.requests),
                    input_file_id=record.input_file_id,
                    batch_id=record.batch_id,
                    files=[record.input_file_id],
                    may_exist=True,
                )
            )
        return batches

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Surrounds a turn. No batch is sent while a turn does something else than wait for one."""
        self._num_turns += 1
        try:
            yield
        finally:
            self._num_turns -= 1

    async def answer(self, custom_id: str, body: bytes) -> Response | Failure:
        """Returns the response to a request once its batch has ended. `body` is JSON; equal requests are sent once.

        Raises:
            EngineUnavailableError: the endpoint is away, or the batch was cancelled; it is for the next run.
            EngineRefusedError: the endpoint refuses the batch.
        """
        request = self._requests.get(custom_id)
        if request is None:
            request = _Request(line=b"", result=asyncio.get_running_loop().create_future())
            self._requests[custom_id] = request
            batch = self._batches.get(custom_id)
            if batch is None:
                head = f'{{"custom_id":"{custom_id}","method":"POST","url":"{self._url}","body":'
                request.line = head.encode() + body + b"}\n"
            elif batch.results is None:
                self._start(batch)
            else:
                self._hand_out(batch)
        del body  # it would be held for hours
        self._note_event()
        request.num_waiting += 1
        self._num_waiting += 1
        try:
            return await asyncio.shield(request.result)
        finally:
            self._num_waiting -= 1
            request.num_waiting -= 1
            if request.line and not request.num_waiting:  # its reading has failed elsewhere
                del self._requests[custom_id]

    async def stop(self) -> None:
        """Stops to wait for batches; they go on at the endpoint, and their records stay."""
        tasks = [*self._running, *([self._sender] if self._sender else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._num_turns == self._num_waiting:
            await self._settle()

    def _note_event(self) -> None:
        """Notes a new request or result; further requests may follow from it, so the next batch waits a little."""
        self._num_events += 1
        if self._sender is None:
            self._sender = asyncio.ensure_future(self._send_when_quiet())
            self._sender.add_done_callback(self._sender_ended)

    def _sender_ended(self, sender: "asyncio.Task[None]") -> None:
        self._sender = None
        if sender.cancelled():
            return
        if (error := sender.exception()) is not None:
            self._fail([name for name, request in self._requests.items() if request.line], error)
        elif self._has_work():  # which came after its last look
            self._note_event()

    def _has_work(self) -> bool:
        return bool(self._unsettled) or any(request.line for request in self._requests.values())

    async def _send_when_quiet(self) -> None:
        while self._has_work():
            num_ticks = 0
            while num_ticks < QUIET_TICKS:
                num_events = self._num_events
                await asyncio.sleep(TICK_SECONDS)
                is_quiet = num_events == self._num_events and self._num_turns == self._num_waiting
                num_ticks = num_ticks + 1 if is_quiet else 0
            await self._settle()
            self._send()

    def _send(self) -> None:
        """Makes batches of all requests that wait."""
        requests, lines, num_bytes = set[str](), list[bytes](), 0
        for name, request in self._requests.items():
            if not request.line:
                continue
            if requests and (len(requests) == LIMITS.num_requests or num_bytes + len(request.line) > LIMITS.num_bytes):
                self._start_new(requests, lines)
                requests, lines, num_bytes = set(), [], 0
            requests.add(name)
            lines.append(request.line)
            num_bytes += len(request.line)
            request.line = b""
        if requests:
            self._start_new(requests, lines)

    def _start_new(self, requests: set[str], lines: list[bytes]) -> None:
        now = time.time_ns()
        name = f"{now // 10**9}-{now % 10**9:09}-{next(iter(requests))[:8]}.json"
        batch = Batch(name=name, requests=requests, lines=lines)
        self._batches.update(dict.fromkeys(requests, batch))
        self._start(batch)

    def _start(self, batch: Batch) -> None:
        if batch.task is None:
            batch.task = asyncio.ensure_future(self._run(batch))
            self._running.add(batch.task)
            batch.task.add_done_callback(partial(self._batch_ended, batch))

    def _batch_ended(self, batch: Batch, task: "asyncio.Task[None]") -> None:
        batch.task = None
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        requests = [*batch.requests]
        if not batch.input_file_id:  # nothing is there to come back to
            self._forget(batch, batch.requests)
        self._fail(requests, error)

    def _fail(self, requests: list[str], error: BaseException) -> None:
        for name in requests:
            request = self._requests.pop(name, None)
            if request is None:
                continue
            if request.num_waiting:
                request.result.set_exception(error)
            request.line = b""

    def _forget(self, batch: Batch, requests: set[str]) -> None:
        for name in requests:
            if self._batches.get(name) is batch:
                del self._batches[name]
        batch.requests = batch.requests - requests

    async def _run(self, batch: Batch) -> None:
        """Makes a batch unless it is there, waits for its end, and hands out its results."""
        began = time.monotonic()
        others = {task for task in self._running if task is not batch.task}
        if not batch.input_file_id:
            batch.input_file_id = (await self._api.upload(batch.lines)).id
            batch.lines = []
            batch.files.append(batch.input_file_id)
            await self._write_record(batch)
        if not batch.batch_id:
            may_exist, batch.may_exist = batch.may_exist, True
            batch.batch_id = (await self._api.create(batch.input_file_id, may_exist=may_exist)).id
            await self._write_record(batch)
        about = {"batch_id": batch.batch_id, "num_requests": len(batch.requests)}
        log.info(
            f"batch {batch.batch_id} of {len(batch.requests)} requests is at {self._api.name}",
            extra={"event": EventKind.BATCH_SENT, **about},
        )
        ended = await self._api.end_of(batch.batch_id)
        status = "unknown there" if ended is None else ended.status
        results: dict[str, Result] = {}
        if ended is not None:
            written = await self._api.results(ended, seconds=time.monotonic() - began)
            results |= {name: result for name, result in written.items() if name in batch.requests}
            batch.files += ended.written_files
        not_done = batch.requests - results.keys()
        log.info(
            f"batch {batch.batch_id} is {status}; {len(results)} of {len(batch.requests)} requests were answered",
            extra={"event": EventKind.BATCH_ENDED, "status": status, "num_answered": len(results), **about},
        )
        if not_done:
            why = await self._why_not_done(batch, ended, others=others)
            results |= {name: why for name in not_done if name in self._requests}
            self._forget(batch, not_done - results.keys())
        batch.results = results
        self._hand_out(batch)

    def _hand_out(self, batch: Batch) -> None:
        """Gives the results of a batch to the requests that wait for them."""
        results = batch.results or {}
        names = {name for name in results if name in self._requests}
        for name in names:
            request, result = self._requests.pop(name), results.pop(name)
            if isinstance(result, MemagentError):
                if request.num_waiting:
                    request.result.set_exception(result)
            else:
                request.result.set_result(result)
        self._forget(batch, names)
        self._unsettled.add(batch)
        self._note_event()

    async def _settle(self) -> None:
        """Removes the records of batches, or of requests of them, whose turns are in the log."""
        batches, self._unsettled = [*self._unsettled], set()
        if not batches or self._folder is None or self._flush is None:
            return
        with suppress(StorageError):  # the readings meet it too, and say so; all records stay then
            await self._flush()
            for batch in batches:
                if batch.requests:
                    await self._write_record(batch)
                    continue
                await asyncio.to_thread((self._folder / batch.name).delete)
                for file_id in batch.files:  # they hold texts of documents; one that stays costs nothing
                    await self._api.delete(file_id)

    async def _write_record(self, batch: Batch) -> None:
        if self._folder is not None:
            record = Record(input_file_id=batch.input_file_id, batch_id=batch.batch_id, requests=sorted(batch.requests))
            await asyncio.to_thread((self._folder / batch.name).write_bytes, record.model_dump_json().encode())

    async def _why_not_done(
        self, batch: Batch, ended: BatchObject | None, *, others: "set[asyncio.Task[None]]"
    ) -> Failure | MemagentError:
        """Returns why requests got no response: a failure if they may be sent again, else the error to raise.

        `others`: the batches that ran beside it when it began.
        """
        name = f"{self._api.name}: batch {batch.batch_id}"
        if ended is None:
            log.warning(f"{name} is not known there any more; its requests are sent again")
            return Failure(message=f"{name} is not known any more", was_queued=True)
        said = "; ".join(f"{each.code}: {each.message}" for each in ended.errors) or "no reason is given"
        if ended.status == "cancelled":
            return EngineUnavailableError(f"{name} was cancelled; run the same command again to send it again")
        if ended.status != "failed":
            return Failure(message=f"{name} is {ended.status} without an answer", was_queued=True)
        if not any(each.code == OVER_LIMIT for each in ended.errors):
            return EngineRefusedError(f"{name} failed: {said}; correct that, then run the same command again")
        if others:
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
            return Failure(message=f"{name} failed: {said}", was_queued=True)
        return EngineUnavailableError(f"{name} failed: {said}; lower pool.turns_in_flight, or wait for other batches")
