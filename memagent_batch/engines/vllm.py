"""vLLM inside the process that reads: one request of the event loop becomes one request of `AsyncLLM`."""

import asyncio
import contextlib
import dataclasses
import difflib
import itertools
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.engines import orphan_guard
from memagent_batch.engines.engine import require_fit
from memagent_batch.engines.weights import WEIGHT_ENDINGS
from memagent_batch.errors import EngineDeadError, EngineRequestError, EngineStartError
from memagent_batch.settings import SamplingSettings, VllmSettings

if TYPE_CHECKING:
    from vllm import CompletionOutput, RequestOutput, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

GIB_BYTES = 1024**3

CGROUP_CPU_FILE = Path("/sys/fs/cgroup/cpu.max")
"""CPU time that the container may use, `quota period` in microseconds (cgroup v2)."""

IN_CORE_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""The executor that needs no worker process. By its short name, `uni`, vLLM on CPU takes it for `mp`, only to bind the
worker's threads; that costs a process more to start, and a core that waits for the worker."""

START_TRIES = 3
"""Starts in a row, where the engine process dies without an error of its own: what killed it need not strike again."""

KNOBS = {
    "model": "model",
    "tokenizer": "tokenizer",
    "max_model_len": "window_tokens",
    "dtype": "vllm.dtype",
    "tensor_parallel_size": "vllm.tensor_parallel_size",
    "pipeline_parallel_size": "vllm.pipeline_parallel_size",
    "gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "kv_cache_memory_bytes": "vllm.cpu_kv_cache_gib",
    "max_num_seqs": "vllm.max_num_seqs",
}
"""Arguments of vLLM that have a knob of their own, and that knob."""


class VllmEngine:
    """One `AsyncLLM`, all of whose processes end with this one."""

    def __init__(
        self,
        settings: VllmSettings,
        *,
        model: str,
        tokenizer: str | None,
        window_tokens: int,
        sampling: SamplingSettings,
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
        self._request_ids = itertools.count()
        self._llm: AsyncLLM | None = None

    async def start(self) -> None:
        """Starts vLLM's processes and loads the model; holds the event loop until they are ready (some 20 s on CPU).

        Raises:
            EngineStartError: model, arguments or environment can't work; says what and why.
        """
        orphan_guard.require_registered()
        _require_model(self._model, load_format=self._settings.engine_args.get("load_format"))
        arguments = self._arguments()
        for _ in range(START_TRIES):
            with contextlib.suppress(EngineDeadError), tempfile.TemporaryDirectory(prefix="memagent-engine-") as folder:
                failure_file = Path(folder) / "failure.txt"
                with orphan_guard.environment(_environment() | orphan_guard.guarded(failure_file)):
                    self._llm = _start(arguments, failure_file=failure_file)
                return
        raise EngineStartError(
            f"vLLM's engine process was killed {START_TRIES} times while it started; if by the kernel for want of "
            "memory: lower vllm.cpu_kv_cache_gib, or give the node more"
        )

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt; see `Engine.complete`."""
        require_fit(prompt, window_tokens=self._window_tokens)
        began = time.monotonic()
        output = await self._request(prompt, params=self._params(prompt, seed=seed))
        completion = output.outputs[0]
        return Completion(
            token_ids=list(completion.token_ids),
            text=completion.text,
            finish_reason=_finish_reason(completion, path=prompt.path),
            logprobs=_logprobs(completion) if self._sampling.logprobs else None,
            num_prompt_tokens=len(prompt.token_ids),
            num_cached_prompt_tokens=output.num_cached_tokens or 0,
            engine_seconds=time.monotonic() - began,
        )

    async def stop(self) -> None:
        """Ends vLLM's processes; returns when they are gone, and holds the event loop until then (some 4 s)."""
        llm, self._llm = self._llm, None
        if llm is not None:
            llm.shutdown()

    def _arguments(self) -> dict[str, Any]:
        """Keyword arguments of AsyncEngineArgs."""
        from vllm.platforms import current_platform

        settings = self._settings
        arguments = {
            "model": self._model,
            "tokenizer": self._tokenizer or self._model,
            "max_model_len": self._window_tokens,
            "dtype": settings.dtype,
            "tensor_parallel_size": settings.tensor_parallel_size,
            "pipeline_parallel_size": settings.pipeline_parallel_size,
            "max_num_seqs": settings.max_num_seqs,
            "enable_prefix_caching": True,
            "disable_log_stats": True,
        }
        if not current_platform.is_cpu():
            arguments["gpu_memory_utilization"] = settings.gpu_memory_utilization
        else:
            arguments |= {"kv_cache_memory_bytes": settings.cpu_kv_cache_gib * GIB_BYTES, "enforce_eager": True}
            if settings.tensor_parallel_size * settings.pipeline_parallel_size == 1:
                arguments["distributed_executor_backend"] = IN_CORE_EXECUTOR
        return arguments | _checked(settings.engine_args)

    def _params(self, prompt: Prompt, *, seed: int) -> "SamplingParams":
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = self._sampling
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=seed if sampling.temperature > 0 else None,
            max_tokens=prompt.max_tokens,
            logprobs=0 if sampling.logprobs else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_special_tokens=True,
        )

    async def _request(self, prompt: Prompt, *, params: "SamplingParams") -> "RequestOutput":
        """The final output of one request; the place where vLLM's errors become ours."""
        from vllm.exceptions import VLLMError
        from vllm.v1.engine.exceptions import EngineDeadError as VllmDeadError

        if self._llm is None:
            raise EngineDeadError("vLLM is not running: it was not started, or was stopped")
        try:
            async with asyncio.timeout(self._settings.turn_timeout_seconds):
                return await _final_output(
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
            raise EngineRequestError(f"turn {prompt.path}: vLLM refused the request: {_cause(error)}") from error


async def _final_output(
    llm: "AsyncLLM", token_ids: list[int], *, params: "SamplingParams", request_id: str
) -> "RequestOutput":
    from vllm.inputs import tokens_input

    final = None
    async for output in llm.generate(tokens_input(token_ids), params, request_id):
        final = output
    if final is None or not final.outputs:
        raise ValueError("no output came back")
    return final


def _start(arguments: dict[str, Any], *, failure_file: Path) -> "AsyncLLM":
    """Builds the engine; the place where what vLLM, torch and transformers raise at a start becomes ours."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except Exception as error:
        if not failure_file.exists() and _is_death(error):
            raise EngineDeadError("vLLM's engine process was killed while it started") from error
        cause = failure_file.read_text(encoding="utf-8") if failure_file.exists() else _cause(error)
        raise EngineStartError(
            f"vLLM can't start with model {arguments['model']}: {cause.strip()}\n"
            "Check model, window_tokens and the vllm knobs (dtype, memory, engine_args)."
        ) from error


def _is_death(error: Exception) -> bool:
    """Whether the engine process is gone; of a start, vLLM tells it by the words of a RuntimeError alone."""
    return type(error).__name__ == "EngineDeadError" or str(error).startswith("Engine core initialization failed")


def _environment() -> dict[str, str]:
    """Environment of the engine's processes.

    They are spawned, not forked, so that each loads its plug-ins itself. On CPU each uses all cores it may, unbound:
    two replicas on one machine would otherwise bind to the same core, and Ray allots one thread to an actor by default.
    A passive wait keeps the threads of one replica from spinning while another's work. A user's own
    VLLM_CPU_OMP_THREADS_BIND goes before all that.
    """
    from vllm.platforms import current_platform

    variables = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_NO_USAGE_STATS": "1"}
    if current_platform.is_cpu() and "VLLM_CPU_OMP_THREADS_BIND" not in os.environ:
        variables |= {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(_num_cores()),
            "OMP_WAIT_POLICY": "PASSIVE",
        }
    return variables


def _num_cores() -> int:
    """Cores that this process may use: its affinity, or its container's share where that is smaller."""
    allowed = len(os.sched_getaffinity(0))
    if CGROUP_CPU_FILE.exists():
        quota, period = CGROUP_CPU_FILE.read_text(encoding="ascii").split()
        if quota != "max":
            return max(1, min(allowed, int(quota) // int(period)))
    return allowed


def _require_model(model: str, *, load_format: str | None) -> None:
    """Refuses a folder that holds no whole model, and what is plainly a path to nothing; a hub name is left to vLLM."""
    path = Path(model)
    if path.is_dir():
        names = [file.name for file in path.iterdir()]
        if "config.json" not in names:
            raise EngineStartError(f"model: the folder {model} has no config.json; give a folder with a whole model")
        if load_format is None and not any(name.endswith(tuple(WEIGHT_ENDINGS)) for name in names):
            raise EngineStartError(f"model: the folder {model} has no weights, such as model.safetensors")
    elif not path.exists() and (path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1):
        raise EngineStartError(f"model: there is no folder {model} on this machine; check the path on every node")


def _checked(engine_args: dict[str, Any]) -> dict[str, Any]:
    """The user's further arguments, if vLLM knows them and no other knob sets them."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    known = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    for name in engine_args:
        if name in KNOBS:
            raise EngineStartError(f"vllm.engine_args.{name}: use the knob {KNOBS[name]} instead")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else "; see vLLM's AsyncEngineArgs"
            raise EngineStartError(f"vllm.engine_args.{name}: this vLLM has no such argument{hint}")
    return engine_args


def _finish_reason(completion: "CompletionOutput", *, path: str) -> FinishReason:
    reason = completion.finish_reason
    if reason not in tuple(FinishReason):
        raise EngineRequestError(f"turn {path}: vLLM ended the request with `{reason}`, not with a completion")
    return FinishReason(reason)


def _logprobs(completion: "CompletionOutput") -> list[float]:
    """Log-probability of each returned token."""
    return [
        float(entry[token_id].logprob)
        for token_id, entry in zip(completion.token_ids, completion.logprobs or (), strict=True)
    ]


def _cause(error: BaseException) -> str:
    """An error's message in one paragraph, without pydantic's frame around it."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return "; ".join(str(detail["msg"]) for detail in error.errors(include_url=False, include_input=False))
    return f"{type(error).__name__}: {error}"
