"""The plan at the size of a lake: a million text files, or a million rows with a question each beside its text.

The corpus is written to a temporary folder and goes through the real chain: listed, indexed by Ray Data's tasks, joined
with the questions, bundled for the tokenising tasks, and cut into the parts of the tables. The driver is a process of
its own, so that its peak memory is its own; Ray's workers are not in it. Nothing is read by an engine.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.cli.settings import job_of
from memagent_batch.config.sources import InputConfig
from memagent_batch.flows.plan import make_plan
from memagent_batch.log.index import TurnIndex
from memagent_batch.ray_data.session import ray_session
from memagent_batch.runs.planning.calls import group_documents
from memagent_batch.runs.planning.parts import plan_parts
from memagent_batch.wiring import TINY_MODEL
from tests.faults.peak_memory import peak_mib

FOLDER_FILES = 10_000
"""Files of a folder, as an upload by day or customer leaves them."""
TEXT_WORDS = 300
"""Words of a text: some 2 KB."""
ROW_GROUP_ROWS = 1_048_576
"""What pyarrow writes by default."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, nargs="+", default=[], help="text files, one document each")
    parser.add_argument(
        "--inline", type=int, nargs="+", default=[], help="rows of one Parquet file, each with a question"
    )
    parser.add_argument("--folder", default=None, help="where the corpus is written (default: the system's)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for kind, write, sizes in (("files", _write_files, arguments.files), ("inline", _write_inline, arguments.inline)):
        for size in sizes or ([] if arguments.files or arguments.inline else [10_000]):
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                began = time.monotonic()
                write(Path(folder) / "documents", size)
                written = round(time.monotonic() - began, 1)
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    figures = pool.apply(_plan, (folder, kind))
            yield {"kind": kind, "documents": size, "write_seconds": written, **figures}


def _plan(folder: str, kind: str) -> dict[str, Any]:
    """The driver's part of a run up to the first reading, and the parts of its tables."""
    job = job_of(
        documents=f"{folder}/documents",
        output=f"{folder}/out",
        model=str(TINY_MODEL),
        ask=() if kind == "inline" else ("What is the contract's number?",),
        input=InputConfig(question_column="question" if kind == "inline" else None),
    )
    figures: dict[str, Any] = {}
    empty = TurnIndex(reader_fingerprint="none")
    with ray_session():
        figures["start_mib"] = round(peak_mib())
        with _timed(figures, "plan_seconds"):
            plan = make_plan(job)
        figures["plan_mib"] = round(peak_mib())
        with _timed(figures, "bundle_seconds"):
            bundles = list(group_documents(list(plan.pending(empty, retry_failed=False)), readings_in_flight=256))
        figures |= {"bundles": len(bundles), "readings": plan.num_readings, "bundle_mib": round(peak_mib())}
        with _timed(figures, "parts_seconds"):
            figures["parts"] = sum(1 for _ in plan_parts(plan, empty))
    return {**figures, "peak_mib": round(peak_mib())}


@contextmanager
def _timed(figures: dict[str, Any], name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    figures[name] = round(time.monotonic() - began, 1)


def _write_files(folder: Path, number: int) -> None:
    for first in range(0, number, FOLDER_FILES):
        place = folder / f"{first // FOLDER_FILES:05}"
        place.mkdir(parents=True)
        for index in range(first, min(first + FOLDER_FILES, number)):
            handle = os.open(place / f"contract-{index:08}.txt", os.O_CREAT | os.O_WRONLY)
            os.write(handle, _text(index).encode())
            os.close(handle)


def _write_inline(folder: Path, number: int) -> None:
    folder.mkdir(parents=True)
    schema = pa.schema([(name, pa.string()) for name in ("document_id", "text", "question")])
    with pq.ParquetWriter(folder / "contracts.parquet", schema) as writer:
        for first in range(0, number, ROW_GROUP_ROWS):
            rows = range(first, min(first + ROW_GROUP_ROWS, number))
            columns: tuple[Callable[[int], str], ...] = (_name, _text, _question)
            writer.write_table(pa.table([pa.array(map(make, rows)) for make in columns], schema), ROW_GROUP_ROWS)


def _name(index: int) -> str:
    return f"contract-{index:08}"


def _question(index: int) -> str:
    return f"What is the term of contract {index}, and who may end it before?"


def _text(index: int) -> str:
    """No two are the same; most of it is, so that a million of them fit a small disk as Parquet."""
    return f"Contract {index}. {_FILLER} Its number is {index * 7919 % 1_000_003}."


_FILLER = " ".join(f"clause{number % 89}" for number in range(TEXT_WORDS))
