"""What nights cost two versions of the code: seconds, memory, requests to an object store, and bytes of the output.

`rows` are short texts in Parquet files on disk, `objects` are small text files in a bucket of an S3 API on loopback.
The first night reads all of them, the second finds nothing changed, the third one changed document. The engine answers
at once. Each night is the command `memagent answer` of the checkout `--code`, so that older code can be measured as
well: nothing of the package is imported here.

    python -m benchmarks tables --code ../before --save before.json
    python -m benchmarks tables --against before.json

With `--against`, `ratios` has each figure over that of the file. `seconds` and `cpu_seconds` are of the command,
`anonymous_mib` is the most memory that only the driver could hold, from `/proc`, looked at every 20 ms. `load` is the
number of processes that ran or waited on this machine in the minute before. The store runs in the process of the
benchmark: the seconds of `objects` hold its own work, about 3 ms a request.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

CHECKOUT = Path(__file__).parents[1]
BUCKET = "lake"
NUM_FILES = 8
"""Parquet files of the rows."""
OBJECTS_IN_FOLDER = 1000
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
    with Store() as store:
        for executor in arguments.executors:
            for what, number in (("rows", arguments.rows), ("objects", arguments.objects)):
                if number == 0:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    texts = arguments.texts or number
                    corpus: Rows | Objects = Rows(Path(folder), number, num_texts=texts)
                    if what == "objects":
                        corpus = Objects(store, number, num_texts=texts, name=executor)
                    for night in ("cold", "unchanged", "one changed"):
                        corpus.prepare(night)
                        store.counts.clear()
                        job = JOB | corpus.places | {"executor": executor}
                        figures = run_night(job, Path(folder), code=arguments.code)
                        figures |= {f"{which}_requests": dict(each) for which, each in by_place(store.counts).items()}
                        figures["num_requests"] = store.counts.total()
                        case = {"what": what, "documents": number, "executor": executor, "night": night}
                        yield {**case, **figures, **corpus.size_of_output()}


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
            texts = [_text(row % self._num_texts, is_changed=night == "one changed" and row == 0) for row in rows]
            table = pa.table({"document_id": [f"d{row:09d}" for row in rows], "text": texts})
            pq.write_table(table, self._folder / f"{start:09d}.parquet")
        time.sleep(CHANGED_SECONDS)

    def size_of_output(self) -> dict[str, int]:
        """Bytes and files."""
        sizes = [path.stat().st_size for path in self._output.rglob("*") if path.is_file()]
        return {"output_bytes": sum(sizes), "output_files": len(sizes)}


class Objects:
    """Small text files in the bucket."""

    def __init__(self, store: "Store", number: int, *, num_texts: int, name: str) -> None:
        self._number, self._num_texts, self._root = number, num_texts, f"{BUCKET}/{name}"
        self._fs = fsspec.filesystem("s3", **store.options)
        self.places = {
            "documents": f"s3://{self._root}/in",
            "output": f"s3://{self._root}/out",
            "storage_options": store.options,
        }

    def prepare(self, night: str) -> None:
        """Writes all objects for the first night, and one of them again for the last one."""
        rows = range({"cold": self._number, "unchanged": 0, "one changed": 1}[night])
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda row: self._put(row, is_changed=night != "cold"), rows))

    def size_of_output(self) -> dict[str, int]:
        """Bytes and objects."""
        self._fs.invalidate_cache()
        sizes = [entry["size"] for entry in self._fs.find(f"{self._root}/out", detail=True).values()]
        return {"output_bytes": sum(sizes), "output_files": len(sizes)}

    def _put(self, row: int, *, is_changed: bool) -> None:
        key = f"{self._root}/in/{row // OBJECTS_IN_FOLDER:04d}/{row:09d}.txt"
        self._fs.pipe_file(key, _text(row % self._num_texts, is_changed=is_changed).encode())


def _text(row: int, *, is_changed: bool) -> str:
    return f"{'Another line' if is_changed else 'Line'} {row}: the sky over town {row % 97} is blue on most days."


class Store:
    """An S3 API on loopback that counts its requests by their place in the bucket and their kind."""

    def __enter__(self) -> "Store":
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line for each request
        self.counts = Counter[tuple[str, str]]()
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.options = {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": endpoint}}
        fsspec.filesystem("s3", **self.options).mkdir(BUCKET)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()

    def _answer(self, environ: Mapping[str, Any], start_response: Any) -> Iterable[bytes]:
        query, kind = environ.get("QUERY_STRING", ""), environ["REQUEST_METHOD"]
        is_list = kind == "GET" and ("list-type" in query or "prefix=" in query)
        place = f"{environ['PATH_INFO']}/{query.replace('%2F', '/')}"
        of_documents = "/in/" in place or "/in&" in place or place.endswith("/in")
        self.counts["document" if of_documents else "output", "LIST" if is_list else kind] += 1
        answer: Iterable[bytes] = self._app(environ, start_response)
        return answer


def by_place(counts: Mapping[tuple[str, str], int]) -> dict[str, Counter[str]]:
    """Requests for documents and for the output, by kind."""
    places = {"document": Counter[str](), "output": Counter[str]()}
    for (place, kind), number in sorted(counts.items()):
        places[place][kind] += number
    return {place: kinds for place, kinds in places.items() if kinds}


def run_night(job: Mapping[str, Any], folder: Path, *, code: Path) -> dict[str, Any]:
    """Runs the command over a job file; exits if it fails."""
    (folder / "job.yaml").write_text(yaml.safe_dump(dict(job)))
    command = [sys.executable, "-m", "memagent_batch", "answer", "--config", str(folder / "job.yaml")]
    env = os.environ | {"PYTHONPATH": str(code.resolve())}
    load, began, most = os.getloadavg()[0], time.monotonic(), 0.0
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
        usage = None
        while usage is None:
            most = max(most, _anonymous_mib(process.pid))
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
    }


def _anonymous_mib(pid: int) -> float:
    """Memory of a process without mapped files; 0 once it has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0
