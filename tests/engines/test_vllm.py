import asyncio
import pickle
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memagent_batch.errors import EngineDeadError, EngineRequestError, EngineStartError
from memagent_batch.loop.engines.vllm import engine as vllm_engine
from memagent_batch.loop.engines.vllm.engine import VllmEngine
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import FinishReason, Prompt
from tests.engine_context import context_of


def engine_of(model: str, *, window_tokens: int = 1024, **engine_args: Any) -> VllmEngine:
    settings = VllmEngine(enforce_eager=True, cpu_kv_cache_gib=1, engine_args=engine_args)
    return settings.open(context_of(model, window_tokens=window_tokens))


async def test_start_missing_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match=r"no folder .*nowhere"):
        await engine_of(str(tmp_path / "nowhere")).start()


async def test_start_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match=r"has no config\.json"):
        await engine_of(str(tmp_path)).start()


@pytest.mark.vllm
async def test_start_unknown_argument_is_refused_with_near_names(tiny_model: str) -> None:
    with pytest.raises(EngineStartError, match=r"speculativ_config.*did you mean speculative_config"):
        await engine_of(tiny_model, speculativ_config={}).start()


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("argument", "setting"),
    [
        ("max_model_len", "window_tokens"),
        ("data_parallel_size", r"pool\.replicas"),
        ("prefill_context_parallel_size", r"vllm\.tensor_parallel_size"),
    ],
)
async def test_start_argument_with_own_setting_is_refused(argument: str, setting: str, tiny_model: str) -> None:
    with pytest.raises(EngineStartError, match=f"{argument}: use the setting {setting} instead"):
        await engine_of(tiny_model, **{argument: 2}).start()


@pytest.mark.vllm
async def test_start_window_over_model_maximum_is_refused(tiny_model: str) -> None:
    with pytest.raises(EngineStartError, match=r"1000000.*\n.*window_tokens"):
        await engine_of(tiny_model, window_tokens=1_000_000).start()


async def test_start_folder_without_weights_is_refused(tiny_model: str, tmp_path: Path) -> None:
    folder = tmp_path / "weightless"
    shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(EngineStartError, match="no weights") as raised:
        await engine_of(str(folder)).start()
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


async def test_complete_before_start_says_that_engine_is_not_running(tiny_model: str) -> None:
    with pytest.raises(EngineDeadError, match="not running"):
        await engine_of(tiny_model).complete(prompt_of([1, 2, 3]), seed=0)


@pytest.mark.vllm
@pytest.mark.asyncio(loop_scope="session")
async def test_complete_refused_request_costs_no_other(vllm_greedy: VllmEngine) -> None:
    bad, good = await asyncio.gather(
        vllm_greedy.complete(prompt_of([10_000_000]), seed=0),
        vllm_greedy.complete(prompt_of([1, 2, 3]), seed=0),
        return_exceptions=True,
    )
    assert isinstance(bad, EngineRequestError)
    assert not isinstance(good, BaseException)


@pytest.mark.vllm
@pytest.mark.asyncio(loop_scope="session")
async def test_complete_over_turn_timeout_means_dead_engine(vllm_greedy: VllmEngine) -> None:
    hanging = vllm_greedy.model_copy(update={"turn_timeout_seconds": 1e-6})
    with pytest.raises(EngineDeadError, match="turn_timeout_seconds"):
        await hanging.complete(prompt_of([1, 2, 3]), seed=0)


class OneAtATime:
    """Answers one request after another, as a slow engine does whose KV cache holds one."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def generate(self, prompt: Any, params: Any, request_id: str) -> AsyncIterator[SimpleNamespace]:
        async with self._lock:
            await asyncio.sleep(0.05)
        output = SimpleNamespace(token_ids=[1], finish_reason="stop", logprobs=None)
        yield SimpleNamespace(outputs=[output], num_cached_tokens=0)


@pytest.mark.vllm
async def test_complete_that_waits_in_the_queue_of_a_slow_engine_is_no_death(tiny_model: str) -> None:
    engine = engine_of(tiny_model).model_copy(update={"turn_timeout_seconds": 1.5})
    engine._llm = OneAtATime()
    completions = await asyncio.gather(*[engine.complete(prompt_of([1, 2, 3]), seed=0) for _ in range(60)])
    assert max(completion.engine_seconds for completion in completions) > engine.turn_timeout_seconds


@pytest.mark.vllm
async def test_engine_that_takes_longer_to_start_than_a_turn_may_take_is_no_death(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes of loading, where a second stands for 300: a turn may take five minutes."""
    slow = OneAtATime()
    vars(slow)["output_processor"] = SimpleNamespace(process_outputs=lambda *_: None)
    vars(slow)["shutdown"] = lambda: None

    def load(*_: Any, **__: Any) -> OneAtATime:
        time.sleep(2.0)
        return slow

    monkeypatch.setattr(vllm_engine, "start_engine", load)
    monkeypatch.setattr(vllm_engine, "start_fork_server", lambda _: None)
    engine = engine_of(tiny_model).model_copy(update={"turn_timeout_seconds": 1.0})
    await engine.start()
    completion = await engine.complete(prompt_of([1, 2, 3]), seed=0)
    assert completion.finish_reason is FinishReason.STOP
    await engine.stop()


@pytest.mark.vllm
@pytest.mark.asyncio(loop_scope="session")
async def test_complete_that_writes_for_longer_than_the_timeout_is_no_death(
    vllm_sampled: VllmEngine, vllm_greedy: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, prompt = vllm_sampled, replace(prompt_of([1, 2, 3]), max_tokens=1000)
    sampled = engine._context
    engine._context = vllm_greedy._context  # the engine itself, and not a copy that shares vLLM
    try:
        before = [await engine.complete(prompt, seed=0) for _ in range(2)][1]
        monkeypatch.setitem(engine.__dict__, "turn_timeout_seconds", before.engine_seconds / 4)
        assert (await engine.complete(prompt, seed=0)).token_ids == before.token_ids
    finally:
        engine._context = sampled


@pytest.mark.vllm
@pytest.mark.asyncio(loop_scope="session")
async def test_complete_draws_from_more_prompts_than_an_engine_step_takes(vllm_sampled: VllmEngine) -> None:
    prompts = [prompt_of([10 + number, *range(100, 1000)]) for number in range(48)]

    completions = await asyncio.gather(*[vllm_sampled.complete(prompt, seed=7) for prompt in prompts])

    alone = await vllm_sampled.complete(prompts[20], seed=7)
    assert completions[20].token_ids[:1] == alone.token_ids[:1]


def prompt_of(token_ids: list[int]) -> Prompt:
    return Prompt(path="answer", kind="answer", token_ids=token_ids, max_tokens=8)


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.asyncio(loop_scope="session")
async def test_compiled_model_writes_what_the_eager_one_writes(
    tiny_model: str, vllm_greedy: VllmEngine, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default on CPU: vLLM's own, by torch's compiler and that of C++."""
    monkeypatch.setenv("CXX", "g++")
    texts = [f"The access code is {number}. What is the access code?" for number in range(1000, 1016)]
    prompts = [replace(prompt_of(tiny_tokenizer.encode(text)), max_tokens=24) for text in texts]
    settings = vllm_greedy.model_copy(update={"enforce_eager": False})
    engine = settings.open(context_of(tiny_model))
    await engine.start()
    try:
        compiled = await asyncio.gather(*[engine.complete(prompt, seed=0) for prompt in prompts])
    finally:
        await engine.stop()
    eager = await asyncio.gather(*[vllm_greedy.complete(prompt, seed=0) for prompt in prompts])
    assert [each.token_ids for each in compiled] == [each.token_ids for each in eager]
