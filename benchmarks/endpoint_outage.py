"""A job over many tiny documents whose endpoint goes away in the middle: what the readings wait, and what is lost.

The real `memagent answer` with engine `openai` against a scripted endpoint in a process of its own. The endpoint
answers at once. After half of the requests that the job will send it goes away for a while: it closes its socket, so
that connections are refused (or answers 503 with `--how 503`), and then comes back. Prints counts, seconds and the
exit code.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MODEL = "tiny"
TURNS = 2
"""Turns of each reading: one chunk, and the answer."""
REPLY_TEXT = "a"
REPLY_TOKENS = [5]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--readings", type=int, default=40_000, help="tiny documents, one reading each (40,000)")
    options.add_argument("--down", type=float, default=300, help="seconds for which the endpoint is away (300)")
    options.add_argument("--how", choices=["refused", "503"], default="refused", help="how it is away (refused)")
    options.add_argument("--outage-seconds", type=float, default=1800, help="openai.outage_seconds (1800)")
    options.add_argument("--replicas", type=int, default=1, help="pool.replicas (1)")
    options.add_argument("--json", action="store_true", help="one JSON line only")
    known = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), known)
    print(json.dumps(figures))
    return int(figures["exit_code"])


def measure(folder: Path, known: argparse.Namespace) -> dict[str, Any]:
    """Runs the job once, with the endpoint beside it."""
    rows = [{"document_id": f"d{number}", "text": f"This is text {number}."} for number in range(known.readings)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    context = get_context("spawn")
    served, refused, port = context.Value("q", 0), context.Value("q", 0), free_port()
    endpoint = context.Process(
        target=serve, args=(port, known.readings * TURNS // 2, known.down, known.how, served, refused), daemon=True
    )
    endpoint.start()
    try:
        began = time.monotonic()
        command = job(folder, port=port, known=known)
        console = sys.stderr if not known.json else subprocess.DEVNULL
        result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=console, check=False)
        seconds = time.monotonic() - began
    finally:
        endpoint.terminate()
        endpoint.join()
    return {
        "benchmark": "endpoint_outage",
        "readings": known.readings,
        "how": known.how,
        "down_seconds": known.down,
        "outage_seconds": known.outage_seconds,
        "exit_code": result.returncode,
        "seconds": round(seconds, 1),
        "served_requests": served.value,
        "failed_requests": refused.value,
        "outcomes": outcomes(folder / "run"),
        "counts": counts(folder / "run"),
        "cores": os.cpu_count(),
    }


def job(folder: Path, *, port: int, known: argparse.Namespace) -> list[str]:
    """The command, with a policy that makes `TURNS` turns of each document."""
    knobs = {
        "documents": folder / "documents.parquet",
        "output": folder / "run",
        "ask": "What text is this?",
        "engine": "openai",
        "openai.base-url": f"http://127.0.0.1:{port}/v1",
        "openai.outage-seconds": known.outage_seconds,
        "model": MODEL,
        "tokenizer": str(Path(__file__).parents[1] / "memagent_batch" / "models" / "tiny"),
        "window-tokens": 1024,
        "policy.chunk-tokens": 64,
        "policy.question-tokens": 64,
        "policy.memory-tokens": 64,
        "policy.answer-tokens": 64,
        "pool.replicas": known.replicas,
    }
    arguments = [part for name, value in knobs.items() for part in (f"--{name}", str(value))]
    return [sys.executable, "-m", "jobs.answer", *arguments]


def outcomes(run: Path) -> dict[str, int]:
    """Readings in the log by status."""
    folder = run / "log" / "outcomes"
    if not folder.exists():
        return {}
    found = pq.read_table(folder, columns=["status"])["status"].value_counts().to_pylist()
    return {row["values"]: row["counts"] for row in found}


def counts(run: Path) -> dict[str, Any]:
    """The manifest's counts; empty where the run was not closed."""
    manifest = run / "manifest.json"
    found: dict[str, Any] = json.loads(manifest.read_text())["counts"] if manifest.exists() else {}
    return found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def serve(
    port: int, away_after: int, down_seconds: float, how: str, served: "Synchronized[int]", refused: "Synchronized[int]"
) -> None:
    """Runs the endpoint until the process is ended."""
    endpoint = Endpoint(port=port, away_after=away_after, down_seconds=down_seconds, how=how)
    endpoint.served, endpoint.refused = served, refused
    asyncio.run(endpoint.run())


class Endpoint:
    """Enough of an OpenAI-compatible server for one engine: the list of models, and completions of one token."""

    served: "Synchronized[int]"
    refused: "Synchronized[int]"

    def __init__(self, *, port: int, away_after: int, down_seconds: float, how: str) -> None:
        """Goes away once, after so many completions."""
        self._port = port
        self._away_after = away_after
        self._down_seconds = down_seconds
        self._how = how
        self._leaves = asyncio.Event()
        self._is_away = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def run(self) -> None:
        """Serves, goes away, comes back."""
        server = await asyncio.start_server(self._talk, "127.0.0.1", self._port)
        await self._leaves.wait()
        self._is_away = True
        if self._how == "refused":
            server.close()
            for writer in self._writers:
                writer.transport.abort()
        await asyncio.sleep(self._down_seconds)
        self._is_away = False
        if self._how == "refused":
            server = await asyncio.start_server(self._talk, "127.0.0.1", self._port)
        await server.serve_forever()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(_length(head))
                status, body = self._reply(head)
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client, or this endpoint, has left
        finally:
            self._writers.discard(writer)
            writer.close()

    def _reply(self, head: bytes) -> tuple[str, bytes]:
        if self._is_away:
            self.refused.value += 1
            return "503 Service Unavailable", b"no healthy upstream"
        if head.startswith(b"GET"):
            return "200 OK", json.dumps({"data": [{"id": MODEL}]}).encode()
        self.served.value += 1
        if self.served.value == self._away_after:
            self._leaves.set()
        choice = {"text": REPLY_TEXT, "token_ids": REPLY_TOKENS, "finish_reason": "stop", "index": 0}
        return "200 OK", json.dumps({"choices": [choice]}).encode()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


if __name__ == "__main__":
    sys.exit(main())
