"""What guessing tokens ahead is worth: turns a second with and without, one reading at a time, 8 and 64 at once.

The project's own engine and the overwrite policy with the tiny policy's weights; no Ray, no log. Each method has an
engine in a process of its own, all of them running; every round reads new documents with one method after the other.
Ends with exit code 1 if a method writes another token than plain decoding does.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.needle_corpus import document_of, make_tasks
from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.document import Document
from memagent_batch.domain.readings import Question
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.engine import Engine
from memagent_batch.evaluation.needles.tasks import NeedleTask
from memagent_batch.reading.agent import Agent, make_agent
from memagent_batch.reading.read import read
from memagent_batch.reading.turns import ReadingTurns
from memagent_batch.settings import PolicySettings, Settings, Speculation, VllmSettings
from memagent_batch.wiring import make_engine

PLAIN = "none"
LOADS = {1: (2, 16), 8: (16, 8), 64: (128, 6)}
"""Documents and chunks of each, by the readings in flight."""
POLICY = PolicySettings(chunk_tokens=1024, overlap_tokens=64, question_tokens=128, memory_tokens=128, answer_tokens=64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One round of one method."""

    seconds: float
    """From the first turn's start to the last one's end."""
    token_ids: dict[str, list[int]]
    """What was written, by document and turn path."""
    num_guessed: int
    """Tokens that were guessed."""
    num_accepted: int
    """Of these, the ones that the model would have written."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="rounds of each (default: 3)")
    options.add_argument("--methods", nargs="+", default=["ngram"], choices=["ngram", "suffix"], help="what to compare")
    options.add_argument("--loads", nargs="+", type=int, default=list(LOADS), choices=list(LOADS), help="in flight")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    known = options.parse_args()
    identical = True
    with ExitStack() as engines:
        methods = {name: engines.enter_context(_started(name)) for name in (PLAIN, *known.methods)}
        wait([engine.submit(_begun) for engine in methods.values()])
        for in_flight in known.loads:
            rounds = [_round(methods, in_flight=in_flight, seed=seed) for seed in range(known.runs)]
            for name in methods:
                figures = _figures(name, rounds)
                identical = identical and figures["identical"]
                print(json.dumps({"benchmark": "speculation", "in_flight": in_flight, **figures}), flush=True)
                if not known.json and name != PLAIN:
                    print(f"{name}, {in_flight} in flight: {figures['gain_median']:.2f} times as fast", flush=True)
        wait([engine.submit(_end) for engine in methods.values()])
    sys.exit(0 if identical else 1)


def _started(method: str) -> ProcessPoolExecutor:
    """One process with an engine."""
    return ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(method,)
    )


def _round(methods: dict[str, ProcessPoolExecutor], *, in_flight: int, seed: int) -> dict[str, Reading]:
    """The same new documents with each method in turn; who begins changes from round to round."""
    documents, chunks = LOADS[in_flight]
    tasks = make_tasks(documents, num_tokens=int((chunks - 0.5) * POLICY.chunk_tokens), seed=1000 * in_flight + seed)
    names = list(methods) if seed % 2 == 0 else list(reversed(methods))
    readings = {name: methods[name].submit(_read, tasks, in_flight).result() for name in names}
    return {name: readings[name] for name in methods}


def _figures(name: str, rounds: Sequence[dict[str, Reading]]) -> dict[str, Any]:
    rates = [len(readings[name].token_ids) / readings[name].seconds for readings in rounds]
    gains = [readings[PLAIN].seconds / readings[name].seconds for readings in rounds]
    guessed = sum(readings[name].num_guessed for readings in rounds)
    accepted = sum(readings[name].num_accepted for readings in rounds)
    return {
        "method": name,
        "turns": len(rounds[0][name].token_ids),
        "runs": len(rounds),
        "turns_per_second_median": round(statistics.median(rates), 2),
        "turns_per_second_range": [round(min(rates), 2), round(max(rates), 2)],
        "gain_median": round(statistics.median(gains), 3),
        "gain_range": [round(min(gains), 3), round(max(gains), 3)],
        "guessed_tokens": guessed,
        "accepted_share": round(accepted / guessed, 3) if guessed else None,
        "identical": all(readings[name].token_ids == readings[PLAIN].token_ids for readings in rounds),
    }


_HERE: dict[str, Any] = {}
"""What an engine's process keeps between rounds: its event loop and its engine."""


def _settings(method: str) -> Settings:
    engine_args: dict[str, Any] = {"disable_log_stats": False}
    if method == "suffix":
        engine_args["speculative_config"] = {"method": "suffix"}
    speculation = Speculation.NGRAM if method == "ngram" else Speculation.NONE
    vllm = VllmSettings(cpu_kv_cache_gib=1, max_num_seqs=64, speculation=speculation, engine_args=engine_args)
    return Settings(documents="documents", ask=("Who?",), output="run", window_tokens=2048, policy=POLICY, vllm=vllm)


def _begin(method: str) -> None:
    """Starts the engine of this process."""
    runner, engine = asyncio.Runner(), make_engine(_settings(method))
    runner.run(engine.start())
    _HERE.update(runner=runner, engine=engine, settings=_settings(method))


def _end() -> None:
    """Stops the engine, without which its process would not end."""
    _HERE["runner"].run(_HERE["engine"].stop())
    _HERE["runner"].close()


def _begun() -> None:
    """Returns when this process has started its engine: the first task of a pool waits for that."""


def _read(tasks: Sequence[NeedleTask], in_flight: int) -> Reading:
    """Reads the documents in this process."""
    settings: Settings = _HERE["settings"]
    documents = [(document_of(task.document, settings), task) for task in tasks]
    before = _guesses()
    token_ids: dict[str, list[int]] = {}
    began = time.monotonic()
    _HERE["runner"].run(_read_all(_HERE["engine"], settings, documents, in_flight, token_ids))
    seconds = time.monotonic() - began
    guessed, accepted = (after - first for after, first in zip(_guesses(), before, strict=True))
    return Reading(seconds=seconds, token_ids=token_ids, num_guessed=guessed, num_accepted=accepted)


async def _read_all(
    engine: Engine,
    settings: Settings,
    documents: Sequence[tuple[Document, NeedleTask]],
    in_flight: int,
    token_ids: dict[str, list[int]],
) -> None:
    slots, agent = asyncio.Semaphore(in_flight), make_agent(settings)
    await asyncio.gather(
        *[
            _read_one(document, task, agent, slots, _turns(engine, partial(_keep, token_ids, number)))
            for number, (document, task) in enumerate(documents)
        ]
    )


def _turns(engine: Engine, observe: Callable[[Prompt, Completion], None]) -> ReadingTurns:
    address = ReadingAddress(document_hash="", question_hash="", sample=0, reader_fingerprint="")
    return ReadingTurns(engine=engine, address=address, seed=0, observe=observe)


async def _read_one(
    document: Document, task: NeedleTask, agent: Agent, slots: asyncio.Semaphore, turns: ReadingTurns
) -> None:
    async with slots:
        await read(document, Question(question_id="q", text=task.question), agent=agent, turns=turns)


def _keep(token_ids: dict[str, list[int]], number: int, prompt: Prompt, completion: Completion) -> None:
    token_ids[f"{number}/{prompt.path}"] = list(completion.token_ids)


def _guesses() -> tuple[int, int]:
    """Tokens guessed and accepted since the engine's start, as vLLM counts them."""
    from vllm.v1.metrics.reader import Counter, get_metrics_snapshot

    counts = {metric.name: metric.value for metric in get_metrics_snapshot() if isinstance(metric, Counter)}
    return (
        counts.get("vllm:spec_decode_num_draft_tokens", 0),
        counts.get("vllm:spec_decode_num_accepted_tokens", 0),
    )


if __name__ == "__main__":
    main()
