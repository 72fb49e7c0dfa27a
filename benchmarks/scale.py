"""What a corpus costs the driver: seconds and memory by phase, of a first run and of runs in which nothing changed.

Documents are one line each and the engine answers at once, so that what is measured grows with the corpus and not with
its texts. Each run is a process of its own, which also reads.

With `--replicas`, actors read on Ray, each turn takes a second, and `documents_per_second` is how fast the driver has
them read from the first quarter of the documents to the last one.

With `--read`, all documents are ingested and a sample of them is read, as by `--limit`: so the ingest of millions of
documents, or of their pages, is measured in minutes.

Of a phase, `cpu_seconds` are those of this process. `anonymous_mib` is the most memory that only this process can hold,
without mapped files, which the system takes back when others need the memory; from `/proc`, looked at every 20 ms.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import memagent_batch as ma
from benchmarks.harness import MemoryWatch, copy_tokenizer, simulated_job
from memagent_batch.config.job import JobConfig
from memagent_batch.run.flows import answer
from memagent_batch.run.plan import Plan

flow: Any = answer
"""The flow, whose functions a measured run replaces by timed ones."""
FUNCTIONS = (
    "check",
    "make_plan",
    "begin_run",
    "scan_plan",
    "read_documents",
    "row_changes",
    "write",
    "sum_readings",
    "close_run",
    "close_quiet_run",
)
"""Of the flow: its phases, beside `Plan.pending`. Some run twice."""
FILES_IN_FOLDER = 1000
PAGES = 10
"""Rows of a document of pages."""
GROUP_ROWS = 100_000
"""Rows of a row group of the Parquet file."""
CHUNK_TOKENS = 64
READINGS_IN_FLIGHT = 16
NO_CPUS = 0.01
"""CPUs that Ray sets aside for a replica that only sleeps."""
CHANGED_SECONDS = 2.5
"""Age from which a file's times count; see `documents.listing.UNSURE_SECONDS`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=100_000, help="documents (default: 100000)")
    parser.add_argument("--questions", type=int, default=1, help="questions of each document (default: 1)")
    forms = f"text files, rows of a file, or {PAGES} rows for each document"
    parser.add_argument("--form", choices=("files", "rows", "pages"), default="files", help=forms)
    parser.add_argument("--read", type=int, help="documents that are read (default: all)")
    parser.add_argument("--unchanged", type=int, default=3, help="runs in which nothing changed (default: 3)")
    parser.add_argument("--memory-gib", type=float, default=1.25, help="driver.memory_gib (default: 1.25)")
    parser.add_argument("--replicas", type=int, help="readers on Ray (default: this process reads)")


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
            driver={"memory_gib": arguments.memory_gib},
            input={"order_columns": ["page"]} if arguments.form == "pages" else {},
            limit=arguments.read,
            **_pool(arguments.replicas),
        )
        shape = {name: getattr(arguments, name) for name in ("documents", "questions", "form", "read", "memory_gib")}
        for run in range(1 + arguments.unchanged):
            phases = in_process(_run, job)
            figures = {
                "seconds": round(sum(phase["seconds"] for phase in phases.values()), 1),
                "anonymous_mib": max(phase["anonymous_mib"] for phase in phases.values()),
            }
            if arguments.replicas and not run:
                figures |= {"replicas": arguments.replicas, "documents_per_second": _read_per_second(job)}
            yield {"what": "unchanged" if run else "first", **shape, **figures, "phases": phases}


def in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def _pool(replicas: int | None) -> dict[str, Any]:
    if replicas is None:
        return {"executor": "local"}
    pool = {"replicas": replicas, "readings_in_flight": READINGS_IN_FLIGHT, "cpus_per_replica": NO_CPUS}
    return {"executor": "ray", "pool": pool, "simulated": {"turn_seconds": 1.0}}


def _read_per_second(job: JobConfig) -> float:
    """Documents that ended in a second, after the first quarter of them: then all readers are at work."""
    ended = sorted(ma.dataset(job.output, "answers").to_table(columns=["finished_at"])["finished_at"].to_pylist())
    quarter = len(ended) // 4
    seconds: float = (ended[-1] - ended[quarter]).total_seconds()
    return round((len(ended) - 1 - quarter) / seconds, 1)


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
    pages = PAGES if form == "pages" else 1
    schema = pa.schema([("document_id", pa.string()), ("page", pa.int32()), ("text", pa.string())])
    with pq.ParquetWriter(folder / "documents.parquet", schema) as writer:
        for rows in _pieces(num_documents * pages, GROUP_ROWS):
            columns = [[f"d{row // pages}" for row in rows], [row % pages for row in rows], [*map(_text, rows)]]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=GROUP_ROWS)


class Phases:
    """Seconds and memory of the phases of this process."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, float]] = {}
        self._memory = MemoryWatch()

    @classmethod
    def of_flow(cls) -> "Phases":
        """Has the functions of the flow timed from now on."""
        phases, pending = cls(), Plan.pending
        Plan.pending = phases.timed(lambda *given, **options: [*pending(*given, **options)], name="pending")  # type: ignore[method-assign]
        for name in FUNCTIONS:
            setattr(flow, name, phases.timed(getattr(flow, name), name=name))
        return phases

    def timed(self, phase: Callable[..., Any], *, name: str) -> Callable[..., Any]:
        """The function, as a phase."""

        def run(*arguments: Any, **options: Any) -> Any:
            self._memory.reset()
            began, cpu = time.monotonic(), time.process_time()
            result = phase(*arguments, **options)
            seconds, cpu = time.monotonic() - began, time.process_time() - cpu
            figures = self.figures.setdefault(name, {"seconds": 0.0, "cpu_seconds": 0.0, "anonymous_mib": 0.0})
            figures["seconds"] = round(figures["seconds"] + seconds, 2)
            figures["cpu_seconds"] = round(figures["cpu_seconds"] + cpu, 2)
            figures["anonymous_mib"] = max(figures["anonymous_mib"], round(self._memory.most))
            return result

        return run


def _run(job: JobConfig) -> dict[str, dict[str, float]]:
    phases = Phases.of_flow()
    flow.answer(job)
    return phases.figures
