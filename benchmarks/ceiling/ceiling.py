"""How much of vLLM's own speed reaches the readings: turns a second of the real job over those of vLLM alone.

The job is the real one: Ray Data, actor, turn log, tables. Then the same prompts, rebuilt from its log, go to
vLLM's own batch call all at once, in the order in which the job sent them: no Ray, no reading loop, no log, and
never a pause for want of work. Both have the same engine arguments, at most as many turns in one engine step, and an
engine of their own that has just started, with an empty prefix cache.

Turns a second in the steady state: between the ends of the turns at 20 % and 80 % of all, so that neither side's first
wave of prompts nor its emptying at the end counts. Beside it the whole: of the job from the start of its first turn to
the end of its last one, as the turn log has them; of vLLM alone from the call to its return. Starts are left out.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ceiling.random_model import save_random_model
from benchmarks.ceiling.recorded_prompts import RecordedTurn, recorded_turns
from benchmarks.needle_corpus import make_tasks, write_corpus
from benchmarks.spread import spread
from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import PolicyConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.config.job import JobConfig, PoolConfig
from memagent_batch.engines.vllm import orphan_guard
from memagent_batch.engines.vllm.start import engine_arguments, engine_environment
from memagent_batch.flows.answer import answer
from memagent_batch.wiring import resolve_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Documents and budgets for one model."""

    documents: int
    """Documents, all of one length, so that no long one is left over at the end."""
    chunks: int
    """Chunks of each."""
    in_flight: int
    """Readings in flight, and most turns in an engine step."""
    policy: PolicyConfig
    """Budgets; a random model rarely ends by itself, so they decide its lengths."""


STEADY = (0.2, 0.8)
"""The steady state lies between the ends of these shares of the turns."""

TINY = Load(
    documents=160,
    chunks=8,
    in_flight=64,
    policy=PolicyConfig(chunk_tokens=1024, question_tokens=128, memory_tokens=128, answer_tokens=64),
)
BIG = Load(
    documents=64,
    chunks=3,
    in_flight=32,
    policy=PolicyConfig(chunk_tokens=512, question_tokens=128, memory_tokens=32, answer_tokens=16),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One side of one round."""

    turns_per_second: float
    """In the steady state."""
    turns_per_second_whole: float
    """All turns over all seconds, starts left out."""
    cached_share: float
    """Share of the prompt tokens that the prefix cache held."""
    completion_tokens: int
    """Tokens written."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", choices=["tiny", "big"], default=["tiny", "big"], help="models")
    parser.add_argument("--documents", type=int, help="documents of each model (default: 160 and 64)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            load = TINY if name == "tiny" else BIG
            job = _settings(Path(folder), name, load=load, num_documents=arguments.documents or load.documents)
            yield {"model": name, **_compare(job, runs=arguments.runs)}


def _settings(folder: Path, name: str, *, load: Load, num_documents: int) -> JobConfig:
    model = "tiny" if name == "tiny" else save_random_model(folder / "model")
    write_corpus(folder, make_tasks(num_documents, num_tokens=int((load.chunks - 0.5) * load.policy.chunk_tokens)))
    return job_of(
        documents=str(folder / "documents.parquet"),
        questions=str(folder / "questions.parquet"),
        output=str(folder / "run"),
        model=model,
        window_tokens=load.policy.chunk_tokens + 1024,
        policy=load.policy,
        vllm=VllmConfig(cpu_kv_cache_gib=2, max_num_seqs=load.in_flight),
        pool=PoolConfig(readings_in_flight=load.in_flight),
    )


def _compare(config: JobConfig, *, runs: int) -> dict[str, Any]:
    """Rounds of the job and of vLLM alone, one after the other; each round's share is of its own two sides."""
    jobs, alone, same = [], [], []
    for number in range(runs):
        run = config.model_copy(update={"output": f"{config.output}-{number}"})
        answer(run)
        turns = recorded_turns(run)
        jobs.append(_job_speed(turns))
        speed, num_same = _vllm_alone(run, turns)
        alone.append(speed)
        same.append(num_same / len(turns))
    pairs = list(zip(jobs, alone, strict=True))
    shares = [job.turns_per_second / vllm.turns_per_second for job, vllm in pairs]
    whole = [job.turns_per_second_whole / vllm.turns_per_second_whole for job, vllm in pairs]
    return {
        "turns": len(turns),
        "runs": runs,
        **spread("share", shares, digits=3),
        **spread("share_whole", whole, digits=3),
        **{f"job_{name}": value for name, value in _summary(jobs).items()},
        **{f"vllm_{name}": value for name, value in _summary(alone).items()},
        "same_completions_share": round(statistics.median(same), 3),
    }


def _summary(sides: Sequence[Speed]) -> dict[str, Any]:
    return {
        **spread("turns_per_second", [side.turns_per_second for side in sides], digits=2),
        "cached_share": round(statistics.median(side.cached_share for side in sides), 3),
        "completion_tokens": round(statistics.median(side.completion_tokens for side in sides)),
    }


def _steady(ends: Sequence[float]) -> float:
    """Turns a second in the steady state, of the moments at which turns ended, in seconds."""
    moments = sorted(ends)
    first, last = (int(share * len(moments)) for share in STEADY)
    return (last - first) / (moments[last] - moments[first])


def _job_speed(turns: Sequence[RecordedTurn]) -> Speed:
    seconds = max(turn.ended_at for turn in turns) - min(turn.began_at for turn in turns)
    return Speed(
        turns_per_second=_steady([turn.ended_at for turn in turns]),
        turns_per_second_whole=len(turns) / seconds,
        cached_share=sum(turn.num_cached_tokens for turn in turns) / sum(len(turn.prompt.token_ids) for turn in turns),
        completion_tokens=sum(len(turn.completion_token_ids) for turn in turns),
    )


def _vllm_alone(job: JobConfig, turns: Sequence[RecordedTurn]) -> tuple[Speed, int]:
    """Speed of vLLM's batch call, and how many completions are the job's, token for token."""
    from vllm import LLM, SamplingParams
    from vllm.inputs import tokens_input

    arguments = engine_arguments(
        job.agent.vllm,
        model=resolve_model(job.agent.model),
        tokenizer=job.agent.tokenizer,
        window_tokens=job.agent.window_tokens,
        sampling=job.agent.sampling,
    )
    prompts = [tokens_input(list(turn.prompt.token_ids)) for turn in turns]
    params = [SamplingParams(temperature=0, max_tokens=turn.prompt.max_tokens, detokenize=False) for turn in turns]
    failure_file = Path(job.output) / "failure.txt"
    with orphan_guard.environment(engine_environment(arguments) | orphan_guard.guarded(failure_file)):
        llm = LLM(**(arguments | {"disable_log_stats": False}))  # without statistics it reports no ends of requests
    try:
        began = time.monotonic()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.monotonic() - began
    finally:
        llm.llm_engine.engine_core.shutdown()
    written = [list(output.outputs[0].token_ids) for output in outputs]
    speed = Speed(
        turns_per_second=_steady([output.metrics.last_token_ts for output in outputs]),
        turns_per_second_whole=len(turns) / seconds,
        cached_share=sum(output.num_cached_tokens or 0 for output in outputs)
        / sum(len(turn.prompt.token_ids) for turn in turns),
        completion_tokens=sum(len(token_ids) for token_ids in written),
    )
    return speed, sum(
        token_ids == list(turn.completion_token_ids) for token_ids, turn in zip(written, turns, strict=True)
    )
