"""vLLM inside the process that reads: one request of the event loop becomes one request of `AsyncLLM`."""

import asyncio
import copy
import itertools
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.domain.guides import GuideKind, menu_logprobs, num_candidates
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.engine import require_fit
from memagent_batch.engines.tokenizer import load_tokenizer
from memagent_batch.engines.vllm.outputs import (
    final_output,
    finish_reason,
    first_candidates,
    inner_message,
    logprobs,
    structured_outputs,
)
from memagent_batch.engines.vllm.start import engine_arguments, require_model, start_engine
from memagent_batch.errors import EngineDeadError, EngineRequestError, EngineStartError

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

GREEDY = SamplingConfig()
"""How guided turns are decoded."""


class VllmEngine:
    """One `AsyncLLM`. Its processes end with this one."""

    def __init__(
        self,
        settings: VllmConfig,
        *,
        model: str,
        tokenizer: str | None,
        window_tokens: int,
        sampling: SamplingConfig,
    ) -> None:
        """Takes the settings; `start` loads the model.

        Args:
            settings: the engine's knobs.
            model: model folder or hub name.
            tokenizer: folder or hub name of the tokeniser, where it is not the model's.
            window_tokens: context window, tokens.
            sampling: how tokens are drawn.
        """
        self._settings = settings
        self._model = model
        self._tokenizer = tokenizer
        self._window_tokens = window_tokens
        self._sampling = sampling
        self._draws = sampling.temperature > 0  # for as long as it runs: also of what `with_sampling` makes of it
        self._request_ids = itertools.count()
        self._llm: AsyncLLM | None = None

    async def start(self) -> None:
        """Starts vLLM's processes and loads the model; holds the event loop until they are ready (some 20 s on CPU).

        Raises:
            EngineStartError: model, arguments or environment can't work; says what and why.
        """
        arguments = engine_arguments(
            self._settings,
            model=self._model,
            tokenizer=self._tokenizer,
            window_tokens=self._window_tokens,
            sampling=self._sampling,
        )
        self._llm = start_engine(arguments, reproducible=self._settings.reproducible)

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt; see `Engine.complete`."""
        require_fit(prompt, window_tokens=self._window_tokens)
        began = time.monotonic()
        output = await self._request(prompt, params=self._params(prompt, seed=seed))
        completion = output.outputs[0]
        tokenizer = load_tokenizer(self._tokenizer or self._model)
        has_choices = prompt.guide is not None and prompt.guide.kind is GuideKind.CHOICE
        return Completion(
            token_ids=list(completion.token_ids),
            text=tokenizer.continuation(completion.token_ids, after=prompt.token_ids),
            finish_reason=finish_reason(completion, path=prompt.path),
            logprobs=logprobs(completion) if self._sampling.logprobs or has_choices else None,
            menu_logprobs=menu_logprobs(
                prompt.guide,
                (
                    (tokenizer.continuation([token], after=prompt.token_ids), logprob)
                    for token, logprob in first_candidates(completion)
                ),
            ),
            num_prompt_tokens=len(prompt.token_ids),
            num_cached_prompt_tokens=output.num_cached_tokens or 0,
            engine_seconds=time.monotonic() - began,
        )

    async def require_guides(self, kinds: Collection[GuideKind]) -> None:
        """All kinds are obeyed; see `GuidedEngine.require_guides`."""

    async def renew(self, model: str) -> None:
        """Takes the weights of another folder; see `RenewableEngine.renew`. What was cached of the old ones is gone."""
        from vllm.v1.engine.exceptions import EngineDeadError as VllmDeadError

        if self._llm is None:
            raise EngineDeadError("vLLM is not running: it was not started, or was stopped")
        require_model(model, load_format=None)
        try:
            await self._llm.collective_rpc("renew_weights", args=(model,))
            emptied = await self._llm.reset_prefix_cache()
        except VllmDeadError as error:
            raise EngineDeadError("vLLM's engine process died; its own log lines above say why") from error
        except Exception as error:  # what a worker raises comes back as a bare Exception with its text
            raise EngineStartError(f"vLLM can't take the weights of {model}: {inner_message(error)}") from error
        if not emptied:
            raise EngineDeadError("vLLM keeps what it cached of the old weights: turns are still under way")

    def with_sampling(self, sampling: SamplingConfig) -> "VllmEngine":
        """The same running engine with other sampling; see `RenewableEngine.with_sampling`.

        Raises:
            EngineStartError: it was started to decode greedily, and so in a way that draws can't take on CPU.
        """
        if sampling.temperature > 0 and not self._draws:
            raise EngineStartError("vLLM was started to decode greedily; start it with the sampling that draws")
        other = copy.copy(self)
        other._sampling = sampling
        return other

    async def stop(self) -> None:
        """Ends vLLM's processes; returns when they are gone, and holds the event loop until then (some 4 s)."""
        llm, self._llm = self._llm, None
        if llm is not None:
            llm.shutdown()

    def _params(self, prompt: Prompt, *, seed: int) -> "SamplingParams":
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = self._sampling if prompt.guide is None else GREEDY
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=seed if sampling.temperature > 0 else None,
            max_tokens=prompt.max_tokens,
            thinking_token_budget=sampling.thinking_tokens,
            logprobs=num_candidates(prompt.guide, logprobs=self._sampling.logprobs),
            structured_outputs=structured_outputs(prompt.guide),
            output_kind=RequestOutputKind.FINAL_ONLY,
            detokenize=False,  # for it vLLM would decode the whole prompt, on this event loop
        )

    async def _request(self, prompt: Prompt, *, params: "SamplingParams") -> "RequestOutput":
        """The final output of one request; the place where vLLM's errors become ours."""
        from vllm.exceptions import VLLMError
        from vllm.v1.engine.exceptions import EngineDeadError as VllmDeadError

        if self._llm is None:
            raise EngineDeadError("vLLM is not running: it was not started, or was stopped")
        try:
            async with asyncio.timeout(self._settings.turn_timeout_seconds):
                return await final_output(
                    self._llm, list(prompt.token_ids), params=params, request_id=str(next(self._request_ids))
                )
        except TimeoutError as error:
            raise EngineDeadError(
                f"vLLM hangs: turn {prompt.path} took longer than {self._settings.turn_timeout_seconds:g} s "
                "(vllm.turn_timeout_seconds)"
            ) from error
        except VllmDeadError as error:
            raise EngineDeadError("vLLM's engine process died; its own log lines above say why") from error
        except (VLLMError, ValueError) as error:
            message = f"turn {prompt.path}: vLLM refused the request: {inner_message(error)}"
            raise EngineRequestError(message, is_turned_away=True) from error
