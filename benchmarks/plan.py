"""What `memagent plan` costs as people type it, and how good its estimate is.

Documents are rows of one Parquet file, or text files, of log-normal lengths. With `--exact` the sums are counted too,
which tokenises every document; `error` is the estimate's, as a share of the exact sum.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import QUESTION

WORDS = [
    "the",
    "of",
    "and",
    "contract",
    "rent",
    "clause",
    "party",
    "payment",
    "month",
    "year",
    "notice",
    "liability",
    "guarantee",
    "shall",
    "term",
]
GROUP_ROWS, FOLDER_FILES = 100_000, 1000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=1_000_000, help="(default: 1000000)")
    parser.add_argument("--form", choices=["rows", "files"], default="rows", help="(default: rows)")
    parser.add_argument("--executor", choices=["local", "ray"], default="local", help="(default: local)")
    parser.add_argument("--exact", action="store_true", help="count all documents too")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        documents = Path(folder) / ("rows.parquet" if arguments.form == "rows" else "texts")
        write = _write_rows if arguments.form == "rows" else _write_files
        write(documents, arguments.documents)
        estimate = _planned(documents, executor=arguments.executor)
        yield estimate
        if arguments.exact:
            exact = _planned(documents, "--exact", executor=arguments.executor)
            yield exact | {
                "error": {name: estimate[name] / exact[name] - 1 for name in estimate["intervals"]},
                "is_inside": {name: low <= exact[name] <= high for name, (low, high) in estimate["intervals"].items()},
            }


def _planned(documents: Path, *options: str, executor: str) -> dict[str, Any]:
    """Seconds and peak memory of the command, and what it prints."""
    command = [sys.executable, "-m", "memagent_batch", "plan", "--config", "tiny", "--executor", executor]
    command += ["--documents", str(documents), "--output", f"{documents.parent}/run", "--ask", QUESTION, *options]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        printed = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    plan: dict[str, Any] = json.loads(printed)
    names = ("documents_to_read", "documents_counted", "document_tokens", "turns", "intervals")
    others = ("prompt_tokens_at_least", "prompt_tokens_at_most", "completion_tokens_at_most")
    return {
        "options": " ".join(options),
        "seconds": round(time.monotonic() - began, 1),
        "peak_mib": round(usage.ru_maxrss / 1024),
        **{name: plan[name] for name in (*names, *others)},
    }


def _texts(number: int) -> list[str]:
    return [" ".join(random.choices(WORDS, k=int(random.lognormvariate(3.5, 1)) + 3)) for _ in range(number)]


def _write_rows(path: Path, num_documents: int) -> None:
    schema = pa.schema([("document_id", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema) as file:
        for start in range(0, num_documents, GROUP_ROWS):
            number = min(GROUP_ROWS, num_documents - start)
            ids = [f"{row:08}" for row in range(start, start + number)]
            file.write_table(pa.table([ids, _texts(number)], schema=schema))


def _write_files(path: Path, num_documents: int) -> None:
    for start in range(0, num_documents, FOLDER_FILES):
        folder = path / f"{start:08}"
        folder.mkdir(parents=True)
        for number, text in enumerate(_texts(min(FOLDER_FILES, num_documents - start))):
            (folder / f"{number}.txt").write_text(text)
