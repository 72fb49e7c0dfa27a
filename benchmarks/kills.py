"""`kill -9` of driver, actor and engine at random moments: what is lost, doubled or repeated, and how long it takes.

The real job with real vLLM. Each fault strikes one output five times: the driver's command is given again after each
kill; an actor or an engine is replaced within the run. What comes out is compared with a run that was left alone.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.kill_report import FaultReport, Kill, Results, make_report, most_within, read_results
from benchmarks.killed_job import GONE_SECONDS, KilledJob, Role
from memagent_batch.engines.tokenizer import load_tokenizer
from memagent_batch.evaluation.needles.tasks import Haystack, make_task
from memagent_batch.wiring import TINY_MODEL

CHUNKS = (1, 2, *[24] * 10)
"""Chunks of each document, about."""
CHUNK_TOKENS = 192
MEMORY_TOKENS = 64
READINGS_IN_FLIGHT = 3
"""Few, so that a small run lasts long enough to be killed five times."""
FLUSH_SECONDS = 1.0
WRITE_SECONDS = 0.5
"""Longest time that a flush itself takes: turns that end in it wait for the next one."""

READING_TURNS = (15, 50)
"""Fewest and most model calls before a kill in mid-reading."""


class Moment(StrEnum):
    """When a kill strikes; a random delay comes on top."""

    STARTING = "starting"
    """The process to kill is there, and nothing is ready."""
    ENGINE_STARTING = "engine starting"
    """The engine's process is there, and loads vLLM and the model."""
    FIRST_TURNS = "first turns"
    """Turns have begun, the first flush is not over."""
    READING = "reading"
    """In mid-reading, after a random number of turns."""
    ENDING = "ending"
    """Every reading has ended: the tables are begun or half written."""


MOMENTS = {
    Role.DRIVER: (
        Moment.STARTING,
        Moment.ENGINE_STARTING,
        Moment.FIRST_TURNS,
        Moment.READING,
        Moment.ENDING,
    ),
    Role.ACTOR: (Moment.READING, Moment.STARTING, Moment.FIRST_TURNS, Moment.READING, Moment.READING),
    Role.ENGINE: (Moment.READING, Moment.STARTING, Moment.FIRST_TURNS, Moment.READING, Moment.READING),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What is read."""

    arguments: tuple[str, ...]
    """Arguments of `memagent answer`, all but the output."""
    asked: int
    """Readings."""
    unreadable: int
    """Of these, readings of a document without text: they fail without a turn."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default=str(TINY_MODEL), help="model folder (default: the shipped policy)")
    options.add_argument("--seed", type=int, default=0, help="seed of the random moments (default: 0)")
    options.add_argument("--faults", nargs="+", default=list(Role), help="what to kill (default: driver actor engine)")
    known = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = make_corpus(Path(folder), model=known.model)
        reference = run_undisturbed(corpus, output=Path(folder) / "reference")
        for fault in map(Role, known.faults):
            report = kill_at_moments(
                fault, corpus, reference=reference, output=Path(folder) / fault, rng=random.Random(known.seed)
            )
            print(json.dumps({"benchmark": "kills", **asdict(report)}), flush=True)


def make_corpus(folder: Path, *, model: str) -> Corpus:
    """Documents of one to some twenty chunks, one without text, two questions for each."""
    rng = random.Random(0)
    tokenizer = load_tokenizer(model)
    tasks = [
        make_task(
            rng,
            length=num_chunks * CHUNK_TOKENS - 100,
            length_of=lambda text: len(tokenizer.encode(text)),
            haystack=Haystack.MIXED,
        )
        for num_chunks in CHUNKS
    ]
    names = [f"document-{number:02d}" for number in range(len(tasks))]
    documents = {"document_id": [*names, "empty"], "text": [*(task.document for task in tasks), None]}
    pq.write_table(pa.table(documents), folder / "documents.parquet", row_group_size=4)
    bound = [("own", name, task.question) for name, task in zip(names, tasks, strict=True)]
    asked = [*bound, ("shared", None, "What is the document about?")]
    questions = dict(zip(("question_id", "document_id", "question"), map(list, zip(*asked, strict=True)), strict=True))
    pq.write_table(pa.table(questions), folder / "questions.parquet")
    arguments = (
        *("--documents", str(folder / "documents.parquet"), "--questions", str(folder / "questions.parquet")),
        *("--model", model, "--window-tokens", "1024", "--policy.chunk-tokens", str(CHUNK_TOKENS)),
        *("--policy.question-tokens", "64", "--policy.memory-tokens", str(MEMORY_TOKENS)),
        *("--policy.answer-tokens", str(MEMORY_TOKENS), "--pool.readings-in-flight", str(READINGS_IN_FLIGHT)),
        *("--log.flush-seconds", str(FLUSH_SECONDS), "--vllm.cpu-kv-cache-gib", "1", "--vllm.dtype", "float32"),
        *("--vllm.engine-args", json.dumps({"enable_log_requests": True})),
    )
    return Corpus(arguments=arguments, asked=2 * len(tasks) + 1, unreadable=1)


def run_undisturbed(corpus: Corpus, *, output: Path) -> Results:
    """The results of a run that is left alone."""
    with _job(corpus, output=output) as job:
        job.start()
        if job.finish():
            raise RuntimeError(f"the undisturbed run failed: {job.last_words()}")
    return read_results(output)


def kill_at_moments(
    fault: Role,
    corpus: Corpus,
    *,
    reference: Results,
    output: Path,
    rng: random.Random,
    moments: Sequence[Moment] | None = None,
) -> FaultReport:
    """Runs the job and strikes at each moment, by default those of `MOMENTS`; then lets it finish."""
    moments = moments or MOMENTS[fault]
    kills: list[Kill] = []
    left: list[str] = []
    with _job(corpus, output=output) as job:
        job.start()
        for moment in moments:
            victim = _await(moment, job, fault=fault, readings=corpus.asked - corpus.unreadable, rng=rng)
            at = time.time()
            seconds, outlived = job.kill(fault, victim, patience=GONE_SECONDS)
            kills.append(Kill(moment=moment, at=at, seconds_to_end=seconds))
            left.extend(outlived)
            if fault == Role.DRIVER:
                job.start()
        if job.finish():
            raise RuntimeError(f"the run did not go on after its {fault} was killed: {job.last_words()}")
        _, outlived = job.wait_until_gone(patience=GONE_SECONDS)
        results = read_results(output)
        return make_report(
            results,
            reference=reference,
            fault=fault,
            kills=kills,
            num_calls=job.num_calls(),
            calls_bound=_calls_bound(fault, reference, results, moments=moments),
            processes_left=[*left, *outlived],
        )


def _calls_bound(fault: Role, *runs: Results, moments: Sequence[Moment]) -> int:
    """Calls that the kills may cost: those under way, and those that ended since the last flush.

    An actor whose engine dies flushes its log before it ends, so that an engine costs no turn that had ended.
    """
    num_kills = sum(moment in (Moment.FIRST_TURNS, Moment.READING) for moment in moments)
    unflushed = max(most_within(run.finished_at, seconds=FLUSH_SECONDS + WRITE_SECONDS) for run in runs)
    return num_kills * (READINGS_IN_FLIGHT + (0 if fault == Role.ENGINE else unflushed))


def _job(corpus: Corpus, *, output: Path) -> KilledJob:
    return KilledJob([*corpus.arguments, "--output", str(output)], output=output)


def _await(moment: Moment, job: KilledJob, *, fault: Role, readings: int, rng: random.Random) -> psutil.Process:
    """Waits for the moment; returns the process to kill."""
    num_calls = job.num_calls()
    match moment:
        case Moment.STARTING:
            job.wait_until(lambda: job.find(fault) is not None)
            time.sleep(rng.uniform(1, 6))
        case Moment.ENGINE_STARTING:
            job.wait_until(lambda: job.find(Role.ENGINE) is not None)
            time.sleep(rng.uniform(0, 5))
        case Moment.FIRST_TURNS:
            job.wait_until(lambda: job.num_calls() > num_calls)
            time.sleep(rng.uniform(0, 0.8 * FLUSH_SECONDS))
        case Moment.READING:
            num_calls += rng.randint(*READING_TURNS)
            job.wait_until(lambda: job.num_calls() > num_calls)
        case Moment.ENDING:
            job.wait_until(lambda: job.num_ended() >= readings)
            time.sleep(rng.uniform(0, 0.5))
    victim = job.find(fault)
    if victim is None:
        raise RuntimeError(f"{moment}: there is no {fault} to kill: {job.last_words()}")
    return victim


if __name__ == "__main__":
    main()
