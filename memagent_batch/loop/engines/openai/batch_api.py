"""The calls of the Files and Batches API of an OpenAI-compatible endpoint, and the objects that it sends."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, TypeVar

import aiohttp
from pydantic import AliasPath, BaseModel, BeforeValidator, Field, JsonValue, ValidationError
from pydantic_core import to_json

from memagent_batch.errors import EngineRefusedError, EngineRequestError, EngineUnavailableError
from memagent_batch.loop.engines.openai.api import Response
from memagent_batch.loop.engines.openai.client import RETRIED_STATUSES, OpenAIClient
from memagent_batch.loop.engines.openai.outage import CircuitBreaker, Failure

FIRST_POLL_SECONDS, POLL_SECONDS, POLL_GROWTH = 1.0, 60.0, 1.3
"""Pauses between questions after a batch: the first, the longest, and the factor by which they grow."""

DELETE_SECONDS = 5.0
"""Longest wait for the removal of a file."""

FOUND_PAGES, PAGE_BATCHES = 20, 100
"""Pages of the list of batches in which one is looked for, the latest first, and the batches of each."""

NOT_DONE = ("batch_expired", "batch_cancelled")
"""What is said of a request that had no turn before the end of its batch."""

ObjectT = TypeVar("ObjectT", bound=BaseModel)
AnswerT = TypeVar("AnswerT")


class Problem(BaseModel):
    """Why a batch or a request of it failed."""

    code: str | int | None = None
    message: str | None = None


class FileObject(BaseModel):
    """A file at the endpoint."""

    id: str


class BatchObject(BaseModel):
    """A batch at the endpoint."""

    id: str
    status: str
    input_file_id: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: Annotated[list[Problem], BeforeValidator(lambda errors: errors or [])] = Field(
        [], validation_alias=AliasPath("errors", "data")
    )

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status in ("completed", "failed", "expired", "cancelled")

    @property
    def written_files(self) -> list[str]:
        """The files of its results."""
        return [each for each in (self.output_file_id, self.error_file_id) if each]


class BatchList(BaseModel):
    """A page of the list of batches."""

    data: list[BatchObject]
    has_more: bool = False


class LineResponse(BaseModel):
    """The answer to one request of a batch."""

    status_code: int
    body: JsonValue = None


class Line(BaseModel):
    """A line of what a batch has written."""

    custom_id: str
    response: LineResponse | None = None
    error: Problem | None = None


class BatchApi:
    """Calls the Files and Batches API of OpenAI. While the endpoint is away, a call waits, and is then tried again.

    Its errors are of the whole run, never of one reading: `EngineUnavailableError` leaves the readings to the next run,
    `EngineRefusedError` ends this one.
    """

    def __init__(self, client: OpenAIClient, outage: CircuitBreaker, *, url: str) -> None:
        """`url`: the path to which the endpoint sends each request of a batch, such as `/v1/completions`."""
        self._client, self._outage, self._url = client, outage, url

    @property
    def name(self) -> str:
        """The endpoint, for messages."""
        return self._client.name

    async def upload(self, lines: Sequence[bytes]) -> FileObject:
        """Makes a file of lines."""

        def form() -> aiohttp.FormData:
            data = aiohttp.FormData({"purpose": "batch"})
            data.add_field("file", io.BytesIO(b"".join(lines)), filename="requests.jsonl")
            return data

        return self._require(await self._answer(partial(self._try, FileObject, "POST", "files", form=form)))

    async def delete(self, file_id: str) -> None:
        """Removes a file; one that stays costs nothing."""
        await self._client.send("DELETE", f"files/{file_id}", longest_seconds=DELETE_SECONDS)

    async def create(self, input_file_id: str, *, may_exist: bool) -> BatchObject:
        """Makes the batch of a file; where an earlier try may have made it, it is looked for first."""
        body = {"input_file_id": input_file_id, "endpoint": self._url, "completion_window": "24h"}

        async def send() -> BatchObject | Failure | None:
            nonlocal may_exist
            if may_exist and (found := await self._find(input_file_id)) is not None:
                return found
            may_exist = True
            return await self._try(BatchObject, "POST", "batches", body=body)

        return self._require(await self._answer(send))

    async def _find(self, input_file_id: str) -> BatchObject | Failure | None:
        """The batch that was made of a file, if there is one."""
        query = {"limit": str(PAGE_BATCHES)}
        for _ in range(FOUND_PAGES):
            page = await self._try(BatchList, "GET", "batches", query=query)
            if page is None or isinstance(page, Failure):
                return page
            for each in page.data:
                if each.input_file_id == input_file_id:
                    return each
            if not page.data or not page.has_more:
                break
            query["after"] = page.data[-1].id
        return None

    async def end_of(self, batch_id: str) -> BatchObject | None:
        """Waits for the end of a batch, and returns it; None if the endpoint does not know it."""
        pause_seconds = FIRST_POLL_SECONDS
        while True:
            found = await self._answer(partial(self._try, BatchObject, "GET", f"batches/{batch_id}"))
            if found is None or found.has_ended:
                return found
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(POLL_GROWTH * pause_seconds, POLL_SECONDS)

    async def results(self, ended: BatchObject, *, seconds: float) -> dict[str, Response | Failure]:
        """Returns what each request of an ended batch got, by its id. Requests that it did not get to are missing."""
        results: dict[str, Response | Failure] = {}
        for file_id in ended.written_files:
            for line in await self._answer(partial(self._try_lines, file_id)) or ():
                if line.response is not None or line.error is None or line.error.code not in NOT_DONE:
                    results[line.custom_id] = self._result(line, seconds=seconds)
        return results

    def _result(self, line: Line, *, seconds: float) -> Response | Failure:
        if line.response is None:
            problem = line.error or Problem()
            return Failure(message=f"{self._client.name} failed a request of a batch: {problem.code} {problem.message}")
        response = Response(
            status_code=line.response.status_code,
            content=to_json(line.response.body),
            elapsed_seconds=seconds,
            request=f"POST {self._url} in a batch",
        )
        is_passing = response.status_code in RETRIED_STATUSES
        return Failure(message=self._client.refusal(response)) if is_passing else response

    async def _answer(self, send: Callable[[], Awaitable[AnswerT | Failure]]) -> AnswerT:
        """What `send` returns once it is no failure; no fault of the API is one of a reading."""
        try:
            return await self._outage.answer(send)
        except EngineRequestError as error:
            raise EngineUnavailableError(f"{error}; run the same command again") from error

    async def _try(
        self,
        kind: type[ObjectT],
        method: str,
        path: str,
        *,
        body: Mapping[str, JsonValue] | None = None,
        query: Mapping[str, str] | None = None,
        form: Callable[[], aiohttp.FormData] | None = None,
    ) -> ObjectT | Failure | None:
        """One try for an object of the API; None if it is not there."""
        response = await self._client.send(method, path, body=body, query=query, form=form)
        if isinstance(response, Failure) or response.status_code == 404:
            return response if isinstance(response, Failure) else None
        if response.status_code >= 300:
            raise EngineRefusedError(f"{self._client.refusal(response)}; then run the same command again")
        try:
            return kind.model_validate_json(response.content)
        except ValidationError:
            return Failure(message=f"{self._client.name} answered {response.request} with no {kind.__name__}")

    async def _try_lines(self, file_id: str) -> list[Line] | Failure | None:
        """One try for the lines of a file; None if it is not there."""
        response = await self._client.send("GET", f"files/{file_id}/content")
        if isinstance(response, Failure) or response.status_code == 404:
            return response if isinstance(response, Failure) else None
        if response.status_code >= 300:
            raise EngineRefusedError(f"{self._client.refusal(response)}; then run the same command again")
        try:
            return [Line.model_validate_json(line) for line in response.content.splitlines() if line.strip()]
        except ValidationError:
            return Failure(message=f"{self._client.name} sent a broken file of results ({file_id})")

    def _require(self, found: ObjectT | None) -> ObjectT:
        if found is None:
            raise EngineRefusedError(f"{self._client.name} has no Files and Batches API; use engine openai")
        return found
