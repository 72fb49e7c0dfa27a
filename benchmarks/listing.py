"""How long listing many objects of a bucket takes, comparing them with an output included, and how much memory.

The store is `benchmarks.object_store` on this machine, so `seconds` are those of both; `cpu_seconds` are of the
listing alone, `anonymous_mib` is the most memory that only its process could hold.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.tables import LOOK_SECONDS, Objects, anonymous_mib
from memagent_batch.config.sources import SourceConfig
from memagent_batch.data.store.location import Location
from memagent_batch.run.sources import find_sources


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--objects", type=int, default=1_000_000, help="(default: 1000000)")
    parser.add_argument("--latency-ms", type=float, default=0, help="time before each answer of the store (default: 0)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    store = Objects(arguments.objects, num_texts=arguments.objects, latency_ms=arguments.latency_ms)
    places = store.places
    config = SourceConfig(documents=(places["documents"],), storage_options=places["storage_options"], ask=("What?",))
    try:
        with tempfile.TemporaryDirectory() as folder, _most_memory() as looks:
            began, cpu = time.monotonic(), time.process_time()
            found = find_sources(config, Location(uri=folder))
            seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
    finally:
        store.close()
    if found.num_sources != arguments.objects:
        raise SystemExit(f"{found.num_sources:,} of {arguments.objects:,} objects were listed")
    yield {
        "objects": arguments.objects,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "anonymous_mib": round(max(looks)),
    }


@contextmanager
def _most_memory() -> Iterator[list[float]]:
    """Looks at the memory of this process while the block lasts, MiB."""
    looks, ended = [anonymous_mib(os.getpid())], threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_SECONDS):
            looks.append(anonymous_mib(os.getpid()))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield looks
    finally:
        ended.set()
        thread.join()
