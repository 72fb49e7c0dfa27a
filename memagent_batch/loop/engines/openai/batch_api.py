"""What is common to the APIs that answer requests in batches: OpenAI's (`file_batches`), Anthropic's
(`message_batches`).
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

import aiohttp
from pydantic import BaseModel, JsonValue, ValidationError

from memagent_batch.errors import EngineRefusedError, EngineRequestError, EngineUnavailableError, MemagentError
from memagent_batch.loop.engines.engine import BatchLimits
from memagent_batch.loop.engines.openai.api import Response
from memagent_batch.loop.engines.openai.client import RETRIED_STATUSES, OpenAIClient
from memagent_batch.loop.engines.openai.outage import CircuitBreaker, Failure

log = logging.getLogger(__name__)

FIRST_POLL_SECONDS, POLL_SECONDS, POLL_GROWTH = 1.0, 60.0, 1.3
"""Pauses between questions after a batch: the first, the longest, and the factor by which they grow."""

DELETE_SECONDS = 5.0
"""Longest wait for the removal of what a batch leaves."""

LIST_PAGES, PAGE_BATCHES = 20, 100
"""Pages of the list of batches in which one is looked for, the latest first, and the batches of each."""

ObjectT = TypeVar("ObjectT", bound=BaseModel)
AnswerT = TypeVar("AnswerT")


@dataclass(slots=True, kw_only=True)
class Draft:
    """A batch that is to be made."""

    request_ids: Collection[str]
    requests: Sequence[bytes]
    """What is sent of them (`BatchApi.request`); empty after a crash."""
    file_id: str
    """What `BatchApi.upload` has returned."""
    made_at: int
    """When the first request to create it was sent, seconds since 1970."""
    tried_at: int
    """When the last one was sent; `BatchApi.create` keeps this up to date."""
    may_exist: bool
    """Whether a try may have made it, since its answer was lost. `BatchApi.create` keeps this up to date."""
    on_try: Callable[[int], Awaitable[None]]
    """Called with the time before each try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedBatch:
    """What came of a batch."""

    status: str
    """How it ended, in the words of the API."""
    answers: Mapping[str, Response | Failure]
    """The responses to the requests that were done, by their ids."""
    undone: Mapping[str, Failure | MemagentError]
    """Why the other requests were not done: a failure if they may be sent again, else the error to raise."""
    left: Sequence[str]
    """What it leaves at the endpoint; see `BatchApi.delete`."""
    is_over_limit: bool = False
    """Whether nothing was done since other batches of the account wait."""


class BatchApi(ABC):
    """Makes batches, and collects their results. While the endpoint is away, a call waits, and is then tried again.

    Its errors are of the whole run, never of one reading: `EngineUnavailableError` leaves the readings to the next run,
    `EngineRefusedError` ends this one.
    """

    label: ClassVar[str]
    """What the API is called."""
    limits: ClassVar[BatchLimits]
    path: ClassVar[str]
    """Where the batches are, below the base URL."""

    def __init__(self, client: OpenAIClient, outage: CircuitBreaker, *, turn_path: str) -> None:
        """`turn_path`: where the requests would go one by one, such as `completions`."""
        self._client, self._outage, self._turn_path = client, outage, turn_path

    @property
    def name(self) -> str:
        """The endpoint, for messages."""
        return self._client.name

    @abstractmethod
    def request(self, request_id: str, body: bytes) -> bytes:
        """A request as it stands in a batch; `body` is JSON."""

    async def upload(self, requests: Sequence[bytes]) -> str:
        """Makes a file of the requests, if batches are made of files; its id, else nothing."""
        return ""

    @abstractmethod
    async def create(self, draft: Draft, *, others: Collection[str]) -> str | None:
        """Makes a batch, and returns its id. If an earlier try may have made it, it is looked for first.

        `others`: ids of batches that have other requests. None if there is no such batch, and the requests are not
        known any more.
        """

    @abstractmethod
    async def collect(self, batch_id: str, requests: Collection[str], *, began: float) -> EndedBatch | None:
        """Waits for the end of a batch; what came of these requests, or None if the endpoint does not know the batch.

        `began`: when it was sent, by the monotonic clock.
        """

    @abstractmethod
    async def delete(self, name: str) -> None:
        """Removes something that a batch has left at the endpoint; if it stays, that costs nothing."""

    def _answered(self, response: Response) -> Response | Failure:
        """The response to a request of a batch; a failure if its status may pass."""
        if response.status_code in RETRIED_STATUSES:
            return Failure(message=self._client.refusal(response))
        return response

    async def _ended(
        self, kind: type[ObjectT], batch_id: str, *, has_ended: Callable[[ObjectT], bool]
    ) -> ObjectT | None:
        """Waits for the end of a batch, and returns it; None if the endpoint does not know it."""
        pause_seconds = FIRST_POLL_SECONDS
        while True:
            batch = await self._answer(partial(self._try, kind, "GET", f"{self.path}/{batch_id}"))
            if batch is None or has_ended(batch):
                return batch
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(POLL_GROWTH * pause_seconds, POLL_SECONDS)

    async def _post(
        self, draft: Draft, kind: type[ObjectT], *, body: Mapping[str, JsonValue] | bytes
    ) -> ObjectT | Failure | None:
        """One try to make a batch."""
        draft.tried_at = int(time.time())
        await draft.on_try(draft.tried_at)
        draft.may_exist = True
        try:
            made = await self._try(kind, "POST", self.path, body=body)
        except EngineRefusedError:
            draft.may_exist = False
            raise
        draft.may_exist = made is not None and not (isinstance(made, Failure) and made.turned_away)
        return made

    async def _answer(self, send: Callable[[], Awaitable[AnswerT | Failure]]) -> AnswerT:
        """What `send` returns once it is no failure; no fault of the API is one of a reading."""
        try:
            return await self._outage.answer(send)
        except EngineRequestError as error:
            raise _unavailable(error) from error

    async def _all_results(
        self, batch_id: str, read: Callable[[], Awaitable[tuple[list[ObjectT], int] | Failure]]
    ) -> list[ObjectT]:
        """The results of a batch. `read` is one try for them and the number that there must be.

        Results are paid for, so that missing ones are asked for again. Those that are missing at every try count as not
        done.
        """
        lines: list[ObjectT] = []
        missing: Failure | None = None

        async def send() -> list[ObjectT] | Failure:
            nonlocal lines, missing
            missing = None
            results = await read()
            if isinstance(results, Failure):
                return results
            lines, num_expected = results
            if len(lines) >= num_expected:
                return lines
            message = f"{self.name} sent {len(lines)} of {num_expected} results of batch {batch_id}"
            missing = Failure(message=message)
            return missing

        try:
            return await self._outage.answer(send)
        except EngineRequestError as error:
            if missing is None:
                raise _unavailable(error) from error
            log.warning(f"{missing.message}, at every try; the requests without a result are sent again")
            return lines

    async def _try(
        self,
        kind: type[ObjectT],
        method: str,
        path: str,
        *,
        body: Mapping[str, JsonValue] | bytes | None = None,
        query: Mapping[str, str] | None = None,
        form: Callable[[], aiohttp.FormData] | None = None,
    ) -> ObjectT | Failure | None:
        """One try for an object of the API; None if it is not there."""
        response = await self._try_content(method, path, body=body, query=query, form=form)
        if response is None or isinstance(response, Failure):
            return response
        try:
            return kind.model_validate_json(response.content)
        except ValidationError:
            return Failure(message=f"{self.name} answered {response.request} with no {kind.__name__}")

    async def _try_lines(
        self, kind: type[ObjectT], path: str, *, first_line: bool = False
    ) -> list[ObjectT] | Failure | None:
        """One try for the lines of a file, or for the first one alone; None if it is not there."""
        response = await self._try_content("GET", path, first_line=first_line)
        if response is None or isinstance(response, Failure):
            return response
        try:
            lines = response.content.splitlines()[: 1 if first_line else None]
            return [kind.model_validate_json(line) for line in lines if line.strip()]
        except ValidationError:
            return Failure(message=f"{self.name} answered {response.request} with broken results")

    async def _try_content(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, JsonValue] | bytes | None = None,
        query: Mapping[str, str] | None = None,
        form: Callable[[], aiohttp.FormData] | None = None,
        first_line: bool = False,
    ) -> Response | Failure | None:
        """One try for a successful response; None if there is nothing."""
        response = await self._client.send(method, path, body=body, query=query, form=form, first_line=first_line)
        if isinstance(response, Failure):
            return response
        if response.status_code == 404:
            return None
        if response.status_code >= 300:
            raise EngineRefusedError(f"{self._client.refusal(response)}; correct that, then run the same command again")
        return response

    async def _delete(self, path: str) -> None:
        await self._client.send("DELETE", path, longest_seconds=DELETE_SECONDS)

    def _require(self, made: ObjectT | None) -> ObjectT:
        if made is None:
            raise EngineRefusedError(f"{self.name} has no {self.label}; use engine openai")
        return made


def _unavailable(error: EngineRequestError) -> EngineUnavailableError:
    """A failed call of the API as an error of the run."""
    return EngineUnavailableError(f"{error}; run the same command again")
