"""The real job in a place where a fault can strike: its documents, its output, and what stands before it."""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moto.server import ThreadedMotoServer

from memagent_batch.cli.answer import Answer
from memagent_batch.cli.main import read_command
from memagent_batch.config.job import ExecutorKind
from memagent_batch.flows.answer import answer
from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.store.location import Location
from tests import prompt_dependent_engine
from tests.faults.corpus import Corpus, make_corpus
from tests.faults.fault import ON_ENDPOINT, ON_STORE, Fault
from tests.faults.loopback.endpoint import MODEL, loopback_endpoint
from tests.faults.loopback.proxy import FaultProxy
from tests.faults.loopback.small_disk import small_disk
from tests.faults.report import Results, read_results

READINGS_IN_FLIGHT = 4
TURN_SECONDS = 0.1
FLUSH_SECONDS = 0.5
SHORT_PATIENCE_SECONDS = 5.0
"""`log.outage_seconds` where the store stays down."""
HANGING_SECONDS = 20.0
"""`vllm.turn_timeout_seconds` where the engine hangs; far above a turn of the tiny policy, on a busy machine too."""
QUICK_CLIENT = {"connect_timeout": 2, "read_timeout": 2}
"""Settings of the S3 client, so that it gives a silent request up soon."""
FEW_RETRIES = {"retries": {"mode": "standard", "max_attempts": 4}}
"""Settings of a client that does not sit out an outage by itself."""
FEW_TRIES = ("--openai.max-retries", "2", "--openai.backoff-seconds", "0.5")
"""So that an outage lasts longer than a request is sent again by itself."""
PROMPT_DEPENDENT = ("--engine", prompt_dependent_engine.KIND, "--allow-code")
"""An engine without a model whose memories and answers depend on all that was read before."""
VLLM = (
    *("--vllm.turn-timeout-seconds", str(HANGING_SECONDS), "--vllm.cpu-kv-cache-gib", "1"),
    *("--vllm.dtype", "float32"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Where a run takes place."""

    arguments: tuple[str, ...]
    """All arguments of the command."""
    output: Location
    """Where it writes, reached without faults."""
    job_folder: Path
    """Where the console is kept."""
    disk: Path | None
    """The small disk that holds the output, if one does."""
    proxy: FaultProxy | None
    """Proxy before the store or the endpoint that fails, if one does."""
    reference: Results | None
    """What the same job writes that nothing strikes; None where its engine is not one of this process."""


@contextmanager
def make_world(fault: Fault, folder: Path, *, documents: int, chunks: int) -> Iterator[Scenario]:
    """Documents, and a place for the output in which the fault can strike."""
    corpus = make_corpus(folder, chunks=[chunks] * documents)
    arguments = job_arguments(corpus)
    disk, proxy, output = None, None, Location(uri=str(folder / "run"))
    with ExitStack() as stack:
        if fault in ON_ENDPOINT:
            proxy = _endpoint(stack)
            arguments[arguments.index("--model") + 1] = MODEL
            arguments += ["--tokenizer", str(TINY_MODEL)]
            arguments += ["--engine", "openai", "--openai.base-url", f"{proxy.url}/v1", *FEW_TRIES]
        else:
            arguments += VLLM if fault == Fault.ENGINE_HANGS else [*PROMPT_DEPENDENT, *paced(TURN_SECONDS)]
        if fault == Fault.TEXTS_SILENT:
            texts, proxy, options = _bucket(stack, client=QUICK_CLIENT | FEW_RETRIES)
            (texts / corpus.documents.name).write_bytes(corpus.documents.read_bytes())
            arguments[arguments.index("--documents") + 1] = f"{texts.uri}/{corpus.documents.name}"
            arguments += ["--storage-options", json.dumps(options)]
        elif fault in ON_STORE:
            is_up = fault in (Fault.STORE_FLAKY, Fault.STORE_SILENT)
            output, proxy, options = _bucket(stack, client=QUICK_CLIENT if is_up else QUICK_CLIENT | FEW_RETRIES)
            patience = SHORT_PATIENCE_SECONDS if fault == Fault.STORE_DOWN else 300.0
            arguments += ["--storage-options", json.dumps(options), "--log.outage-seconds", str(patience)]
        elif fault == Fault.DISK_FULL:
            disk = stack.enter_context(small_disk(folder / "disk"))
            output = Location(uri=str(disk / "run"))
        yield Scenario(
            arguments=(*arguments, "--output", output.uri),
            output=output,
            job_folder=folder,
            disk=disk,
            proxy=proxy,
            reference=None
            if fault in ON_ENDPOINT or fault == Fault.ENGINE_HANGS
            else _read_undisturbed(corpus, folder),
        )


def job_arguments(corpus: Corpus) -> list[str]:
    """Arguments of a job that is struck, all but engine and output."""
    pool = ("--pool.readings-in-flight", str(READINGS_IN_FLIGHT))
    return [*corpus.arguments(), *pool, "--executor", "ray", "--log.flush-seconds", str(FLUSH_SECONDS)]


def paced(turn_seconds: float) -> tuple[str, str]:
    """Arguments that make the engine answer after this time."""
    return "--engine-options", json.dumps({"turn_seconds": turn_seconds})


def _read_undisturbed(corpus: Corpus, folder: Path) -> Results:
    """The corpus read in this process, by an engine that answers at once."""
    output = folder / "undisturbed"
    arguments = [*job_arguments(corpus), *PROMPT_DEPENDENT, *paced(0), "--output", str(output)]
    job = read_command(Answer, arguments).job()
    answer(job.model_copy(update={"executor": ExecutorKind.LOCAL}))
    return read_results(Location(uri=str(output)))


def _endpoint(stack: ExitStack) -> FaultProxy:
    """An endpoint in this process, behind a proxy."""
    url = stack.enter_context(loopback_endpoint(turn_seconds=TURN_SECONDS))
    return stack.enter_context(FaultProxy(upstream=url))


def _bucket(stack: ExitStack, *, client: Mapping[str, Any]) -> tuple[Location, FaultProxy, dict[str, Any]]:
    """A bucket of a store in this process, the proxy before it, and the options that lead through the proxy."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    stack.callback(server.stop)
    host, port = server.get_host_and_port()
    proxy = stack.enter_context(FaultProxy(upstream=f"http://{host}:{port}"))
    keys: dict[str, Any] = {"key": "test", "secret": "test"}
    name = f"faults-{uuid.uuid4().hex[:8]}"  # all stores of this process have the same buckets
    bucket = Location(uri=f"s3://{name}", storage_options={**keys, "client_kwargs": {"endpoint_url": proxy.upstream}})
    bucket.fs.mkdir(bucket.path)
    options = {**keys, "client_kwargs": {"endpoint_url": proxy.url}, "config_kwargs": dict(client)}
    return bucket / "run", proxy, options
