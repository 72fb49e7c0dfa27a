"""The reading stage of the real job with the simulated engine, timed from its first reading's start to the last end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import PolicyConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.executors.executor import make_executor
from memagent_batch.flows.answer import read_documents
from memagent_batch.flows.plan import make_plan
from memagent_batch.log.index import TurnIndex
from memagent_batch.log.writer import OUTCOMES_FOLDER
from memagent_batch.ray_data.progress.progress import Progress
from memagent_batch.runs.output_place import claim_output
from memagent_batch.runs.run import begin_run
from memagent_batch.wiring import identify_reader, make_output, make_tokenizer

CHUNK_TOKENS = 64
SENTENCE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingTime:
    """Times of a reading stage, from the log."""

    seconds: float
    """From the first reading's start to the last one's end."""
    num_readings: int
    """Readings, all of them ok."""
    num_turns: int
    """Turns of all of them."""
    begun: list[float]
    """When each reading began, seconds after the first one, ascending."""
    inside: float
    """Seconds that readings took, all added up."""


def simulated_settings(place: Path, *, chunk_tokens: int = CHUNK_TOKENS, **knobs: Any) -> JobConfig:
    """Settings of a run over `place/documents.parquet`, with small prompts, so that the work is the engine's sleep."""
    policy = PolicyConfig(chunk_tokens=chunk_tokens, question_tokens=64, memory_tokens=64, answer_tokens=64)
    given: dict[str, Any] = {
        "documents": str(place / "documents.parquet"),
        "ask": ("What colour is the sky?",),
        "output": str(place / "run"),
        "engine": "simulated",
        "window_tokens": chunk_tokens + 1024,
        "policy": policy,
        "executor": "ray",
    }
    return job_of(**given | knobs)


def write_corpus(job: JobConfig, chunks: list[int]) -> None:
    """Writes a document of each number of chunks."""
    tokens = len(make_tokenizer(job.agent).encode(SENTENCE * 100)) / 100
    size = job.agent.policy.chunk_tokens
    rows = [
        {"document_id": f"d{number}", "text": f"{number} {SENTENCE * int((count - 0.5) * size / tokens)}"}
        for number, count in enumerate(chunks)
    ]
    pq.write_table(pa.Table.from_pylist(rows), job.documents[0])


def time_reading(
    job: JobConfig, *, arrange: Callable[[list[pa.Table]], list[pa.Table]] = lambda bundles: bundles
) -> ReadingTime:
    """Reads the documents into a new output, in the plan's order or as `arrange` changes it."""
    output, reader = make_output(job), identify_reader(job.agent)
    claim_output(output, job)
    executor = make_executor(job.executor)
    plan = make_plan(job, executor=executor)
    run = begin_run(output, job, reader=reader, plan=plan)
    progress = Progress(run_id=run.run_id, asked=run.asked, model=job.agent.model, policy=job.agent.policy.kind)
    progress.begin()
    bundles = list(plan.pending(TurnIndex(reader_fingerprint=reader.fingerprint), retry_failed=False))
    read_documents(arrange(bundles), run=run, executor=executor, progress=progress)
    progress.close()
    rows: dict[str, list[Any]] = pq.read_table(Path(job.output) / OUTCOMES_FOLDER).to_pydict()
    if len(rows["status"]) != plan.num_readings or set(rows["status"]) != {"ok"}:
        raise RuntimeError(f"{plan.num_readings} readings were requested, the log holds {len(rows['status'])}")
    first = min(rows["started_at"])
    begun = [(started - first).total_seconds() for started in rows["started_at"]]
    ended = [(finished - first).total_seconds() for finished in rows["finished_at"]]
    return ReadingTime(
        seconds=max(ended),
        num_readings=len(rows["status"]),
        num_turns=sum(rows["num_turns"]),
        begun=sorted(begun),
        inside=sum(ended) - sum(begun),
    )
