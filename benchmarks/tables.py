"""What nights cost two versions of the code: seconds, memory, requests to an object store, and bytes of the output.

`rows` are short texts in Parquet files on disk, `objects` are small text files in a bucket of an S3 API on loopback.
The first night reads all of them, the second finds nothing changed, the third one changed document. The engine answers
at once. Each night is the command `memagent answer` of the checkout `--code`, so that older code can be measured as
well: nothing of the package is imported here.

    python -m benchmarks tables --code ../before --save before.json
    python -m benchmarks tables --against before.json

With `--against`, `ratios` has each figure over that of the file. `seconds` and `cpu_seconds` are of the command,
`anonymous_mib` is the most memory that only the driver could hold, from `/proc`, looked at every 20 ms. `load` is the
number of processes that ran or waited on this machine in the minute before. `phases` has seconds and memory from one
line of the command's log to the next.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.object_store import BUCKET, text

CHECKOUT = Path(__file__).parents[1]
NUM_FILES = 8
"""Parquet files of the rows."""
CHANGED_SECONDS = 2.5
"""Age from which the times of a file tell whether it has changed."""
LOOK_SECONDS = 0.02
JOB = {
    "ask": ["What colour is the sky?"],
    "engine": "simulated",
    "model": "tiny",
    "window_tokens": 1024,
    "policy": {"chunk_tokens": 64, "question_tokens": 64, "memory_tokens": 64, "answer_tokens": 64},
}
PHASES = {
    "start": b"checking inputs",
    "list and ingest": b" documents from ",
    "plan": b" readings asked",
    "read": b"readings ",
}
"""What the command does in turn, and what the last line of its log that belongs to it holds. Behind them it writes."""
RATIOS = ("seconds", "cpu_seconds", "anonymous_mib", "num_requests", "output_bytes", "output_files")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--code", type=Path, default=CHECKOUT, help="checkout whose command is run (default: this one)")
    parser.add_argument("--rows", type=int, default=20_000, help="rows in Parquet on disk (default: 20000)")
    parser.add_argument("--objects", type=int, default=3000, help="text objects in a bucket (default: 3000)")
    parser.add_argument(
        "--texts",
        type=int,
        help="different texts among the rows and objects (default: all differ); documents of one text are read once",
    )
    parser.add_argument("--latency-ms", type=float, default=0, help="time before each answer of the store (default: 0)")
    parser.add_argument("--executors", nargs="+", choices=("local", "ray"), default=("local", "ray"))
    parser.add_argument("--save", type=Path, help="file for the figures, one JSON object a line")
    parser.add_argument("--against", type=Path, help="figures that --save wrote before")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Figures of each night, with their ratios to those of before."""
    before = {}
    if arguments.against:
        lines = map(json.loads, arguments.against.read_text().splitlines())
        before = {tuple(row[name] for name in ("what", "documents", "executor", "night")): row for row in lines}
    for figures in _measure_all(arguments):
        if arguments.save:
            with arguments.save.open("a") as file:
                file.write(json.dumps(figures) + "\n")
        row = before.get(tuple(figures[name] for name in ("what", "documents", "executor", "night")), {})
        ratios = {name: round(figures[name] / row[name], 2) for name in RATIOS if figures.get(name) and row.get(name)}
        yield {**figures, **({"ratios": ratios} if row else {})}


def _measure_all(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for executor, what in product(arguments.executors, ("rows", "objects")):
        number = getattr(arguments, what)
        if number == 0:
            continue
        with tempfile.TemporaryDirectory() as folder:
            num_texts = arguments.texts or number
            corpus: Rows | Objects = (
                Rows(Path(folder), number, num_texts=num_texts)
                if what == "rows"
                else Objects(number, num_texts=num_texts, latency_ms=arguments.latency_ms)
            )
            for night in ("cold", "unchanged", "one changed"):
                corpus.prepare(night)
                figures = run_night(JOB | corpus.places | {"executor": executor}, Path(folder), code=arguments.code)
                requests = corpus.requests()
                case = {"what": what, "documents": number, "executor": executor, "night": night}
                figures |= {"requests": requests, "num_requests": sum(requests.values())}
                yield {**case, **figures, **corpus.size_of_output()}
            corpus.close()


class Rows:
    """Short texts in Parquet files on disk."""

    def __init__(self, folder: Path, number: int, *, num_texts: int) -> None:
        self._folder, self._number, self._num_texts = folder / "in", number, num_texts
        self._output = folder / "out"
        self._folder.mkdir()
        self.places = {"documents": str(self._folder), "output": str(self._output)}

    def prepare(self, night: str) -> None:
        """Writes all files for the first night, and one of them again with a changed text for the last one."""
        size = -(-self._number // NUM_FILES)
        starts = {"cold": range(0, self._number, size), "unchanged": range(0), "one changed": range(1)}[night]
        for start in starts:
            rows = range(start, min(start + size, self._number))
            texts = [text(row % self._num_texts, is_changed=night == "one changed" and row == 0) for row in rows]
            table = pa.table({"document_id": [f"d{row:09d}" for row in rows], "text": texts})
            pq.write_table(table, self._folder / f"{start:09d}.parquet")
        time.sleep(CHANGED_SECONDS)

    def requests(self) -> dict[str, int]:
        """None: the files are on a disk."""
        return {}

    def close(self) -> None:
        """Does nothing: the folder is removed by its owner."""

    def size_of_output(self) -> dict[str, int]:
        """Bytes and files."""
        sizes = [path.stat().st_size for path in self._output.rglob("*") if path.is_file()]
        return {"output_bytes": sum(sizes), "output_files": len(sizes)}


class Objects:
    """Small text objects of an S3 API on loopback."""

    def __init__(self, number: int, *, num_texts: int, latency_ms: float) -> None:
        options = ["--objects", str(number), "--texts", str(num_texts), "--latency-ms", str(latency_ms)]
        command = [sys.executable, "-m", "benchmarks.object_store", *options]
        self._process = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self._url = f"http://127.0.0.1:{json.loads(self._process.stdout.readline())['port']}"
        storage = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": self._url}}
        self._fs = fsspec.filesystem("s3", **storage)
        self._fs.mkdir(BUCKET)
        documents, output = f"s3://{BUCKET}/in", f"s3://{BUCKET}/out"
        self.places = {"documents": documents, "output": output, "storage_options": storage}

    def prepare(self, night: str) -> None:
        """Changes one object for the last night, and sets the counts of requests to 0."""
        if night == "one changed":
            self._get("_change")
        self._get("_counts")

    def requests(self) -> dict[str, int]:
        """Requests since the night began, by what they were for and their kind."""
        counts: dict[str, int] = json.loads(self._get("_counts"))
        return dict(sorted(counts.items()))

    def size_of_output(self) -> dict[str, int]:
        """Bytes and objects."""
        self._fs.invalidate_cache()
        sizes = [entry["size"] for entry in self._fs.find(f"{BUCKET}/out", detail=True).values()]
        return {"output_bytes": sum(sizes), "output_files": len(sizes)}

    def close(self) -> None:
        """Ends the store."""
        self._process.terminate()
        self._process.wait()

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self._url}/{path}") as reply:
            body: bytes = reply.read()
        return body


def run_night(job: Mapping[str, Any], folder: Path, *, code: Path) -> dict[str, Any]:
    """Runs the command over a job file; exits if it fails."""
    (folder / "job.yaml").write_text(yaml.safe_dump(dict(job)))
    command = [sys.executable, "-m", "memagent_batch", "answer", "--config", str(folder / "job.yaml")]
    env = os.environ | {"PYTHONPATH": str(code.resolve())}
    load, began, most = os.getloadavg()[0], time.monotonic(), 0.0
    phases = PhaseTimes(began)
    with (folder / "log.txt").open("wb") as log, (folder / "log.txt").open("rb") as written:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
        usage = None
        while usage is None:
            memory = anonymous_mib(process.pid)
            most = max(most, memory)
            phases.look(written.readlines(), memory=memory)
            pid, status, rusage = os.wait4(process.pid, os.WNOHANG)
            usage = rusage if pid else None
            time.sleep(0 if pid else LOOK_SECONDS)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the command ended with {process.returncode}:\n{(folder / 'log.txt').read_text()[-4000:]}")
    return {
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "anonymous_mib": round(most),
        "load": round(load, 1),
        "phases": phases.close(),
    }


class PhaseTimes:
    """Seconds and memory of what a command does in turn, told apart by the lines of its log."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._ends: dict[str, float] = {}
        self._looks: list[tuple[float, float]] = []
        """Times, and the memory that the command took at each, MiB."""

    def look(self, lines: Sequence[bytes], *, memory: float) -> None:
        """Notes which phases the new lines of the log end."""
        now = time.monotonic()
        self._looks.append((now, memory))
        for phase, mark in PHASES.items():
            if any(mark in line for line in lines) and (phase == "read" or phase not in self._ends):
                self._ends[phase] = now  # that of reading is its last line

    def close(self) -> dict[str, dict[str, float]]:
        """Figures of each phase; a run that reads nothing has fewer."""
        figures, last = {}, self._began
        for phase, end in {**self._ends, "write": time.monotonic()}.items():
            most = max((memory for when, memory in self._looks if last <= when < end), default=0.0)
            figures[phase] = {"seconds": round(end - last, 1), "anonymous_mib": round(most)}
            last = end
        return figures


def anonymous_mib(pid: int) -> float:
    """Memory of a process without mapped files; 0 once it has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0
