"""Seconds to scan a turn log of many files in a store that answers slowly: without keys, with them, and merged.

Every request takes `--request-seconds`, a listing one for each 1,000 names. The files lie on a disk below. Parts:

- without_keys: turns and outcomes are read themselves, a file a request
- keys: the key files are read
- merge: the small files become a few large ones
- merged: the merged log is scanned
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
from fsspec.implementations.dirfs import DirFileSystem

from memagent_batch.domain.addresses import text_hash
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import scan_log
from memagent_batch.store.turn_log.keys import KEYS_FOLDER, OUTCOMES_FOLDER, TURNS_FOLDER, list_folder, write_log_files
from memagent_batch.store.turn_log.merge import merge_log
from memagent_batch.store.turn_log.rows import OUTCOME_LOG, TURN_LOG

RUN_ID = "20260101T000000.000Z.aaaa"
PAGE_NAMES = 1000
"""Names in one answer of S3 to a listing."""
TURNS = 5
"""Turns of a flush, besides the outcome of one reading."""
TEXT = "a word " * 150
"""Of each turn."""


class SlowFileSystem(DirFileSystem):  # type: ignore[misc]
    """A disk that answers like a store."""

    protocol = "slow"
    request_seconds = 0.0

    def find(self, path: str, **options: Any) -> list[str]:
        """A request for each page of names."""
        names: list[str] = super().find(path)
        wanted = [name for name in names if name.rpartition("/")[2].startswith(options.get("prefix", ""))]
        time.sleep(self.request_seconds * (1 + len(wanted) // PAGE_NAMES))
        return wanted


def _slow(name: str) -> Callable[..., Any]:
    def call(self: SlowFileSystem, *arguments: Any, **options: Any) -> Any:
        time.sleep(self.request_seconds)
        return getattr(super(SlowFileSystem, self), name)(*arguments, **options)

    return call


for _request in ("info", "cat_file", "pipe_file", "rm_file"):
    setattr(SlowFileSystem, _request, _slow(_request))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--flushes", type=int, default=2000, help="flushes in the log, of 2 files (default: 2000)")
    parser.add_argument("--writers", type=int, default=8, help="writers that made them (default: 8)")
    parser.add_argument("--request-seconds", type=float, default=0.02, help="time of a request (default: 0.02)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    with tempfile.TemporaryDirectory() as folder:
        disk = fsspec.filesystem("file", auto_mkdir=True)
        output = Location(uri="slow://out", storage_options={"path": folder, "fs": disk})
        SlowFileSystem.request_seconds = 0.0
        for number in range(arguments.flushes):
            flush, writer = divmod(number, arguments.writers)
            _write_flush(output, number, name=f"{RUN_ID}-w{writer}-{flush:06d}.parquet")
        SlowFileSystem.request_seconds = arguments.request_seconds
        keys, hidden = Path(folder) / "out" / KEYS_FOLDER, Path(folder) / "keys"
        keys.rename(hidden)
        yield _timed("without_keys", arguments, lambda: scan_log(output, fingerprint="f"))
        hidden.rename(keys)
        yield _timed("keys", arguments, lambda: scan_log(output, fingerprint="f"))
        yield _timed("merge", arguments, lambda: merge_log(output, recorded=tuple, require_claim=lambda: None))
        merged = _timed("merged", arguments, lambda: scan_log(output, fingerprint="f"))
        yield {**merged, "key_files": len(list_folder(output / KEYS_FOLDER))}


def _timed(part: str, arguments: argparse.Namespace, action: Callable[[], Any]) -> dict[str, Any]:
    began, cpu = time.monotonic(), time.process_time()
    action()
    return {
        "part": part,
        "flushes": arguments.flushes,
        "request_seconds": arguments.request_seconds,
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
    }


def _write_flush(output: Location, number: int, *, name: str) -> None:
    fields = [field for field in [*TURN_LOG, *OUTCOME_LOG] if not field.nullable]
    row: dict[str, Any] = {field.name: "" if pa.types.is_string(field.type) else 0 for field in fields}
    row |= {"document_hash": text_hash(f"{number}"), "question_hash": "q", "fingerprint": "f", "run_id": RUN_ID}
    row |= {"text": TEXT, "response": TEXT, "token_ids": range(200), "status": "ok", "finished_at": datetime.now(UTC)}
    turns = [row | {"path": f"update/{turn}"} for turn in range(TURNS)]
    tables = {
        TURNS_FOLDER: pa.Table.from_pylist(turns, schema=TURN_LOG),
        OUTCOMES_FOLDER: pa.Table.from_pylist([row], schema=OUTCOME_LOG),
    }
    write_log_files(output, tables, name=name)
