"""Batches of an endpoint (`batch_api`): requests that may wait for hours, at half the price.

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

from pydantic import BaseModel, ValidationError

from memagent_batch.errors import EngineUnavailableError, MemagentError, StorageError
from memagent_batch.logs import EventKind
from memagent_batch.loop.engines.engine import Folder
from memagent_batch.loop.engines.openai.api import Response
from memagent_batch.loop.engines.openai.batch_api import BatchApi, Draft, EndedBatch
from memagent_batch.loop.engines.openai.outage import Failure
from memagent_batch.loop.texts.shares import quantity

log = logging.getLogger(__name__)

TICK_SECONDS, QUIET_TICKS = 0.5, 10
"""A batch is sent after so many ticks in a row without a new request. Ticks, since a process that was held up for some
seconds has not been quiet."""

RECORD_DAYS = 30
"""A record is removed after so many days, in which OpenAI and Anthropic remove what a batch has written. The file of
its requests, which OpenAI keeps, is removed too if the endpoint answers."""

Result = Response | Failure | MemagentError


class Record(BaseModel):
    """What is stored of a batch. Without `batch_id` the run died while it made the batch, which may exist or not."""

    input_file_id: str = ""
    """The file of its requests; empty if the API takes none."""
    batch_id: str = ""
    requests: list[str]
    tried_at: int = 0
    """When the last request to create it was sent, seconds since 1970."""


@dataclass(slots=True, kw_only=True, eq=False)
class Batch:
    """Requests that are sent together."""

    name: str
    """Name of its record. Names sort in the order in which the batches were made."""
    requests: set[str]
    """Ids of its requests whose answer may not be in the turn log yet."""
    sent_requests: frozenset[str] = frozenset()
    """Ids of all its requests, by which it is recognised; until its id is known, its record has them."""
    lines: list[bytes] = field(default_factory=list)
    """Its requests as they are sent, until the endpoint has them."""
    has_record: bool = False
    input_file_id: str = ""
    batch_id: str = ""
    left: list[str] = field(default_factory=list)
    """What is at the endpoint and goes with its record; see `BatchApi.delete`."""
    results: dict[str, Result] | None = None
    """Results that nobody has asked for yet; None until the batch has ended."""
    may_exist: bool = False
    """Whether the endpoint may have made it without our knowledge, since the answer was lost."""
    tried_at: int = 0
    """When the last request to create it was sent, seconds since 1970."""
    task: "asyncio.Task[None] | None" = None
    is_waiting: bool = False
    """Whether it waits until another batch has ended."""

    @property
    def made_at(self) -> int:
        """When the first request to create it was sent, seconds since 1970."""
        return int(self.name.partition("-")[0])


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    line: bytes
    """Empty once it is part of a batch."""
    result: "asyncio.Future[Response | Failure]"
    num_waiting: int = 0


class Batches:
    """All batches of one engine. Lives on its event loop."""

    def __init__(self, api: BatchApi) -> None:
        self._api = api
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
        self._num_ended = 0
        """Batches that have ended, without those that the endpoint refused because too many others waited."""

    def keep_in(self, folder: Folder, *, flush: Callable[[], Awaitable[None]]) -> None:
        """Takes the folder of the records; see `Engine.keep_in`."""
        self._folder, self._flush = folder, flush

    async def load(self) -> None:
        """Reads the records of batches that an engine before this one has made; the endpoint's client is open.

        Raises:
            StorageError: a record can't be read.
        """
        oldest = time.time() - RECORD_DAYS * 86_400
        for batch in await asyncio.to_thread(self._read_records, oldest):
            if batch.made_at < oldest:
                await self._remove(batch)
                continue
            for request in batch.requests:
                if request in self._batches:  # it was not done in the earlier batch
                    self._batches[request].requests.discard(request)
                self._batches[request] = batch

    def _read_records(self, oldest: float) -> list[Batch]:
        batches = list[Batch]()
        if self._folder is None:
            return batches
        for path in self._folder.files():
            file = self._folder.at(path)
            batch = Batch(name=path.rpartition("/")[2], requests=set(), has_record=True, may_exist=True)
            data = file.read_bytes_if_there()
            if data is None:  # its engine has just removed it
                continue
            try:
                record = Record.model_validate_json(data)
            except ValidationError as error:
                if batch.made_at < oldest:
                    batches.append(batch)
                    continue
                problem = error.errors(include_url=False, include_input=False)[0]["msg"]
                raise StorageError(
                    f"{file}, the record of a batch, is damaged: {problem}; restore it, or remove it: requests of that "
                    "batch whose answers are not in the log are then sent, and paid, again"
                ) from error
            batch.requests, batch.batch_id = set(record.requests), record.batch_id
            batch.sent_requests = frozenset(record.requests)
            batch.input_file_id, batch.tried_at = record.input_file_id, record.tried_at or batch.made_at
            batch.left = [record.input_file_id] if record.input_file_id else []
            batches.append(batch)
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
                request.line = self._api.request(custom_id, body)
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
        requests, lines, num_bytes, limits = set[str](), list[bytes](), 0, self._api.limits
        for name, request in self._requests.items():
            if not request.line:
                continue
            if requests and (len(requests) == limits.num_requests or num_bytes + len(request.line) > limits.num_bytes):
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
        batch = Batch(name=name, requests=requests, sent_requests=frozenset(requests), lines=lines)
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
        if not batch.has_record:  # nothing is there to come back to
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
        await self._make(batch)
        num_ended = self._num_ended
        about = {"batch_id": batch.batch_id, "num_requests": len(batch.requests)}
        ended = None
        if batch.batch_id:
            log.info(
                f"batch {batch.batch_id} of {quantity(len(batch.requests), 'request')} is at {self._api.name}",
                extra={"event": EventKind.BATCH_SENT, **about},
            )
            ended = await self._api.collect(batch.batch_id, batch.requests, began=began)
        if ended is None:
            ended = self._unknown(batch)
        results: dict[str, Result] = {name: each for name, each in ended.answers.items() if name in batch.requests}
        batch.left += ended.left
        sent = quantity(len(batch.requests), "request")
        log.info(
            f"batch {batch.batch_id} is {ended.status}; {len(results):,} of {sent} answered",
            extra={"event": EventKind.BATCH_ENDED, "status": ended.status, "num_answered": len(results), **about},
        )
        undone = ended.undone
        if undone and ended.is_over_limit and await self._wait_for_another(batch, since=num_ended):
            undone = {name: Failure(message=str(why), retry_at_once=True) for name, why in undone.items()}
        self._num_ended += not ended.is_over_limit
        results |= {name: why for name, why in undone.items() if name in self._requests}
        self._forget(batch, undone.keys() - results.keys())
        batch.results = results
        self._hand_out(batch)

    async def _wait_for_another(self, batch: Batch, *, since: int) -> bool:
        """Waits until another batch has ended, after which the endpoint may take more; False if there is no other.

        `since`: `_num_ended` when this batch was sent. If it has grown since then, there is nothing to wait for.
        """
        if self._num_ended > since:
            return True
        others = {each.task for each in self._batches.values() if each.batch_id and each.task and not each.is_waiting}
        others.discard(batch.task)
        if not others:
            return False
        batch.is_waiting = True
        try:
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        finally:
            batch.is_waiting = False
        return True

    async def _make(self, batch: Batch) -> None:
        """Makes a batch unless it is there. Its record is stored before: nothing is sent that a crash could hide."""
        if not batch.has_record:
            file_id = await self._when_taken(batch, lambda: self._api.upload(batch.lines))
            if file_id:
                batch.input_file_id, batch.lines = file_id, []
                batch.left.append(file_id)
                await self._write_record(batch)
        if batch.batch_id:
            return
        draft = Draft(
            request_ids=batch.sent_requests,
            requests=batch.lines,
            file_id=batch.input_file_id,
            made_at=batch.made_at,
            tried_at=batch.tried_at,
            may_exist=batch.may_exist,
            on_try=partial(self._note_try, batch),
        )
        try:
            batch.batch_id = await self._when_taken(batch, lambda: self._create(batch, draft))
        except MemagentError:
            if not draft.may_exist:  # the next run need not look for it
                await self._remove(batch)
            raise
        finally:
            batch.may_exist = draft.may_exist
        if batch.batch_id:
            batch.lines = []
            await self._write_record(batch)

    async def _create(self, batch: Batch, draft: Draft) -> str:
        others = {each.batch_id for each in self._batches.values() if each is not batch}
        return await self._api.create(draft, others=others) or ""

    async def _when_taken(self, batch: Batch, call: Callable[[], Awaitable[str]]) -> str:
        """Returns what a call returns. While the endpoint takes no more, it is called again whenever a batch ends."""
        while True:
            num_ended = self._num_ended
            try:
                return await call()
            except EngineUnavailableError as error:
                if not error.is_turned_away or not await self._wait_for_another(batch, since=num_ended):
                    raise

    async def _note_try(self, batch: Batch, seconds: int) -> None:
        batch.tried_at = seconds
        await self._write_record(batch)

    def _unknown(self, batch: Batch) -> EndedBatch:
        """What came of a batch that the endpoint does not know: nothing."""
        name = f"{self._api.name}: batch {batch.batch_id}" if batch.batch_id else f"{self._api.name}: a batch"
        log.warning(f"{name} is not known there; its requests are sent again")
        why = Failure(message=f"{name} is not known there", was_queued=True)
        return EndedBatch(status="unknown there", answers={}, undone=dict.fromkeys(batch.requests, why), left=[])

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
                await self._remove(batch)

    async def _remove(self, batch: Batch) -> None:
        """Removes the record of a batch, and what is left of it at the endpoint."""
        if self._folder is not None:
            await asyncio.to_thread((self._folder / batch.name).delete)
        batch.has_record = False
        for name in batch.left:
            await self._api.delete(name)

    async def _write_record(self, batch: Batch) -> None:
        if self._folder is not None:
            record = Record(
                input_file_id=batch.input_file_id,
                batch_id=batch.batch_id,
                requests=sorted(batch.requests if batch.batch_id else batch.sent_requests),
                tried_at=batch.tried_at,
            )
            await asyncio.to_thread((self._folder / batch.name).write_bytes, record.model_dump_json().encode())
        batch.has_record = True
