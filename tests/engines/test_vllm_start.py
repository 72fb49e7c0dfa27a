import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import make_tasks
from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import PolicyConfig, SamplingConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.readings import QuestionTokens
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.engine import Engine
from memagent_batch.engines.vllm import start
from memagent_batch.engines.vllm.engine import VllmEngine
from memagent_batch.engines.vllm.start import LOOKUP, engine_arguments, engine_environment, guesses_tokens
from memagent_batch.errors import EngineStartError
from memagent_batch.plugins import make_policy
from memagent_batch.reading.turns import ReadingTurns
from memagent_batch.tokens.tokenizer import Tokenizer
from memagent_batch.wiring import make_prompt_tokens
from tests.engine_context import context_of

GREEDY = SamplingConfig()
ADDRESS = ReadingAddress(document_hash="", question_hash="", sample=0, fingerprint="")
SETTINGS = job_of(
    documents="documents",
    ask=("Who?",),
    output="run",
    policy=PolicyConfig(chunk_tokens=256, question_tokens=128, memory_tokens=64, answer_tokens=32),
)


@pytest.mark.parametrize(
    "sampling", [SamplingConfig(temperature=1.0), SamplingConfig(logprobs=True), SamplingConfig(thinking_tokens=8)]
)
def test_tokens_are_guessed_never_where_draws_or_logprobs_are_kept_or_thoughts_have_a_budget(
    sampling: SamplingConfig,
) -> None:
    assert guesses_tokens(GREEDY)
    assert not guesses_tokens(sampling)


@pytest.mark.vllm
def test_engine_arguments_of_the_user_go_before_those_of_the_engine(tiny_model: str) -> None:
    own = {"method": "ngram", "num_speculative_tokens": 2}
    arguments = [
        engine_arguments(settings, model=tiny_model, tokenizer=None, window_tokens=1024, sampling=GREEDY)
        for settings in (
            VllmConfig(),
            VllmConfig(engine_args={"speculative_config": own}),
            VllmConfig(engine_args={"speculative_config": None}),
        )
    ]
    assert [given["speculative_config"] for given in arguments] == [LOOKUP, own, None]


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
    arguments = engine_arguments(
        VllmConfig(dtype=dtype), model=tiny_model, tokenizer=None, window_tokens=1024, sampling=GREEDY
    )
    assert arguments["dtype"] == used


@pytest.mark.vllm
def test_engine_arguments_on_cpu_refuse_what_vllm_has_for_gpus(tiny_model: str) -> None:
    settings = VllmConfig(reproducible=True)
    with pytest.raises(EngineStartError, match=r"vllm\.reproducible: .*on GPUs only.*leave it out"):
        engine_arguments(settings, model=tiny_model, tokenizer=None, window_tokens=1024, sampling=GREEDY)


@pytest.mark.vllm
def test_engine_environment_sets_the_batch_invariant_mode_where_it_is_asked_for() -> None:
    assert engine_environment({}, reproducible=True)["VLLM_BATCH_INVARIANT"] == "1"
    assert "VLLM_BATCH_INVARIANT" not in engine_environment({})


@pytest.mark.vllm
def test_engine_environment_compiles_nothing_on_cpu_unless_the_model_is_compiled(tiny_model: str) -> None:
    def arguments(**engine_args: bool) -> dict[str, Any]:
        settings = VllmConfig(engine_args=engine_args)
        return engine_arguments(settings, model=tiny_model, tokenizer=None, window_tokens=1024, sampling=GREEDY)

    assert engine_environment(arguments())["TORCHDYNAMO_DISABLE"] == "1"
    assert "TORCHDYNAMO_DISABLE" not in engine_environment(arguments(enforce_eager=False))


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.asyncio(loop_scope="session")
async def test_ngram_engine_writes_token_for_token_what_plain_decoding_does(
    vllm_greedy: Engine, tiny_model: str, tiny_tokenizer: Tokenizer
) -> None:
    guessing = VllmEngine(
        dtype="float32",
        cpu_kv_cache_gib=1,
        max_num_seqs=64,
        engine_args={"disable_log_stats": False},
    ).open(context_of(tiny_model, sampling=GREEDY))
    await guessing.start()
    try:
        written = [await read(engine, tokenizer=tiny_tokenizer) for engine in (vllm_greedy, guessing)]
        num_accepted = count_accepted()
    finally:
        await guessing.stop()
    assert written[0] == written[1]
    assert len(written[0]) >= 4 * 5
    assert num_accepted > 20  # else nothing was tested


async def read(engine: Engine, *, tokenizer: Tokenizer) -> dict[str, list[int]]:
    """What an engine writes in four readings at once, by document and turn path."""
    token_ids: dict[str, list[int]] = {}
    policy, prompts = make_policy(SETTINGS.agent), make_prompt_tokens(SETTINGS.agent)
    readings = [
        policy.read(
            tokenizer.document(task.document),
            QuestionTokens(token_ids=tokenizer.encode(task.question)),
            prompts=prompts,
            turns=ReadingTurns(engine=engine, address=ADDRESS, seed=0, observe=partial(keep, token_ids, number)),
        )
        for number, task in enumerate(make_tasks([900] * 4))
    ]
    await asyncio.gather(*readings)
    return token_ids


def keep(token_ids: dict[str, list[int]], number: int, prompt: Prompt, completion: Completion) -> None:
    token_ids[f"{number}/{prompt.path}"] = list(completion.token_ids)


def count_accepted() -> int:
    """Guessed tokens that were right, by vLLM's own count."""
    from vllm.v1.metrics.reader import Counter, get_metrics_snapshot

    return sum(
        metric.value
        for metric in get_metrics_snapshot()
        if isinstance(metric, Counter) and metric.name == "vllm:spec_decode_num_accepted_tokens"
    )
