"""`kill -9` of driver, actor and engine at random moments of a job with real vLLM.

Each strikes one output five times: the driver's command is given again after each kill; an actor or an engine is
replaced within the run. The output is compared with that of a run that was left alone.
"""

import json
import random
import time
from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import psutil

from memagent_batch.store.location import Location
from tests.faults.corpus import Corpus, make_corpus
from tests.faults.killed_job import KilledJob, Role
from tests.faults.results import Results, read_results

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


def make_vllm_corpus(folder: Path) -> Corpus:
    """Documents of one to some twenty chunks, and one without text; two questions for each."""
    return make_corpus(folder, chunks=CHUNKS, chunk_tokens=CHUNK_TOKENS, memory_tokens=MEMORY_TOKENS, unreadable=True)


def run_undisturbed(corpus: Corpus, *, output: Path) -> Results:
    """The results of a run that is left alone."""
    with _job(corpus, output=output) as job:
        job.start()
        assert job.finish() == 0, job.last_words()
    return read_results(Location(uri=str(output)), asked=corpus.num_readings)


def kill_at_moments(
    role: Role,
    corpus: Corpus,
    *,
    reference: Results,
    output: Path,
    rng: random.Random,
) -> None:
    """Runs the job and strikes at each of the `MOMENTS`.

    Requires the rows and counts of the undisturbed run, and no more repeated calls than the kills may cost.
    """
    readings = corpus.num_readings - corpus.num_unreadable
    with _job(corpus, output=output) as job:
        job.start()
        for moment in MOMENTS[role]:
            job.kill(role, _await(moment, job, role=role, readings=readings, rng=rng))
            if role == Role.DRIVER:
                job.start()
        assert job.finish() == 0, job.last_words()
        job.require_gone()
        results = read_results(Location(uri=str(output)), asked=corpus.num_readings)
        assert (results.rows, results.counts) == (reference.rows, reference.counts)
        assert results.counts["failed"] == corpus.num_unreadable
        assert len(results.logged) == len(reference.logged)
        repeated = job.num_calls() - len(results.logged)
        assert repeated <= _calls_bound(role, reference, results)


def _calls_bound(role: Role, *runs: Results) -> int:
    """Calls that the kills may cost: those in flight, and those that ended since the last flush.

    An actor whose engine dies flushes its log before it ends, so that an engine costs no turn that had ended.
    """
    num_kills = sum(moment in (Moment.FIRST_TURNS, Moment.READING) for moment in MOMENTS[role])
    unflushed = max(_most_within(run.finished_at, seconds=FLUSH_SECONDS + WRITE_SECONDS) for run in runs)
    return num_kills * (READINGS_IN_FLIGHT + (0 if role == Role.ENGINE else unflushed))


def _most_within(moments: Sequence[float], *, seconds: float) -> int:
    """The most moments (sorted) that lie within an interval of this length."""
    return max((bisect_right(moments, moment + seconds) - index for index, moment in enumerate(moments)), default=0)


def _job(corpus: Corpus, *, output: Path) -> KilledJob:
    arguments = [
        *(*corpus.arguments(), "--executor", "ray"),
        *("--pool.readings-in-flight", str(READINGS_IN_FLIGHT), "--log.flush-seconds", str(FLUSH_SECONDS)),
        *("--vllm.cpu-kv-cache-gib", "1", "--vllm.dtype", "float32"),
        *("--vllm.engine-args", json.dumps({"enable_log_requests": True}), "--output", str(output)),
    ]
    return KilledJob(arguments, output=output)


def _await(moment: Moment, job: KilledJob, *, role: Role, readings: int, rng: random.Random) -> psutil.Process:
    """Waits for the moment; returns the process to kill."""
    num_calls = job.num_calls()
    match moment:
        case Moment.STARTING:
            job.wait_until(lambda: job.find(role) is not None)
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
    return job.require(role)
