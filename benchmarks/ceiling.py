"""How much of vLLM's own speed reaches the readings: turns a second of the real job over those of vLLM alone.

The job is the real one: Ray Data, actor, turn log, tables. Then the same prompts, rebuilt from its log, go to
vLLM's own batch call all at once, in the order in which the job sent them: no Ray, no reading loop, no log, and
never a pause for want of work. Both have the same engine arguments, at most as many turns in one engine step, and an
engine of their own that has just started, with an empty prefix cache.

Turns a second in the steady state: between the ends of the turns at 20 % and 80 % of all, so that neither side's first
wave of prompts nor its emptying at the end counts. Starts are left out.
"""

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.harness import engine_of, make_tasks, spread, write_tasks
from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.config.job import JobConfig, PoolConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.readings import Question
from memagent_batch.domain.turns import Prompt
from memagent_batch.engines.vllm import orphan_guard
from memagent_batch.flows.answer import answer
from memagent_batch.reading.agent import make_agent
from memagent_batch.reading.read import read
from memagent_batch.reading.turns import ReadingTurns, ReplayOnly
from memagent_batch.store.turn_log.index import reading_key
from memagent_batch.store.turn_log.rows import TurnRow
from memagent_batch.store.turn_log.turns import LoggedRows
from memagent_batch.wiring import make_tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A turn of the run."""

    prompt: Prompt
    completion_token_ids: list[int]
    began_at: float
    """When the engine got it, seconds since 1970."""
    ended_at: float
    """When it was answered, seconds since 1970."""


STEADY = (0.2, 0.8)
"""The steady state lies between the ends of these shares of the turns."""

CHUNKS = 8
"""Of each document; all are of one length, so that no long one is left over at the end."""
IN_FLIGHT = 64
"""Readings in flight, and most turns in an engine step."""
POLICY = PolicyConfig(chunk_tokens=1024, question_tokens=128, memory_tokens=128, answer_tokens=64)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--documents", type=int, default=160, help="documents (default: 160)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        yield {"model": "tiny", **_compare(_settings(Path(folder), arguments.documents), runs=arguments.runs)}


def _settings(folder: Path, num_documents: int) -> JobConfig:
    write_tasks(folder, make_tasks([int((CHUNKS - 0.5) * POLICY.chunk_tokens)] * num_documents))
    return job_of(
        documents=str(folder / "documents.parquet"),
        questions=str(folder / "questions.parquet"),
        output=str(folder / "run"),
        model="tiny",
        window_tokens=POLICY.chunk_tokens + 1024,
        policy=POLICY,
        vllm=VllmConfig(cpu_kv_cache_gib=2, max_num_seqs=IN_FLIGHT),
        pool=PoolConfig(readings_in_flight=IN_FLIGHT),
    )


def _compare(config: JobConfig, *, runs: int) -> dict[str, Any]:
    """Rounds of the job and of vLLM alone, one after the other; each round's share is of its own two sides."""
    jobs, alone, same = [], [], []
    for number in range(runs):
        run = config.model_copy(update={"output": f"{config.output}-{number}"})
        answer(run)
        turns = _recorded_turns(run)
        jobs.append(_steady([turn.ended_at for turn in turns]))
        speed, num_same = _vllm_alone(run, turns)
        alone.append(speed)
        same.append(num_same / len(turns))
    shares = [job / vllm for job, vllm in zip(jobs, alone, strict=True)]
    return {
        "turns": len(turns),
        "runs": runs,
        **spread("share", shares, digits=3),
        **spread("job_turns_per_second", jobs, digits=2),
        **spread("vllm_turns_per_second", alone, digits=2),
        "same_completions_share": round(statistics.median(same), 3),
    }


def _steady(ends: Sequence[float]) -> float:
    """Turns a second in the steady state, of the moments at which turns ended, in seconds."""
    moments = sorted(ends)
    first, last = (int(share * len(moments)) for share in STEADY)
    return (last - first) / (moments[last] - moments[first])


def _vllm_alone(job: JobConfig, turns: Sequence[RecordedTurn]) -> tuple[float, int]:
    """Turns a second of vLLM's batch call, and how many completions are the job's, token for token."""
    from vllm import LLM, SamplingParams
    from vllm.inputs import tokens_input

    arguments, environment = engine_of(job.agent)
    prompts = [tokens_input(list(turn.prompt.token_ids)) for turn in turns]
    params = [SamplingParams(temperature=0, max_tokens=turn.prompt.max_tokens, detokenize=False) for turn in turns]
    failure_file = Path(job.output) / "failure.txt"
    with orphan_guard.environment({**environment} | orphan_guard.guarded(failure_file)):
        llm = LLM(**(arguments | {"disable_log_stats": False}))  # without statistics it reports no ends of requests
    try:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    finally:
        llm.llm_engine.engine_core.shutdown()
    num_same = sum(
        list(output.outputs[0].token_ids) == turn.completion_token_ids
        for output, turn in zip(outputs, turns, strict=True)
    )
    return _steady([output.metrics.last_token_ts for output in outputs]), num_same


def _recorded_turns(job: JobConfig) -> list[RecordedTurn]:
    """All turns of a run, in the order of their start: the policy runs again, answered from the turn log."""
    logged: dict[str, dict[str, TurnRow]] = {}
    for row in pq.read_table(f"{job.output}/log/turns").to_pylist():
        logged.setdefault(row["document_hash"], {})[row["path"]] = row
    questions = {row["document_id"]: row["question"] for row in pq.read_table(job.questions).to_pylist()}
    turns = []
    for row in pq.read_table(job.documents[0]).to_pylist():
        rows = logged[text_hash(row["text"])]
        prompts = asyncio.run(_asked(job.agent, row["text"], questions[row["document_id"]], rows=rows))
        turns += [_recorded(prompt, rows[prompt.path]) for prompt in prompts]
    if len(turns) != sum(len(rows) for rows in logged.values()):
        raise RuntimeError(f"{len(turns)} turns were rebuilt, the log holds {sum(map(len, logged.values()))}")
    return sorted(turns, key=lambda turn: turn.began_at)


async def _asked(agent: AgentConfig, text: str, question: str, *, rows: Mapping[str, TurnRow]) -> list[Prompt]:
    """Prompts of one reading."""
    prompts: list[Prompt] = []
    address = ReadingAddress(document_hash="", question_hash="", sample=0, fingerprint="")
    turns = ReadingTurns(
        engine=ReplayOnly(),
        address=address,
        seed=0,
        from_log={reading_key(address): LoggedRows.of_rows(rows)},
        observe=lambda prompt, _: prompts.append(prompt),
    )
    asked = Question(question_id="", text=question)
    await read(make_tokenizer(agent).document(text), asked, agent=make_agent(agent), turns=turns)
    return prompts


def _recorded(prompt: Prompt, row: Mapping[str, Any]) -> RecordedTurn:
    ended_at = row["finished_at"].timestamp()
    return RecordedTurn(
        prompt=prompt,
        completion_token_ids=row["token_ids"],
        began_at=ended_at - row["engine_seconds"],
        ended_at=ended_at,
    )
