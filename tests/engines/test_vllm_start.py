import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.errors import EngineStartError
from memagent_batch.loop.engines.vllm import compiling, start
from memagent_batch.loop.engines.vllm.start import (
    KEEPS_MEMORY,
    LOOKUP,
    engine_arguments,
    engine_environment,
    guesses_tokens,
)

GREEDY = SamplingConfig()


def arguments_of(model: str, *, window_tokens: int = 1024, **settings: Any) -> dict[str, Any]:
    config = VllmConfig(**{"enforce_eager": True} | settings)
    return engine_arguments(config, model=model, tokenizer=None, window_tokens=window_tokens, sampling=GREEDY)


@pytest.mark.parametrize("sampling", [SamplingConfig(temperature=1.0), SamplingConfig(logprobs=True)])
def test_tokens_are_guessed_never_where_draws_or_logprobs_are_kept(sampling: SamplingConfig) -> None:
    assert guesses_tokens(GREEDY)
    assert not guesses_tokens(sampling)


@pytest.mark.vllm
def test_engine_arguments_of_the_user_go_before_those_of_the_engine(tiny_model: str) -> None:
    own = {"method": "ngram", "num_speculative_tokens": 2}
    given: list[dict[str, Any]] = [{}, {"speculative_config": own}, {"speculative_config": None}]
    used = [arguments_of(tiny_model, engine_args=arguments)["speculative_config"] for arguments in given]
    assert used == [LOOKUP, own, None]


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("window_tokens", "engine_args", "block"),
    [(2048, {}, 32), (8192, {}, None), (2048, {"block_size": 64}, 64), (2048, {"block_size": None}, None)],
)
def test_prefixes_are_cached_in_small_blocks_where_prompts_are_short(
    tiny_model: str, window_tokens: int, engine_args: dict[str, Any], block: int | None
) -> None:
    arguments = arguments_of(tiny_model, window_tokens=window_tokens, engine_args=engine_args)
    assert arguments.get("block_size") == block


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("flags", "dtype", "used"),
    [("avx avx2", "auto", "float32"), ("avx2 avx512f", "auto", "auto"), ("avx2", "bfloat16", "bfloat16")],
)
def test_dtype_is_float32_on_a_processor_that_has_no_instructions_for_bfloat16(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, dtype: str, used: str
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags}\n")
    monkeypatch.setattr(start, "CPU_INFO_FILE", tmp_path / "cpuinfo")
    assert arguments_of(tiny_model, dtype=dtype)["dtype"] == used


@pytest.mark.vllm
def test_engine_arguments_on_cpu_refuse_what_vllm_has_for_gpus(tiny_model: str) -> None:
    with pytest.raises(EngineStartError, match=r"vllm\.reproducible: .*on GPUs only.*leave it out"):
        arguments_of(tiny_model, reproducible=True)


@pytest.mark.vllm
def test_engine_environment_sets_the_batch_invariant_mode_where_it_is_asked_for() -> None:
    assert engine_environment({}, reproducible=True)["VLLM_BATCH_INVARIANT"] == "1"
    assert "VLLM_BATCH_INVARIANT" not in engine_environment({})


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("theirs", "keeps"),
    [
        ({}, True),
        ({"LD_PRELOAD": "libgomp.so.1"}, True),
        ({"LD_PRELOAD": "libtcmalloc_minimal.so.4"}, False),
        ({"MALLOC_TRIM_THRESHOLD_": "1"}, False),
    ],
)
def test_engine_on_cpu_keeps_memory_unless_the_user_chose_an_allocator(
    monkeypatch: pytest.MonkeyPatch, theirs: Mapping[str, str], keeps: bool
) -> None:
    for name in [*KEEPS_MEMORY, "LD_PRELOAD"]:
        monkeypatch.delenv(name, raising=False)
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    assert (KEEPS_MEMORY.items() <= engine_environment({}).items()) is keeps


@pytest.mark.vllm
def test_engine_environment_compiles_nothing_on_cpu_unless_the_model_is_compiled(tiny_model: str) -> None:
    assert engine_environment(arguments_of(tiny_model))["TORCHDYNAMO_DISABLE"] == "1"
    compiled = engine_environment({"enforce_eager": False})
    assert "TORCHDYNAMO_DISABLE" not in compiled
    assert compiled["VLLM_USE_AOT_COMPILE"] == "0"


@pytest.mark.vllm
def test_model_is_compiled_as_by_vllm_itself_unless_the_job_says_no(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "g++")
    assert VllmConfig().enforce_eager is False
    assert [arguments_of(tiny_model, enforce_eager=value)["enforce_eager"] for value in (False, True)] == [False, True]


@pytest.mark.vllm
def test_machine_without_a_compiler_is_told_of_eager_mode(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(EngineStartError, match=r"vllm\.enforce_eager: .*there is no no-such-compiler here; .*true"):
        arguments_of(tiny_model, enforce_eager=False)


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("flags", "enforce_eager", "minutes", "advice"),
    [
        ("avx2 avx512f", True, 12, r"for about 12 minutes: with vllm\.enforce_eager false the job saves a quarter"),
        ("avx2", True, 20, r"for about 20 minutes: .*false"),
        ("avx2 avx512f", False, 12, ""),
        ("avx2 avx512f", False, 1, r"a minute or two: with vllm\.enforce_eager true the job starts"),
        ("avx2 avx512f", True, 1, ""),
    ],
)
def test_advice_on_compiling_follows_the_seconds_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, enforce_eager: bool, minutes: int, advice: str
) -> None:
    """A model of 135 million weights on two cores, whose speed is known: 930 tokens a second in bfloat16."""
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text(f"flags : {flags}")
    monkeypatch.setattr(start, "CPU_INFO_FILE", cpu_info)
    monkeypatch.setattr(compiling, "num_cores", lambda: 2)
    monkeypatch.setenv("CXX", "g++")
    with (tmp_path / "model.safetensors").open("wb") as weights:
        weights.truncate(2 * 135_000_000)
    speed = 930 * (0.6 if flags == "avx2" else 1)
    num_tokens = int(minutes * 60 * speed)
    written = VllmConfig(enforce_eager=enforce_eager)
    said = compiling.compiling_advice(
        written, model=str(tmp_path), num_prompt_tokens=num_tokens // 2, most_completion_tokens=num_tokens * 10 // 32
    )
    assert re.search(advice, said) if advice else said == ""
