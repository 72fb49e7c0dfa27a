"""The Message Batches API of Anthropic: a batch is made of its requests, without a file.

It can't be asked for the batch of some requests: until a batch has ended, it tells their number alone. So after a lost
answer each batch of as many requests, made about then, is waited for, and the ids in its results decide.
"""

import asyncio
import time
from collections.abc import Collection
from datetime import datetime
from functools import partial

from pydantic import BaseModel, Field, JsonValue
from pydantic_core import to_json

from memagent_batch.errors import EngineUnavailableError, MemagentError
from memagent_batch.loop.engines.engine import BatchLimits
from memagent_batch.loop.engines.openai.api import Response
from memagent_batch.loop.engines.openai.batch_api import LIST_PAGES, PAGE_BATCHES, BatchApi, Draft, EndedBatch
from memagent_batch.loop.engines.openai.outage import Failure

CLOCK_SECONDS = 86_400
"""Most by which the endpoint's clock and the one here may differ. Older batches are not looked at."""

LATE_SECONDS = 3_600
"""Most by which the endpoint's time of a batch may be after that of the last try here."""

LOOKS, LOOK_SECONDS = 2, 10.0
"""Times that the list is read, and the pause between: a batch that was just made may not be in it yet."""

ERROR_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status of each error, outside batches."""

UNKNOWN_ERROR_STATUS = 500


class MessageBatch(BaseModel):
    """A batch at the endpoint."""

    id: str
    processing_status: str
    created_at: datetime
    archived_at: datetime | None = None
    """When its results were removed."""
    request_counts: dict[str, int]
    """How many requests were answered, failed, expired, were cancelled, or still wait."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.processing_status == "ended"


class MessageBatchList(BaseModel):
    """A page of the list of batches."""

    data: list[MessageBatch]
    has_more: bool = False


class ErrorDetail(BaseModel):
    """What went wrong."""

    type: str = ""


class ErrorObject(BaseModel):
    """The body of an error."""

    error: ErrorDetail = ErrorDetail()


class Result(BaseModel):
    """What became of one request."""

    type: str
    message: JsonValue = None
    error: JsonValue = None


class ResultLine(BaseModel):
    """A line of the results."""

    custom_id: str = Field(min_length=1)
    result: Result


class MessageBatchApi(BatchApi):
    """Batches of messages, of Anthropic."""

    label = "Message Batches API"
    limits = BatchLimits(num_requests=100_000, num_bytes=240 * 10**6)  # Anthropic takes 256 MB
    path = "messages/batches"

    def request(self, request_id: str, body: bytes) -> bytes:
        """An item of the list of requests."""
        return f'{{"custom_id":"{request_id}","params":'.encode() + body + b"}"

    async def create(self, draft: Draft, *, others: Collection[str]) -> str | None:
        """Makes a batch of the requests themselves; see `BatchApi.create`."""
        foreign = set(others)

        async def send() -> MessageBatch | Failure | None:
            if draft.may_exist:
                batch = await self._find(draft, foreign)
                if batch is not None or not draft.requests:
                    return batch
            return await self._post(draft, MessageBatch, body=b'{"requests":[' + b",".join(draft.requests) + b"]}")

        batch = await self._answer(send)
        if batch is None and not draft.requests:
            return None
        return self._require(batch).id

    async def _find(self, draft: Draft, foreign: set[str]) -> MessageBatch | None:
        """The batch of these requests, if an earlier try has made it.

        `foreign`: ids of batches of other requests, which grow.
        """
        since, until = draft.made_at - CLOCK_SECONDS, draft.tried_at + LATE_SECONDS
        for look in range(LOOKS):
            if look:
                await asyncio.sleep(LOOK_SECONDS)
            for batch in await self._batches_since(since):
                is_like = sum(batch.request_counts.values()) == len(draft.request_ids) and not batch.archived_at
                if not is_like or batch.created_at.timestamp() > until or batch.id in foreign:
                    continue
                if await self._has_requests(batch, draft.request_ids):
                    return batch
                foreign.add(batch.id)
        return None

    async def _batches_since(self, seconds: int) -> list[MessageBatch]:
        """The batches that were made since then, the latest first."""
        batches: list[MessageBatch] = []
        query = {"limit": str(PAGE_BATCHES)}
        for _ in range(LIST_PAGES):
            send = partial(self._try, MessageBatchList, "GET", self.path, query=query)
            page = self._require(await self._answer(send))
            latest = [batch for batch in page.data if batch.created_at.timestamp() >= seconds]
            batches += latest
            if len(latest) < len(page.data) or not page.data or not page.has_more:
                break
            query["after_id"] = page.data[-1].id
        return batches

    async def _has_requests(self, batch: MessageBatch, request_ids: Collection[str]) -> bool:
        ended = await self._ended(MessageBatch, batch.id, has_ended=lambda batch: batch.has_ended)
        if ended is None or ended.archived_at:
            return False
        first = await self._answer(partial(self._try_lines, ResultLine, self._results_path(ended), first_line=True))
        if first and first[0].custom_id not in request_ids:  # the rest may be large
            return False
        return {line.custom_id for line in await self._results(ended)} == set(request_ids)

    async def collect(self, batch_id: str, requests: Collection[str], *, began: float) -> EndedBatch | None:
        """Reads the results; see `BatchApi.collect`. Those that Anthropic has removed are sent again."""
        ended = await self._ended(MessageBatch, batch_id, has_ended=lambda batch: batch.has_ended)
        if ended is None:
            return None
        answers: dict[str, Response | Failure] = {}
        unread = Failure(message=f"{self.name}: batch {batch_id} has no result of a request", was_queued=True)
        undone: dict[str, Failure | MemagentError] = dict.fromkeys(requests, unread)
        for line in await self._results(ended):
            if line.result.type in ("succeeded", "errored"):
                answers[line.custom_id] = self._answer_of(line.result, seconds=time.monotonic() - began)
                undone.pop(line.custom_id, None)
            elif line.custom_id in undone:
                undone[line.custom_id] = self._why_undone(line.result, batch_id)
        counts = ", ".join(f"{number} {name}" for name, number in ended.request_counts.items() if number)
        return EndedBatch(status=f"ended ({counts})", answers=answers, undone=undone, left=[batch_id])

    async def delete(self, name: str) -> None:
        """Removes a batch with its results: they hold texts of documents."""
        await self._delete(f"{self.path}/{name}")

    async def _results(self, ended: MessageBatch) -> list[ResultLine]:
        """The results of an ended batch; none if they were removed."""
        if ended.archived_at:
            return []

        async def read() -> tuple[list[ResultLine], int] | Failure:
            lines = await self._try_lines(ResultLine, self._results_path(ended))
            return lines if isinstance(lines, Failure) else (lines or [], sum(ended.request_counts.values()))

        return await self._all_results(ended.id, read)

    def _results_path(self, ended: MessageBatch) -> str:
        """Where its `results_url` leads, but below the base URL: it gets the key."""
        return f"{self.path}/{ended.id}/results"

    def _answer_of(self, result: Result, *, seconds: float) -> Response | Failure:
        status_code, body = 200, result.message
        if result.type == "errored":
            status_code, body = _error_status(result.error), result.error
        response = Response(
            status_code=status_code,
            content=to_json(body),
            elapsed_seconds=seconds,
            request=f"POST /v1/{self._turn_path} in a batch",
        )
        return self._answered(response)

    def _why_undone(self, result: Result, batch_id: str) -> Failure | MemagentError:
        name = f"{self.name}: batch {batch_id}"
        if result.type == "canceled":
            return EngineUnavailableError(f"{name} was cancelled; run the same command again to send it again")
        return Failure(message=f"{name} is {result.type} without an answer", was_queued=True)


def _error_status(error: JsonValue) -> int:
    """The status with which a single request would have got an error."""
    kind = ErrorObject.model_validate(error if isinstance(error, dict) else {}).error.type
    return ERROR_STATUSES.get(kind, UNKNOWN_ERROR_STATUS)
