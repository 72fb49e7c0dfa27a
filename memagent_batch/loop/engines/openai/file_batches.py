"""The Files and Batches API of OpenAI: a file of requests is uploaded, and a batch is made of it."""

import io
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Annotated

import aiohttp
from pydantic import AliasPath, BaseModel, BeforeValidator, Field, JsonValue
from pydantic_core import to_json

from memagent_batch.errors import EngineRefusedError, EngineUnavailableError, MemagentError
from memagent_batch.loop.engines.engine import BatchLimits
from memagent_batch.loop.engines.openai.api import Response
from memagent_batch.loop.engines.openai.batch_api import LIST_PAGES, PAGE_BATCHES, BatchApi, Draft, EndedBatch
from memagent_batch.loop.engines.openai.outage import Failure

NOT_DONE = ("batch_expired", "batch_cancelled")
"""What is said of a request that had no turn before the end of its batch."""

OVER_LIMIT = "token_limit_exceeded"
"""Why a batch fails while too many tokens of other batches wait at OpenAI."""


class Problem(BaseModel):
    """Why a batch or a request of it failed."""

    code: str | int | None = None
    message: str | None = None


class FileObject(BaseModel):
    """A file at the endpoint."""

    id: str


class RequestCounts(BaseModel):
    """How many requests of a batch have an answer."""

    completed: int | None = None


class BatchObject(BaseModel):
    """A batch at the endpoint."""

    id: str
    status: str
    input_file_id: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    request_counts: Annotated[RequestCounts, BeforeValidator(lambda counts: counts or {})] = RequestCounts()
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

    @property
    def is_done(self) -> bool:
        """Whether its request had a turn."""
        return self.response is not None or self.error is None or self.error.code not in NOT_DONE


class FileBatchApi(BatchApi):
    """Batches of uploaded files, of OpenAI and compatible servers."""

    label = "Files and Batches API"
    limits = BatchLimits(num_requests=50_000, num_bytes=190 * 10**6)  # OpenAI takes 200 MB
    path = "batches"

    def request(self, request_id: str, body: bytes) -> bytes:
        """A line of the file."""
        head = f'{{"custom_id":"{request_id}","method":"POST","url":"/v1/{self._turn_path}","body":'
        return head.encode() + body + b"}\n"

    async def upload(self, requests: Sequence[bytes]) -> str:
        """Makes a file of the requests, and returns its id."""

        def form() -> aiohttp.FormData:
            data = aiohttp.FormData({"purpose": "batch"})
            data.add_field("file", io.BytesIO(b"".join(requests)), filename="requests.jsonl")
            return data

        return self._require(await self._answer(partial(self._try, FileObject, "POST", "files", form=form))).id

    async def create(self, draft: Draft, *, others: Collection[str]) -> str:
        """Makes the batch of a file, which tells it from others; see `BatchApi.create`."""
        body = {"input_file_id": draft.file_id, "endpoint": f"/v1/{self._turn_path}", "completion_window": "24h"}

        async def send() -> BatchObject | Failure | None:
            if draft.may_exist and (batch := await self._find(draft.file_id)) is not None:
                return batch
            return await self._post(draft, BatchObject, body=body)

        return self._require(await self._answer(send)).id

    async def _find(self, file_id: str) -> BatchObject | Failure | None:
        """The batch that was made of a file, if there is one."""
        query = {"limit": str(PAGE_BATCHES)}
        for _ in range(LIST_PAGES):
            page = await self._try(BatchList, "GET", self.path, query=query)
            if page is None or isinstance(page, Failure):
                return page
            for batch in page.data:
                if batch.input_file_id == file_id:
                    return batch
            if not page.data or not page.has_more:
                break
            query["after"] = page.data[-1].id
        return None

    async def collect(self, batch_id: str, requests: Collection[str], *, began: float) -> EndedBatch | None:
        """Reads the files of the results; see `BatchApi.collect`. What has no result has the reason of the batch."""
        ended = await self._ended(BatchObject, batch_id, has_ended=lambda batch: batch.has_ended)
        if ended is None:
            return None
        answers: dict[str, Response | Failure] = {}
        for line in await self._all_results(batch_id, partial(self._try_results, ended)):
            answers[line.custom_id] = self._result(line, seconds=time.monotonic() - began)
        return EndedBatch(
            status=ended.status,
            answers=answers,
            undone=dict.fromkeys(set(requests) - answers.keys(), self._why_undone(ended)),
            left=ended.written_files,
            is_over_limit=_is_over_limit(ended),
        )

    async def delete(self, name: str) -> None:
        """Removes a file: it holds texts of documents."""
        await self._delete(f"files/{name}")

    async def _try_results(self, ended: BatchObject) -> tuple[list[Line], int] | Failure:
        """Tries once to read the results of an ended batch.

        Returns the lines of the requests that were processed, and how many there must be at least: 0 if a file of
        results was removed.
        """
        lines: list[Line] = []
        num_expected = ended.request_counts.completed or 0
        for file_id in ended.written_files:
            written = await self._try_lines(Line, f"files/{file_id}/content")
            if isinstance(written, Failure):
                return written
            lines += [line for line in written or () if line.is_done]
            num_expected = 0 if written is None else num_expected
        return lines, num_expected

    def _result(self, line: Line, *, seconds: float) -> Response | Failure:
        if line.response is None:
            problem = line.error or Problem()
            return Failure(message=f"{self.name} failed a request of a batch: {problem.code} {problem.message}")
        response = Response(
            status_code=line.response.status_code,
            content=to_json(line.response.body),
            elapsed_seconds=seconds,
            request=f"POST /v1/{self._turn_path} in a batch",
        )
        return self._answered(response)

    def _why_undone(self, ended: BatchObject) -> Failure | MemagentError:
        name = f"{self.name}: batch {ended.id}"
        reasons = "; ".join(f"{each.code}: {each.message}" for each in ended.errors) or "no reason is given"
        if ended.status == "cancelled":
            return EngineUnavailableError(f"{name} was cancelled; run the same command again to send it again")
        if ended.status != "failed":
            return Failure(message=f"{name} is {ended.status} without an answer", was_queued=True)
        if _is_over_limit(ended):
            return EngineUnavailableError(
                f"{name} failed: {reasons}; lower pool.turns_in_flight, or wait for other batches"
            )
        return EngineRefusedError(f"{name} failed: {reasons}; correct that, then run the same command again")


def _is_over_limit(ended: BatchObject) -> bool:
    return ended.status == "failed" and any(each.code == OVER_LIMIT for each in ended.errors)
