"""Seconds to scan a turn log of many files in a store that answers slowly: without keys, with them, and merged.

Every request to the store takes `--request-seconds`, of a listing for each 1,000 names. The files lie on a disk below.
Parts, one after the other:

- without_keys: turns and outcomes are read themselves, a file a request
- keys: the key files are read
- run: what a run looks at after its reading, if its own files are a tenth of the log
- merge: the small files become a few large ones
- merged: the merged log is scanned
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from memagent_batch.config.job import LogConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import scan_log
from memagent_batch.store.turn_log.keys import KEYS_FOLDER, list_folder
from memagent_batch.store.turn_log.merge import merge_log
from memagent_batch.store.turn_log.writer import TurnLogWriter

RUNS = ("20260101T000000.000Z.aaaa", "20260102T000000.000Z.bbbb")
PAGE_NAMES = 1000
"""Names in one answer of S3 to a listing."""
TURNS = 5
"""Turns of a flush, besides the outcome of one reading."""


class SlowFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A disk that answers like a store."""

    protocol = "slow"
    request_seconds = 0.0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._disk = LocalFileSystem(auto_mkdir=True)

    def _wait(self, requests: int = 1) -> None:
        time.sleep(requests * self.request_seconds)

    def info(self, path: str, **_: Any) -> Any:
        """One request."""
        self._wait()
        return self._disk.info(path)

    def find(self, path: str, *, prefix: str = "", **_: Any) -> list[str]:
        """A request for each page of names."""
        names = [each for each in self._disk.find(path) if each.rpartition("/")[2].startswith(prefix)]
        self._wait(1 + len(names) // PAGE_NAMES)
        return names

    def cat_file(self, path: str, **_: Any) -> bytes:
        """One request for a whole file."""
        self._wait()
        return Path(path).read_bytes()

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        """One request."""
        self._wait()
        self._disk.pipe_file(path, value)

    def rm_file(self, path: str) -> None:
        """One request."""
        self._wait()
        self._disk.rm_file(path)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--flushes", type=int, default=2000, help="flushes in the log (default: 2000)")
    parser.add_argument("--writers", type=int, default=8, help="writers that made them (default: 8)")
    parser.add_argument("--request-seconds", type=float, default=0.02, help="time of a request (default: 0.02)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    with tempfile.TemporaryDirectory() as folder:
        output = Location(uri=f"slow://{folder}")
        for run_id, share in zip(RUNS, (0.9, 0.1), strict=True):
            asyncio.run(_write(output, run_id, round(arguments.flushes * share), writers=arguments.writers))
        SlowFileSystem.request_seconds = arguments.request_seconds
        hidden = Path(folder) / "keys"
        (Path(folder) / KEYS_FOLDER).rename(hidden)
        yield _timed("without_keys", arguments, lambda: scan_log(output, fingerprint="f"))
        hidden.rename(Path(folder) / KEYS_FOLDER)
        yield _timed("keys", arguments, lambda: scan_log(output, fingerprint="f"))
        before = scan_log(output, fingerprint="f", begins=RUNS[0])
        yield _timed("run", arguments, lambda: scan_log(output, fingerprint="f", begins=RUNS[1], before=before))
        yield _timed("merge", arguments, lambda: merge_log(output, recorded=tuple, require_claim=lambda: None))
        yield _timed("merged", arguments, lambda: scan_log(output, fingerprint="f"))
        yield {"part": "files", "left": len(list_folder(output / KEYS_FOLDER))}


def _timed(part: str, arguments: argparse.Namespace, action: Any) -> dict[str, Any]:
    began, cpu = time.monotonic(), time.process_time()
    action()
    return {
        "part": part,
        "flushes": arguments.flushes,
        "request_seconds": arguments.request_seconds,
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
    }


async def _write(output: Location, run_id: str, flushes: int, *, writers: int) -> None:
    zeros = ["memory_truncations", "num_turns", "num_replayed_turns", "num_prompt_tokens", "num_completion_tokens"]
    ended: Any = {"status": "ok", **dict.fromkeys(zeros, 0), "num_cached_prompt_tokens": 0, "engine_seconds": 0.5}
    completion = Completion(token_ids=range(200), text="a word " * 150, finish_reason=FinishReason.STOP)
    for writer_id in range(writers):
        writer = TurnLogWriter(
            output, run_id=run_id, writer_id=f"w{writer_id}", settings=LogConfig(flush_seconds=0.0001)
        )
        for number in range(writer_id, flushes, writers):
            address = ReadingAddress(
                document_hash=text_hash(f"{run_id} {number}"), question_hash=text_hash("q"), sample=0, fingerprint="f"
            )
            for turn in range(TURNS):
                prompt = Prompt(path=f"update/{turn}", kind="update", token_ids=(1, 2), max_tokens=4)
                writer.record_turn(address, prompt, completion)
            outcome = ended | {"response": "yes", "finished_at": datetime.now(UTC), "model": "m"}
            await writer.record_outcome(address, outcome)
        await writer.close()
