"""What a corpus costs the driver: seconds and peak memory by phase, of a first run and of one in which nothing changed.

The memory of a phase is the peak of the process by the end of it.

Documents are one line each and the engine answers at once, so that what is measured grows with the corpus and not with
its texts. Each run is a process of its own. With `--executor local` the driver also reads; its memory has both.
"""

import argparse
import multiprocessing
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import copy_tokenizer, simulated_job
from memagent_batch.config.job import JobConfig
from memagent_batch.flows import answer as flow

PHASES = (
    "check",
    "make_plan",
    "begin_run",
    "scan_plan",
    "read_documents",
    "write",
    "write_kept_index",
    "recorded_plan",
    "close_run",
)
"""Functions of the flow, in the order in which it calls them; `scan_plan` and `recorded_plan` may run twice."""
FILES_IN_FOLDER = 1000
GROUP_ROWS = 100_000
"""Rows of a row group of the Parquet file."""
CHUNK_TOKENS = 64
PEAK_LINE = re.compile(r"VmHWM:\s+(\d+) kB")
"""Of `/proc/PID/status`: the largest resident memory of a process since it began."""
CHANGED_SECONDS = 2.5
"""Age from which a file's times count; see `documents.listing.UNSURE_SECONDS`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=100_000, help="documents (default: 100000)")
    parser.add_argument("--questions", type=int, default=1, help="questions of each document (default: 1)")
    parser.add_argument("--form", choices=("files", "rows"), default="files", help="text files, or rows of a file")
    parser.add_argument("--executor", choices=("local", "ray"), default="local", help="what reads (default: local)")
    parser.add_argument("--unchanged", type=int, default=3, help="runs in which nothing changed (default: 3)")


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
            executor=arguments.executor,
        )
        shape = {"documents": arguments.documents, "questions": arguments.questions, "form": arguments.form}
        for run in range(1 + arguments.unchanged):
            phases = _in_process(job)
            seconds = round(sum(phase["seconds"] for phase in phases.values()), 1)
            peak = max(phase["peak_mib"] for phase in phases.values())
            kind = "unchanged" if run else "first"
            yield {"what": kind, **shape, "seconds": seconds, "peak_mib": peak, "phases": phases}


def _write(place: Path, *, num_documents: int, form: str) -> None:
    folder = place / "documents"
    folder.mkdir()
    texts = (f"Line {number} of the corpus." for number in range(num_documents))
    if form == "files":
        for number, text in enumerate(texts):
            below = folder / f"{number // FILES_IN_FOLDER:06}"
            if not number % FILES_IN_FOLDER:
                below.mkdir()
            (below / f"{number}.txt").write_text(text)
        return
    table = pa.table({"document_id": [f"d{number}" for number in range(num_documents)], "text": [*texts]})
    pq.write_table(table, folder / "documents.parquet", row_group_size=GROUP_ROWS)


def _in_process(job: JobConfig) -> dict[str, dict[str, float]]:
    """One run in a new process: seconds and peak memory of its phases."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(job, sender))
    process.start()
    sender.close()
    phases: dict[str, dict[str, float]] = receiver.recv()  # EOFError if the run has failed; it says why
    process.join()
    return phases


def _run(job: JobConfig, sender: Any) -> None:
    phases: dict[str, dict[str, float]] = {}
    for name in PHASES:
        setattr(flow, name, _timed(getattr(flow, name), phases.setdefault(name, {"seconds": 0.0, "peak_mib": 0})))
    flow.answer(job)
    sender.send(phases)


def _timed(phase: Callable[..., Any], figures: dict[str, float]) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        began = time.monotonic()
        result = phase(*arguments, **options)
        figures["seconds"] = round(figures["seconds"] + time.monotonic() - began, 2)
        figures["peak_mib"] = int(PEAK_LINE.findall(Path("/proc/self/status").read_text())[0]) // 1024
        return result

    return run
