"""The real job in a place where a trouble can happen: its documents, its output, and what stands before that."""

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer

from benchmarks.fault_proxy import FaultProxy
from benchmarks.loopback_endpoint import MODEL, LoopbackEndpoint
from benchmarks.small_disk import small_disk
from benchmarks.troubles import ON_ENDPOINT, ON_STORE, Trouble
from memagent_batch.files.location import Location
from memagent_batch.wiring import TINY_MODEL

DOCUMENTS_FILE = "documents.parquet"
TURN_SECONDS = 0.1
FLUSH_SECONDS = 0.5
SHORT_PATIENCE_SECONDS = 5.0
"""`log.outage_seconds` where it does not."""
HANGING_SECONDS = 20.0
"""`vllm.turn_timeout_seconds` where the engine hangs; far above a turn of the tiny policy, on a busy machine too."""
QUICK_CLIENT = {"connect_timeout": 2, "read_timeout": 2, "retries": {"mode": "standard", "max_attempts": 4}}
"""Knobs of the S3 client, so that it does not sit out the outage by itself."""
FEW_TRIES = ("--openai.max-retries", "2", "--openai.backoff-seconds", "0.5")
"""So that an outage lasts longer than a request is sent again by itself."""
SIMULATED = ("--engine", "simulated", "--simulated.turn-seconds", str(TURN_SECONDS))
VLLM = (
    *("--vllm.turn-timeout-seconds", str(HANGING_SECONDS), "--vllm.cpu-kv-cache-gib", "1"),
    *("--vllm.dtype", "float32"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where a run takes place."""

    arguments: tuple[str, ...]
    """All of the command's."""
    output: Location
    """Where it writes, reached without faults."""
    job_folder: Path
    """Where the console is kept."""
    disk: Path | None
    """The small disk that holds the output, if one does."""
    proxy: FaultProxy | None
    """What stands before the store or the endpoint that the trouble is about, if there is one."""


@contextmanager
def make_world(trouble: Trouble, folder: Path, *, documents: int, chunks: int) -> Iterator[World]:
    """Documents, and a place for the output in which the trouble can happen."""
    arguments = write_documents(folder, documents=documents, chunks=chunks)
    disk, proxy, output = None, None, Location(uri=str(folder / "run"))
    with ExitStack() as stack:
        if trouble in ON_ENDPOINT:
            proxy = _endpoint(stack)
            arguments[arguments.index("--model") + 1] = MODEL
            arguments += ["--engine", "openai", "--openai.base-url", f"{proxy.url}/v1", *FEW_TRIES]
        else:
            arguments += VLLM if trouble == Trouble.ENGINE_HANGS else SIMULATED
        if trouble == Trouble.TEXTS_SILENT:
            texts, proxy, options = _bucket(stack)
            (texts / DOCUMENTS_FILE).write_bytes((folder / DOCUMENTS_FILE).read_bytes())
            arguments[arguments.index("--documents") + 1] = f"{texts.uri}/{DOCUMENTS_FILE}"
            arguments += ["--storage-options", json.dumps(options)]
        elif trouble in ON_STORE:
            output, proxy, options = _bucket(stack)
            patience = SHORT_PATIENCE_SECONDS if trouble == Trouble.STORE_DOWN else 300.0
            arguments += ["--storage-options", json.dumps(options), "--log.outage-seconds", str(patience)]
        elif trouble == Trouble.DISK_FULL:
            disk = stack.enter_context(small_disk(folder / "disk"))
            output = Location(uri=str(disk / "run"))
        yield World(
            arguments=(*arguments, "--output", output.uri),
            output=output,
            job_folder=folder,
            disk=disk,
            proxy=proxy,
        )


def write_documents(folder: Path, *, documents: int, chunks: int) -> list[str]:
    """Documents; the arguments that read them, all but engine and output."""
    rows = [
        {"document_id": f"d{number}", "text": f"document {number}. " + "the fox jumps over 12345 dogs. " * 3 * chunks}
        for number in range(documents)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / DOCUMENTS_FILE)
    return [
        *("--documents", str(folder / DOCUMENTS_FILE), "--ask", "Who?"),
        *("--model", str(TINY_MODEL), "--tokenizer", str(TINY_MODEL)),
        *("--window-tokens", "1000", "--policy.chunk-tokens", "50"),
        *("--policy.question-tokens", "60", "--policy.memory-tokens", "40", "--policy.answer-tokens", "40"),
        *("--pool.readings-in-flight", "4", "--log.flush-seconds", str(FLUSH_SECONDS)),
    ]


def _endpoint(stack: ExitStack) -> FaultProxy:
    """An endpoint in this process, behind a proxy."""
    endpoint = stack.enter_context(LoopbackEndpoint(turn_seconds=TURN_SECONDS))
    return stack.enter_context(FaultProxy(upstream=endpoint.url))


def _bucket(stack: ExitStack) -> tuple[Location, FaultProxy, dict[str, Any]]:
    """A bucket of a store in this process, the proxy before it, and the options that lead through the proxy."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    stack.callback(server.stop)
    host, port = server.get_host_and_port()
    proxy = stack.enter_context(FaultProxy(upstream=f"http://{host}:{port}"))
    keys: dict[str, Any] = {"key": "test", "secret": "test"}
    name = f"chaos-{uuid.uuid4().hex[:8]}"  # all stores of this process have the same buckets
    bucket = Location(uri=f"s3://{name}", storage_options={**keys, "client_kwargs": {"endpoint_url": proxy.upstream}})
    bucket.fs.mkdir(bucket.path)
    options = {**keys, "client_kwargs": {"endpoint_url": proxy.url}, "config_kwargs": QUICK_CLIENT}
    return bucket / "run", proxy, options
