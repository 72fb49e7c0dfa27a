"""Cost of collecting: wall time of `memagent collect` over that of `memagent answer` of the same turns.

Whole runs in one Ray on this machine, each with an engine of its own (real vLLM, the tiny policy), over the same
documents and questions, the same samples at temperature 1 with the same seeds. Three kinds alternate: `answer` without
log-probabilities, `answer` with them, and `collect`, which keeps them too and writes the rollouts table. `seconds` is
the whole run; `reading_seconds` leaves out what comes before the first reading, which is mostly the engine's start.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.engines.tokenizer import load_tokenizer
from memagent_batch.evaluation.needles.tasks import make_task
from memagent_batch.ray_data.session import ray_session
from memagent_batch.sections import RolloutSettings
from memagent_batch.settings import PolicySettings, SamplingSettings, Settings, VllmSettings
from memagent_batch.wiring import TINY_MODEL
from pipelines.answer import answer
from pipelines.collect import collect

KINDS = ("answer", "answer_logprobs", "collect")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=12, help="documents, one question each (default: 12)")
    options.add_argument("--tokens", type=int, default=6_000, help="tokens of a document (default: 6,000)")
    options.add_argument("--samples", type=int, default=8, help="samples of each question (default: 8)")
    options.add_argument("--runs", type=int, default=5, help="runs of each kind (default: 5)")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    known = options.parse_args()
    took: dict[str, list[Taken]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder, ray_session():
        place = Path(folder)
        _corpus(place, num_documents=known.documents, num_tokens=known.tokens)
        for run in range(known.runs):
            for kind in KINDS:
                settings = _settings(place, place / f"{kind}-{run}", kind=kind, samples=known.samples)
                took[kind].append(_run(settings, kind=kind))
    for kind, runs in took.items():
        print(json.dumps({"benchmark": "collecting", "what": kind, "runs": known.runs, **_figures(runs)}))
    if not known.json:
        print(f"collecting over answering with log-probabilities: {_more(took, 'collect', 'answer_logprobs')}")
        print(f"log-probabilities over none: {_more(took, 'answer_logprobs', 'answer')}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a run took."""

    seconds: float
    """The whole run."""
    reading_seconds: float
    """From the first reading's start to the end of the run."""
    num_turns: int
    """Turns that were read."""


def _figures(runs: Sequence[Taken]) -> dict[str, Any]:
    figures: dict[str, Any] = {"turns": sorted({run.num_turns for run in runs})}
    for name in ("seconds", "reading_seconds"):
        values = [getattr(run, name) for run in runs]
        figures[f"{name}_median"] = round(statistics.median(values), 2)
        figures[f"{name}_range"] = [round(min(values), 2), round(max(values), 2)]
    return figures


def _more(took: dict[str, list[Taken]], kind: str, over: str) -> str:
    parts = []
    for name in ("seconds", "reading_seconds"):
        above, below = (statistics.median(getattr(run, name) for run in took[one]) for one in (kind, over))
        parts.append(f"{above / below - 1:+.1%} of {name}")
    return ", ".join(parts)


def _settings(place: Path, output: Path, *, kind: str, samples: int) -> Settings:
    sampling = SamplingSettings(temperature=1.0, samples=samples, logprobs=kind == "answer_logprobs")
    return Settings(
        documents=str(place / "documents.parquet"),
        questions=str(place / "questions.parquet"),
        output=str(output),
        window_tokens=2048,
        policy=PolicySettings(
            chunk_tokens=1024, overlap_tokens=64, question_tokens=128, memory_tokens=128, answer_tokens=64
        ),
        sampling=SamplingSettings() if kind == "collect" else sampling,
        rollouts=RolloutSettings(group_size=samples),
        vllm=VllmSettings(cpu_kv_cache_gib=1),
    )


def _corpus(place: Path, *, num_documents: int, num_tokens: int) -> None:
    tokenizer = load_tokenizer(str(TINY_MODEL))
    texts, questions = [], []
    for number in range(num_documents):
        task = make_task(
            random.Random(number),
            length=num_tokens,
            length_of=lambda text: len(tokenizer.encode(text)),
            num_distractors=3,
        )
        texts.append({"document_id": f"d{number}", "text": task.document})
        questions.append({"document_id": f"d{number}", "question": task.question, "references": [task.answer]})
    pq.write_table(pa.Table.from_pylist(texts), place / "documents.parquet")
    pq.write_table(pa.Table.from_pylist(questions), place / "questions.parquet")


def _run(settings: Settings, *, kind: str) -> Taken:
    began, began_at = time.monotonic(), datetime.now(UTC)
    if kind == "collect":
        collect(settings)
    else:
        answer(settings)
    seconds = time.monotonic() - began
    rows = pq.read_table(f"{settings.output}/answers", columns=["num_turns", "status", "started_at"]).to_pylist()
    failed = sum(row["status"] != "ok" for row in rows)
    if failed:
        raise RuntimeError(f"{kind}: {failed} of {len(rows)} readings failed")
    before = (min(row["started_at"] for row in rows) - began_at).total_seconds()
    return Taken(seconds=seconds, reading_seconds=seconds - before, num_turns=sum(row["num_turns"] for row in rows))


if __name__ == "__main__":
    main()
