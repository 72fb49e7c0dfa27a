"""What a corpus costs the driver: seconds and memory by phase, of a first run and of runs in which nothing changed.

Documents are one line each and the engine answers at once, so that what is measured grows with the corpus and not with
its texts. Each run is a process of its own, which also reads.

Of a phase, `anonymous_mib` is the most memory that only this process can hold, without mapped files, which the system
takes back when others need the memory; from `/proc`, looked at every 20 ms.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import anonymous_mib, copy_tokenizer, simulated_job
from memagent_batch.config.job import JobConfig
from memagent_batch.flows import answer
from memagent_batch.runs.plan import Plan

flow: Any = answer
"""The flow, whose functions a measured run replaces by timed ones."""
FUNCTIONS = (
    "check",
    "make_plan",
    "begin_run",
    "scan_plan",
    "last_versions",
    "read_documents",
    "plan_parts",
    "write",
    "write_kept_index",
    "recorded_plan",
    "close_run",
)
"""Of the flow: its phases, beside `Plan.pending`. Some run twice."""
FILES_IN_FOLDER = 1000
GROUP_ROWS = 100_000
"""Rows of a row group of the Parquet file."""
CHUNK_TOKENS = 64
LOOK_SECONDS = 0.02
CHANGED_SECONDS = 2.5
"""Age from which a file's times count; see `documents.listing.UNSURE_SECONDS`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=100_000, help="documents (default: 100000)")
    parser.add_argument("--questions", type=int, default=1, help="questions of each document (default: 1)")
    parser.add_argument("--form", choices=("files", "rows"), default="files", help="text files, or rows of a file")
    parser.add_argument("--unchanged", type=int, default=3, help="runs in which nothing changed (default: 3)")
    parser.add_argument("--memory-gib", type=float, default=2.0, help="driver.memory_gib (default: 2)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        copy_tokenizer(place / "model")
        _write(place, num_documents=arguments.documents, form=arguments.form)
        time.sleep(CHANGED_SECONDS)
        job = simulated_job(
            place,
            chunk_tokens=CHUNK_TOKENS,
            documents=str(place / "documents"),
            ask=tuple(f"What is line {number}?" for number in range(arguments.questions)),
            model=str(place / "model"),
            executor="local",
            driver={"memory_gib": arguments.memory_gib},
        )
        shape = {name: getattr(arguments, name) for name in ("documents", "questions", "form", "memory_gib")}
        for run in range(1 + arguments.unchanged):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                phases = process.submit(_run, job).result()
            figures = {
                "seconds": round(sum(phase["seconds"] for phase in phases.values()), 1),
                "anonymous_mib": max(phase["anonymous_mib"] for phase in phases.values()),
            }
            yield {"what": "unchanged" if run else "first", **shape, **figures, "phases": phases}


def _pieces(count: int, length: int) -> Iterator[range]:
    yield from (range(start, min(start + length, count)) for start in range(0, count, length))


def _text(number: int) -> str:
    return f"Line {number} of the corpus."


def _write(place: Path, *, num_documents: int, form: str) -> None:
    folder = place / "documents"
    folder.mkdir()
    if form == "files":
        for number in range(num_documents):
            below = folder / f"{number // FILES_IN_FOLDER:06}"
            if not number % FILES_IN_FOLDER:
                below.mkdir()
            (below / f"{number}.txt").write_text(_text(number))
        return
    schema = pa.schema([("document_id", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(folder / "documents.parquet", schema) as writer:
        for rows in _pieces(num_documents, GROUP_ROWS):
            columns = [[f"d{number}" for number in rows], [*map(_text, rows)]]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=GROUP_ROWS)


class _Phases:
    """Seconds and memory of the phases of this process."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, float]] = {}
        self._most = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        self._most = max(self._most, round(anonymous_mib()))

    def timed(self, phase: Callable[..., Any], *, name: str) -> Callable[..., Any]:
        """The function, as a phase."""

        def run(*arguments: Any, **options: Any) -> Any:
            self._most, began = 0.0, time.monotonic()
            result = phase(*arguments, **options)
            seconds = time.monotonic() - began
            self._look()
            figures = self.figures.setdefault(name, {"seconds": 0.0, "anonymous_mib": 0.0})
            figures["seconds"] = round(figures["seconds"] + seconds, 2)
            figures["anonymous_mib"] = max(figures["anonymous_mib"], self._most)
            return result

        return run


def _run(job: JobConfig) -> dict[str, dict[str, float]]:
    """The phases of a run."""
    phases = _Phases()
    pending = Plan.pending
    Plan.pending = phases.timed(lambda *given, **options: [*pending(*given, **options)], name="pending")  # type: ignore[method-assign]
    for name in FUNCTIONS:
        setattr(flow, name, phases.timed(getattr(flow, name), name=name))
    flow.answer(job)
    return phases.figures
