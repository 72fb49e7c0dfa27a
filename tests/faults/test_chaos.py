"""The whole job, struck in mid-reading: it ends with one row for each reading, as if nothing had happened.

The engine is simulated, so that it can be struck at any moment; `flows/test_main_job` kills vLLM.
"""

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.answer import Answer
from memagent_batch.cli.main import read_command
from memagent_batch.config.job import ExecutorKind
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.files import TURNS_FOLDER
from memagent_batch.run.flows.answer import answer
from tests import prompt_dependent_engine
from tests.faults.corpus import Corpus, make_corpus
from tests.faults.killed_job import KilledJob, Role
from tests.faults.loopback.cluster import LoopbackCluster
from tests.faults.loopback.proxy import FaultProxy, RequestFault
from tests.faults.results import Results, read_results
from tests.faults.submitted_job import SubmittedJob, reading_node
from tests.processes import runs

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]

NUM_DOCUMENTS, NUM_CHUNKS = 8, 33
TURN_FILES = 4
"""Files of the log before the strike."""
OUTAGE_SECONDS = 15.0
FLAKY_SHARE = 0.3
"""Of the requests to a flaky store: those that fail, are slow or hang."""
FLAKY_CLIENT = {"connect_timeout": 2, "read_timeout": 2}
"""So that the S3 client gives a request that hangs up soon."""
AWAY_CLIENT = FLAKY_CLIENT | {"retries": {"mode": "standard", "max_attempts": 4}}
"""So that it does not sit out an outage by itself."""
HANGING_SECONDS = 20.0
"""Far above a turn of the tiny policy, on a busy machine too."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), num_documents=NUM_DOCUMENTS, num_chunks=NUM_CHUNKS)


@pytest.fixture(scope="module")
def undisturbed(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Read in this process, by an engine that answers at once."""
    output = tmp_path_factory.mktemp("undisturbed") / "run"
    job = read_command(Answer, [*simulated(corpus, turn_seconds=0), "--output", str(output)]).job()
    answer(job.model_copy(update={"executor": ExecutorKind.LOCAL}))
    return read_results(Location(uri=str(output)), asked=NUM_DOCUMENTS)


def arguments_of(corpus: Corpus) -> list[str]:
    sizes = ["--pool.readings-in-flight", "4", "--log.flush-seconds", "0.5"]
    return [*corpus.arguments(), "--executor", "ray", *sizes]


def simulated(corpus: Corpus, *, turn_seconds: float = 0.1) -> list[str]:
    """An engine without a model, whose memories and answers depend on all that was read before."""
    engine = ["--engine", prompt_dependent_engine.KIND, "--allow-code"]
    return [*arguments_of(corpus), *engine, "--engine-options", json.dumps({"turn_seconds": turn_seconds})]


@contextmanager
def reading_job(arguments: list[str], output: Location, folder: Path) -> Iterator[KilledJob]:
    with KilledJob([*arguments, "--output", output.uri], output=folder / "job") as job:
        job.start()
        assert job.wait_until(lambda: len((output / TURNS_FOLDER).files()) >= TURN_FILES), job.last_words()
        yield job


def require_end(job: KilledJob, output: Location, *, undisturbed: Results, is_orderly: bool) -> None:
    """The job ends with the undisturbed rows and leaves no process; an orderly one repeats no turn."""
    assert job.finish() == 0, job.last_words()
    job.require_gone()
    results = read_results(output, asked=NUM_DOCUMENTS)
    assert results.rows == undisturbed.rows
    if is_orderly:
        assert results.logged.total() == len(results.logged)


@pytest.mark.parametrize(
    ("number", "exit_code", "said"),
    [
        (signal.SIGKILL, -9, ""),
        (signal.SIGTERM, 143, "stopped: SIGTERM: .*the same command goes on"),
        (signal.SIGINT, 130, "stopped; the same command goes on from here"),
    ],
)
def test_driver_that_is_stopped_goes_on_with_the_same_command(
    number: signal.Signals, exit_code: int, said: str, corpus: Corpus, undisturbed: Results, tmp_path: Path
) -> None:
    output = Location(uri=str(tmp_path / "run"))
    with reading_job(simulated(corpus), output, tmp_path) as job:
        job.require(Role.DRIVER).send_signal(number)
        assert job.finish() == exit_code, job.last_words()
        assert re.search(said, job.last_words(), re.DOTALL)
        job.start()
        require_end(job, output, undisturbed=undisturbed, is_orderly=number != signal.SIGKILL)


def test_actor_that_is_killed_is_replaced(corpus: Corpus, undisturbed: Results, tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path / "run"))
    with reading_job(simulated(corpus), output, tmp_path) as job:
        job.require(Role.ACTOR).kill()
        require_end(job, output, undisturbed=undisturbed, is_orderly=False)


def through(proxy: FaultProxy, bucket: Location, client: dict[str, Any]) -> list[str]:
    place = {"client_kwargs": {"endpoint_url": proxy.url}, "config_kwargs": client}
    return ["--storage-options", json.dumps({**bucket.storage_options, **place}), "--log.outage-seconds", "300"]


@pytest.mark.s3
def test_store_that_is_flaky_and_slow_costs_nothing(
    corpus: Corpus, undisturbed: Results, s3_bucket: Location, proxy: FaultProxy, tmp_path: Path
) -> None:
    output, arguments = s3_bucket / "run", [*simulated(corpus), *through(proxy, s3_bucket, FLAKY_CLIENT)]
    with reading_job(arguments, output, tmp_path) as job:
        proxy.strike(*(fault for fault in RequestFault if fault != RequestFault.UNAUTHORIZED), rate=FLAKY_SHARE)
        require_end(job, output, undisturbed=undisturbed, is_orderly=False)
    assert proxy.struck.total() > 0


@pytest.mark.s3
def test_store_that_is_down_for_a_while_is_waited_for(
    corpus: Corpus, undisturbed: Results, s3_bucket: Location, proxy: FaultProxy, tmp_path: Path
) -> None:
    output, arguments = s3_bucket / "run", [*simulated(corpus), *through(proxy, s3_bucket, AWAY_CLIENT)]
    with reading_job(arguments, output, tmp_path) as job:
        proxy.strike(RequestFault.UNAVAILABLE, RequestFault.RESET, rate=1)
        time.sleep(OUTAGE_SECONDS)
        proxy.strike(rate=0)
        require_end(job, output, undisturbed=undisturbed, is_orderly=True)
    assert proxy.struck.total() > 0


@pytest.mark.vllm
def test_engine_that_hangs_is_replaced(corpus: Corpus, tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path / "run"))
    vllm = ["--vllm.turn-timeout-seconds", str(HANGING_SECONDS), "--vllm.cpu-kv-cache-gib", "1"]
    vllm += ["--vllm.enforce-eager", "true"]
    with reading_job([*arguments_of(corpus), *vllm, "--vllm.dtype", "float32"], output, tmp_path) as job:
        engine = job.require(Role.ENGINE)
        old = {engine.pid, engine.ppid()}  # with its fork server, which ends after it
        engine.suspend()
        assert job.wait_until(lambda: (now := job.find(Role.ENGINE)) is not None and now.pid not in old)
        assert not runs(engine)
        assert job.finish() == 0, job.last_words()
        job.require_gone()
    assert read_results(output, asked=NUM_DOCUMENTS).counts["ok"] == NUM_DOCUMENTS


@pytest.mark.parametrize("node", ["worker", "head"])
def test_node_that_is_killed_loses_no_reading(node: str, corpus: Corpus, undisturbed: Results, tmp_path: Path) -> None:
    """The others go on without a worker; without its head, the same command is given to a new cluster."""
    output = Location(uri=str(tmp_path / "run"))
    pool = ["--engine", "simulated", "--simulated.turn-seconds", "0.5", "--output", output.uri]
    arguments = [*arguments_of(corpus), *pool, "--pool.replicas", "2", "--pool.cpus-per-replica", "1"]
    with LoopbackCluster(num_workers=2, worker_cpus=3) as cluster:
        job = SubmittedJob(cluster, arguments)
        job.wait_until(lambda: len((output / TURNS_FOLDER).files()) >= TURN_FILES)
        if node == "worker":
            reading_node(cluster).kill()
            require_success(job)
        else:
            cluster.nodes[0].kill()
            job.abandon()
    assert cluster.left() == []
    if node == "head":
        with LoopbackCluster(num_workers=2, worker_cpus=3) as cluster:
            require_success(SubmittedJob(cluster, arguments))
    results = read_results(output, asked=NUM_DOCUMENTS)
    assert results.counts["ok"] == NUM_DOCUMENTS
    assert results.rows.keys() == undisturbed.rows.keys()


def require_success(job: SubmittedJob) -> None:
    end = job.finish()
    assert end.status == "SUCCEEDED", end.console[-3000:]
