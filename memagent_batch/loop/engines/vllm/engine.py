"""vLLM inside the process that reads: one request of the event loop becomes one request of `AsyncLLM`."""

import asyncio
import itertools
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, ClassVar, Optional, Self

from pydantic import PrivateAttr

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.errors import EngineDeadError, EngineRequestError, EngineStartError
from memagent_batch.loop.engines.engine import Engine, EngineContext, finish_reason, require_fit
from memagent_batch.loop.engines.vllm.compiling import compiling_advice
from memagent_batch.loop.engines.vllm.start import (
    EngineForkServer,
    engine_arguments,
    inner_message,
    needs_gpu,
    require_model,
    start_engine,
    start_fork_server,
)
from memagent_batch.loop.guides import GuideKind, menu_logprobs, num_candidates
from memagent_batch.types import Completion, Prompt

if TYPE_CHECKING:
    from vllm import CompletionOutput, RequestOutput, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

GREEDY = SamplingConfig()
"""How guided turns are decoded."""
LAST_WAIT_SECONDS = 10.0
"""Wait for progress after the time-out, in which outputs that have come meanwhile are taken."""
GONE_SECONDS = 10.0
"""Longest wait for a process of vLLM to be gone after its shutdown, which kills what takes more than 5 s, without a
wait."""


class VllmEngine(VllmConfig, Engine):
    """One `AsyncLLM`. Its processes end with this one."""

    kind: ClassVar[str] = "vllm"
    has_weights: ClassVar[bool] = True
    takes_guides: ClassVar[bool] = True
    first_step: ClassVar[str] = "loading the model"

    _context: EngineContext = PrivateAttr()
    _request_ids: Iterator[int] = PrivateAttr()
    _llm: Optional["AsyncLLM"] = PrivateAttr(None)
    _progress_at: float = PrivateAttr(0.0)
    """When any request last made progress, by the monotonic clock."""
    _server: EngineForkServer | None = PrivateAttr(None)
    """From which vLLM's process is forked; None on GPUs."""
    _processes: list[BaseProcess] = PrivateAttr(default_factory=list)
    """Those that the start of vLLM has started."""

    def open(self, context: EngineContext) -> Self:
        """Takes model and sampling; `start` loads the model.

        Raises:
            EngineStartError: vLLM is not installed, or the model's folder is not whole.
        """
        if find_spec("vllm") is None:
            raise EngineStartError(
                "vLLM is not installed: install memagent-batch[cpu] or memagent-batch[gpu], or set engine: openai to "
                "read through an endpoint"
            )
        require_model(context.model, load_format=self.engine_args.get("load_format"))
        self._context, self._request_ids = context, itertools.count()
        return self

    async def start(self) -> None:
        """Starts vLLM's processes and loads the model; holds the event loop until they are ready (some 12 s on CPU).

        Raises:
            EngineStartError: model, arguments or environment can't work; says what and why.
        """
        context = self._context
        self._server = start_fork_server(self)
        try:
            arguments = engine_arguments(
                self,
                model=context.model,
                tokenizer=context.tokenizer,
                window_tokens=context.window_tokens,
                sampling=context.sampling,
            )
            before = multiprocessing.active_children()
            self._llm = start_engine(arguments, server=self._server, reproducible=self.reproducible)
            self._watch_progress(self._llm)
            self._processes = [process for process in multiprocessing.active_children() if process not in before]
        except BaseException:
            await self.stop()
            raise

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt; see `Engine.complete`."""
        require_fit(prompt, window_tokens=self._context.window_tokens)
        began = time.monotonic()
        output = await self._request(prompt, params=self._params(prompt, seed=seed))
        completion = output.outputs[0]
        text_of = partial(self._context.load_tokenizer().continuation, after=prompt.token_ids)
        has_choices = prompt.guide is not None and prompt.guide.kind is GuideKind.CHOICE
        candidates = [
            (text_of([token_id]), float(entry.logprob))
            for entries in (completion.logprobs or ())[:1]
            for token_id, entry in entries.items()
        ]
        return Completion(
            token_ids=list(completion.token_ids),
            text=text_of(completion.token_ids),
            finish_reason=finish_reason(completion.finish_reason, turn=f"turn {prompt.path}: vLLM"),
            logprobs=logprobs(completion) if self._context.sampling.logprobs or has_choices else None,
            menu_logprobs=menu_logprobs(prompt.guide, candidates),
            num_prompt_tokens=len(prompt.token_ids),
            num_cached_prompt_tokens=output.num_cached_tokens or 0,
            engine_seconds=time.monotonic() - began,
        )

    async def stop(self) -> None:
        """Ends vLLM's processes; returns when they are gone, and holds the event loop until then (some 4 s)."""
        llm, self._llm = self._llm, None
        if llm is not None:
            llm.shutdown()
            for process in self._processes:
                process.join(GONE_SECONDS)
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def identity(self) -> Mapping[str, Any]:
        """Number format, eager and batch-invariant mode if they are on, and the arguments that users pass through."""
        modes = {"enforce_eager": self.enforce_eager, "reproducible": self.reproducible}
        is_on = {name: True for name, value in modes.items() if value}
        return {"kind": self.kind, "dtype": self.dtype, **is_on, "engine_args": self.engine_args}

    def advice(self, *, model: str, num_prompt_tokens: int, most_completion_tokens: int) -> str:
        """Whether to compile on CPU; see `Engine.advice`."""
        return compiling_advice(
            self, model=model, num_prompt_tokens=num_prompt_tokens, most_completion_tokens=most_completion_tokens
        )

    @property
    def num_gpus(self) -> float:
        """One for each part of the model; none for the build of vLLM that runs on CPU."""
        return self.tensor_parallel_size * self.pipeline_parallel_size if needs_gpu() else 0

    def _params(self, prompt: Prompt, *, seed: int) -> "SamplingParams":
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        guide = prompt.guide
        sampling = self._context.sampling if guide is None else GREEDY
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=seed if sampling.temperature > 0 else None,
            max_tokens=prompt.max_tokens,
            logprobs=num_candidates(guide, logprobs=self._context.sampling.logprobs),
            structured_outputs=guide and StructuredOutputsParams(**{guide.kind.value: guide.constraint}),
            output_kind=RequestOutputKind.FINAL_ONLY,
            detokenize=False,  # for it vLLM would decode the whole prompt, on this event loop
        )

    def _watch_progress(self, llm: "AsyncLLM") -> None:
        """Notes each step of the engine: requests themselves return their last step alone."""
        process = llm.output_processor.process_outputs

        def process_and_note(*outputs: Any, **options: Any) -> Any:
            self._progress_at = time.monotonic()
            return process(*outputs, **options)

        llm.output_processor.process_outputs = process_and_note

    async def _request(self, prompt: Prompt, *, params: "SamplingParams") -> "RequestOutput":
        """The final output of one request, which may wait in vLLM's queue for as long as others make progress.

        Raises:
            EngineDeadError: no request made progress for `turn_timeout_seconds`.
        """
        request, began = asyncio.ensure_future(self._final_output(prompt, params=params)), time.monotonic()
        is_last_wait = False
        try:
            while not request.done():
                seconds_left = max(began, self._progress_at) + self.turn_timeout_seconds - time.monotonic()
                if seconds_left > 0:
                    is_last_wait = False
                elif not is_last_wait:  # this process itself may have been stopped for so long
                    is_last_wait, seconds_left = True, min(LAST_WAIT_SECONDS, self.turn_timeout_seconds)
                else:
                    raise EngineDeadError(
                        f"vLLM hangs: turn {prompt.path} waits, and no turn made progress for "
                        f"{self.turn_timeout_seconds:g} s (vllm.turn_timeout_seconds)"
                    )
                await asyncio.wait([request], timeout=seconds_left)
            return request.result()
        finally:
            request.cancel()

    async def _final_output(self, prompt: Prompt, *, params: "SamplingParams") -> "RequestOutput":
        """The final output of one request; the place where vLLM's errors become ours."""
        from vllm.exceptions import VLLMError
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError as VllmDeadError

        if self._llm is None:
            raise EngineDeadError("vLLM is not running: it was not started, or was stopped")
        try:
            outputs = self._llm.generate(tokens_input(list(prompt.token_ids)), params, str(next(self._request_ids)))
            *_, final = [output async for output in outputs]
            self._progress_at = time.monotonic()
            return final
        except VllmDeadError as error:
            raise EngineDeadError("vLLM's engine process died; its own log lines above say why") from error
        except (VLLMError, ValueError) as error:
            message = f"turn {prompt.path}: vLLM refused the request: {inner_message(error)}"
            raise EngineRequestError(message) from error


def logprobs(completion: "CompletionOutput") -> list[float]:
    """Log-probability of each returned token."""
    return [
        float(entry[token_id].logprob)
        for token_id, entry in zip(completion.token_ids, completion.logprobs or (), strict=True)
    ]
