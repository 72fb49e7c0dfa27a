"""How much of vLLM's own speed reaches the readings: turns a second of the real job over those of vLLM alone.

The job is the real one: executor, reader, turn log, tables. vLLM alone gets the same prompts, rebuilt from the job's
log, by its own batch call: no reading loop, no log, and no wait between turns that the policy's order does not ask for.
`overwrite` and `questions` give it all prompts at once, in the order in which the job sent them; `parallel` gives it
those of a round of reads, or of a level of merges, at once. Both sides have the same engine arguments, at most as many
turns in one engine step, and an engine of their own that has just started, with an empty prefix cache.

Turns a second from the first prompt to the last token, without starts. Rounds alternate which side is first. With
`--pin` the two do not compete for cores: what the job loses then, it loses by letting the engine wait.
"""

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import engine_of, engine_on_own_core, spread
from memagent_batch.apps.evaluation.haystacks import TokenMeter, prose
from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.config.job import ExecutorKind, JobConfig, PoolConfig
from memagent_batch.data.store.turn_log.files import TURNS_FOLDER, list_folder
from memagent_batch.data.store.turn_log.index import reading_key
from memagent_batch.data.store.turn_log.rows import TurnRow
from memagent_batch.data.store.turn_log.turns import LoggedTurns, read_turns
from memagent_batch.loop.addresses import ReadingAddress, text_hash
from memagent_batch.loop.engines.vllm import orphan_guard
from memagent_batch.run.budgets import fit_budgets_to_window
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.reading.agent import make_agent
from memagent_batch.run.reading.documents import with_breaks
from memagent_batch.run.reading.read import ReadingTurns, ReplayOnly, read
from memagent_batch.run.wiring import identify_reader, make_output, make_tokenizer, with_prompt_order
from memagent_batch.types import Prompt, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is read, and how."""

    name: str
    policy: str
    num_documents: int
    num_chunks: int
    """Of each document; all are of one length, so that no long one is left over at the end."""
    num_questions: int = 1
    """Of each document."""


CASES = (
    Case(name="overwrite", policy="overwrite", num_documents=8, num_chunks=16),
    Case(name="parallel", policy="parallel", num_documents=1, num_chunks=64),
    Case(name="questions", policy="overwrite", num_documents=4, num_chunks=4, num_questions=16),
)
POLICY = PolicyConfig(chunk_tokens=512, question_tokens=64, memory_tokens=32, answer_tokens=16, rounds=2)
"""Small budgets: with 135 M parameters on two cores, a side of a round takes some two minutes."""
SUBJECTS = (
    *("the morning", "the river", "the road", "a letter", "the price", "a window", "the harbour", "a machine"),
    *("the winter", "a promise", "the children", "an island", "the market", "a bridge", "the night", "a garden"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """A turn of the run."""

    prompt: Prompt
    row: TurnRow


def add_options(parser: argparse.ArgumentParser) -> None:
    names = [case.name for case in CASES]
    parser.add_argument("--model", default="tiny", help="name or folder, such as smollm2-135m (default: tiny)")
    parser.add_argument("--cases", nargs="+", choices=names, default=names, help="(default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each case (default: 3)")
    parser.add_argument("--times", type=int, default=1, help="documents of each case times this (default: 1)")
    parser.add_argument("--in-flight", type=int, default=64, help="most turns in flight, and in a step (default: 64)")
    parser.add_argument("--executor", type=ExecutorKind, default=ExecutorKind.RAY, help="(default: ray)")
    parser.add_argument("--eager", action="store_true", help="run the model without compiling it, on both sides")
    parser.add_argument(
        "--pin", action="store_true", help="keep the engine's process on one core, and everything else on another"
    )
    parser.add_argument("--engine-args", type=json.loads, default={}, help="vllm.engine_args of both sides, JSON")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    shown = ("model", "executor", "in_flight", "eager", "pin", "engine_args")
    with engine_on_own_core() if arguments.pin else contextlib.nullcontext():
        for case in CASES:
            if case.name in arguments.cases:
                with tempfile.TemporaryDirectory() as folder:
                    figures = _compare(_settings(case, Path(folder), arguments), rounds=arguments.rounds)
                yield {"case": case.name, **{name: getattr(arguments, name) for name in shown}, **figures}


def _settings(case: Case, folder: Path, arguments: argparse.Namespace) -> JobConfig:
    num_documents = case.num_documents * arguments.times
    num_side_by_side = case.num_chunks if case.policy == "parallel" else 1
    in_flight = min(arguments.in_flight, num_documents * case.num_questions * num_side_by_side)
    job = job_of(
        documents=str(folder / "documents.parquet"),
        ask=tuple(f"What does the text say of {subject}?" for subject in SUBJECTS[: case.num_questions]),
        output=str(folder / "run"),
        model=arguments.model,
        window_tokens=POLICY.chunk_tokens + 1024,
        policy=POLICY.model_copy(update={"kind": case.policy}),
        vllm=VllmConfig(enforce_eager=arguments.eager, max_num_seqs=in_flight, engine_args=arguments.engine_args),
        pool=PoolConfig(readings_in_flight=in_flight, turns_in_flight=in_flight),
        executor=arguments.executor,
    )
    _write_documents(job, num_documents=num_documents, num_chunks=case.num_chunks)
    return job


def _write_documents(job: JobConfig, *, num_documents: int, num_chunks: int) -> None:
    """Sentences in random order: the prefix cache must find no chunk that another one begins like."""
    meter = TokenMeter(make_tokenizer(job.agent))
    num_tokens = int((num_chunks - 0.5) * POLICY.chunk_tokens)
    sentences = [sentence for paragraph in prose() for sentence in paragraph]
    texts = [
        meter.cut(" ".join(random.Random(number).choices(sentences, k=num_tokens // 4)), num_tokens)
        for number in range(num_documents)
    ]
    rows = [{"document_id": f"d{number:04d}", "text": text} for number, text in enumerate(texts)]
    pq.write_table(pa.Table.from_pylist(rows), job.documents[0])


def _compare(config: JobConfig, *, rounds: int) -> dict[str, Any]:
    """Rounds of the job and of vLLM alone; each round's share is of its own two sides."""
    jobs, alone, same, cached_alone = [], [], [], []
    turns: list[RecordedTurn] = []
    for number in range(rounds):
        run = config.model_copy(update={"output": f"{config.output}-{number}"})
        job_first = number % 2 == 0
        if job_first:
            answer(run)
            turns = turns or _recorded_turns(run)
        seconds, num_same, cached = _vllm_alone(config, turns)
        if not job_first:
            answer(run)
        jobs.append(_job_speed(run))
        alone.append(len(turns) / seconds)
        same.append(num_same / len(turns))
        cached_alone.append(cached)
    shares = [job / vllm for job, vllm in zip(jobs, alone, strict=True)]
    num_prompt_tokens = sum(len(turn.prompt.token_ids) for turn in turns)
    num_cached = sum(turn.row["num_cached_prompt_tokens"] for turn in turns)
    return {
        "turns": len(turns),
        "rounds": rounds,
        **spread("share", shares, digits=3),
        **spread("job_turns_per_second", jobs, digits=2),
        **spread("vllm_turns_per_second", alone, digits=2),
        "same_completions_share": round(statistics.median(same), 3),
        "prompt_tokens": num_prompt_tokens,
        "computed_prompt_share": round(1 - num_cached / num_prompt_tokens, 3),
        "computed_prompt_share_alone": round(1 - statistics.median(cached_alone) / num_prompt_tokens, 3),
        "completion_tokens": sum(len(turn.row["token_ids"]) for turn in turns),
    }


def _job_speed(job: JobConfig) -> float:
    """Turns a second of a run, from the first prompt to the last token."""
    rows = pq.read_table(f"{job.output}/log/turns", columns=["finished_at", "engine_seconds", "is_copy"]).to_pylist()
    rows = [row for row in rows if not row["is_copy"]]
    ends: list[float] = [row["finished_at"].timestamp() for row in rows]
    began: float = min(end - row["engine_seconds"] for end, row in zip(ends, rows, strict=True))
    return len(rows) / (max(ends) - began)


def _vllm_alone(job: JobConfig, turns: Sequence[RecordedTurn]) -> tuple[float, int, int]:
    """Seconds of vLLM's batch calls, how many completions are the job's, token for token, and cached prompt tokens."""
    from vllm import LLM, SamplingParams
    from vllm.inputs import tokens_input

    agent = job.agent
    arguments, environment = engine_of(agent)
    failure_file = Path(f"{job.output}-failure.txt")
    with orphan_guard.environment({**environment} | orphan_guard.guarded(failure_file)):
        llm = LLM(**arguments)
    num_same, num_cached, seconds = 0, 0, 0.0
    try:
        for batch in _batches(turns, is_parallel=job.agent.policy.kind == "parallel"):
            prompts = [tokens_input(list(turn.prompt.token_ids)) for turn in batch]
            budgets = [turn.prompt.max_tokens for turn in batch]
            params = [SamplingParams(temperature=0, max_tokens=each, detokenize=False) for each in budgets]
            began = time.monotonic()
            outputs = llm.generate(prompts, params, use_tqdm=False)
            seconds += time.monotonic() - began
            completions = [list(output.outputs[0].token_ids) for output in outputs]
            num_cached += sum(output.num_cached_tokens or 0 for output in outputs)
            num_same += sum(map(list.__eq__, completions, [turn.row["token_ids"] for turn in batch]))
    finally:
        llm.llm_engine.engine_core.shutdown()
    return seconds, num_same, num_cached


def _batches(turns: Sequence[RecordedTurn], *, is_parallel: bool) -> Iterable[Sequence[RecordedTurn]]:
    """Turns that are given to vLLM at once: all; of `parallel` those that don't wait for each other."""
    if not is_parallel:
        return [turns]
    together: dict[str, list[RecordedTurn]] = {}
    for turn in turns:
        together.setdefault(turn.prompt.path.rpartition("/")[0], []).append(turn)
    return together.values()


def _recorded_turns(job: JobConfig) -> list[RecordedTurn]:
    """All turns of a run, in the order of their start: the policy runs again, answered from the turn log."""
    texts = pq.read_table(job.documents[0])["text"].to_pylist()
    questions = [str(each) for each in job.ask]
    agent = fit_budgets_to_window(with_prompt_order(job.agent, num_questions=len(questions)))
    output, reader = make_output(job), identify_reader(agent).fingerprint
    files, hashes = list_folder(output / TURNS_FOLDER), [*map(text_hash, texts)]
    logged = read_turns(output, files, fingerprints=[reader], document_hashes=hashes)[reader]
    turns = []
    for text, question in product(texts, questions):
        address = ReadingAddress(
            document_hash=text_hash(text), question_hash=text_hash(question), sample=0, fingerprint=reader
        )
        turns_of_reading = logged[reading_key(address)]
        prompts = asyncio.run(_asked(agent, text, question, address=address, logged=turns_of_reading))
        rows = turns_of_reading.by_path()
        turns += [RecordedTurn(prompt=prompt, row=rows[prompt.path]) for prompt in prompts]
    if len(turns) != sum(map(len, logged.values())):
        raise RuntimeError(f"{len(turns)} turns were rebuilt, the log holds {sum(map(len, logged.values()))}")
    turns = [turn for turn in turns if not turn.row["is_copy"]]  # of the others the engine was not asked
    return sorted(turns, key=lambda turn: turn.row["finished_at"] - timedelta(seconds=turn.row["engine_seconds"]))


async def _asked(
    agent: AgentConfig, text: str, question: str, *, address: ReadingAddress, logged: LoggedTurns
) -> list[Prompt]:
    prompts: list[Prompt] = []
    turns = ReadingTurns(
        engine=ReplayOnly(),
        address=address,
        seed=0,
        from_log={address.fingerprint: logged},
        observe=lambda prompt, _: prompts.append(prompt),
    )
    asked = Question(question_id="", text=question)
    document = with_breaks(make_tokenizer(agent).document(text), text, agent=agent)
    await read(document, asked, agent=make_agent(agent), turns=turns)
    return prompts
