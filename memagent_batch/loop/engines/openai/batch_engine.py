"""An OpenAI-compatible endpoint that answers in batches: the engine `openai`, but for the way that a turn takes."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, ClassVar, Self

from pydantic import PrivateAttr
from pydantic_core import to_json

from memagent_batch.config.engines import EndpointApi
from memagent_batch.errors import EngineStartError, StorageError
from memagent_batch.loop.engines.engine import BatchLimits, EngineContext, Folder
from memagent_batch.loop.engines.openai.api import GuideForm, Response
from memagent_batch.loop.engines.openai.batch_api import BatchApi
from memagent_batch.loop.engines.openai.batches import Batches
from memagent_batch.loop.engines.openai.engine import OpenAIEngine
from memagent_batch.loop.engines.openai.file_batches import FileBatchApi
from memagent_batch.loop.engines.openai.message_batches import MessageBatchApi
from memagent_batch.loop.engines.openai.outage import Failure
from memagent_batch.types import Completion, Prompt


class OpenAIBatchEngine(OpenAIEngine):
    """Turns go through the Files and Batches API of OpenAI, or the Message Batches API of Anthropic. The checks of the
    start and the probes are sent one by one.

    How a turn is sent decides no result, so that both engines have one identity: what one of them has read counts for
    the other.
    """

    kind: ClassVar[str] = "openai-batch"
    first_step: ClassVar[str] = "asking the endpoint, then waiting for its first batch"
    pool_defaults: ClassVar[Mapping[str, int]] = {"readings_in_flight": 2_000, "turns_in_flight": 10_000}

    _batches: Batches = PrivateAttr()
    _batch_api: BatchApi = PrivateAttr()

    def open(self, context: EngineContext) -> Self:
        """Takes what it reads with; see `OpenAIEngine.open`."""
        super().open(context)
        self._batch_api = self._batch_api_type(self._client, self._outage, turn_path=self._api.path)
        self._batches = Batches(self._batch_api)
        return self

    @property
    def batch_limits(self) -> BatchLimits:
        """The limits of a batch."""
        return self._batch_api_type.limits

    @property
    def _batch_api_type(self) -> type[BatchApi]:
        return MessageBatchApi if self.api is EndpointApi.MESSAGES else FileBatchApi

    def identity(self) -> Mapping[str, Any]:
        """That of the engine `openai`."""
        return {**super().identity(), "kind": OpenAIEngine.kind}

    def keep_in(self, folder: Folder, *, flush: Callable[[], Awaitable[None]]) -> None:
        """Takes the folder for the records of batches; see `Engine.keep_in`."""
        self._batches.keep_in(folder, flush=flush)

    async def start(self) -> None:
        """Starts as `OpenAIEngine` does, and reads the records of earlier batches."""
        await super().start()
        await self._load_records()

    async def rejoin(self) -> None:
        """Starts in a run in progress; see `Engine.rejoin`."""
        await super().rejoin()
        await self._load_records()

    async def _load_records(self) -> None:
        try:
            await self._batches.load()
        except StorageError:
            await self.stop()
            raise

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt, minutes or hours later; see `OpenAIEngine.complete`."""
        with self._batches.turn():
            return await super().complete(prompt, seed=seed)

    async def stop(self) -> None:
        """Leaves the batches to the endpoint, and closes the connections."""
        await self._batches.stop()
        await super().stop()

    async def _try_turn(self, prompt: Prompt, *, seed: int, form: GuideForm | None) -> Response | Failure:
        result = await self._batches.answer(*self._request(prompt, seed=seed, form=form))
        if isinstance(result, Failure):
            return result
        return self._parsed(result) if result.status_code == 200 else await self._refused(result, prompt=prompt)

    def _request(self, prompt: Prompt, *, seed: int, form: GuideForm | None) -> tuple[str, bytes]:
        """Id and body of a request. The id is the hash of all that decides the completion."""
        body = self._api.body(prompt, seed=seed, form=form)
        is_sampled = body.get("temperature") != 0  # then the seed counts, even if `extra_body` leaves it out
        return sha256(to_json([body, seed if is_sampled else 0])).hexdigest()[:32], to_json(body)

    async def _check_endpoint(self) -> None:
        await super()._check_endpoint()
        response = await self._answer(partial(self._client.send, "GET", self._batch_api.path, query={"limit": "1"}))
        if response.status_code >= 300:
            raise EngineStartError(
                f"{self._client.refusal(response)}; the engine openai-batch needs the {self._batch_api.label}: use the "
                "engine openai where there is none"
            )
