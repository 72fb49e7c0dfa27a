"""Strikes the real job with one fault, as clusters and stores do at night, and reports what is left of it.

The job runs with the simulated engine, so that a fault can strike at any moment of it: signals, a second attempt at the
same output, an object store or an endpoint that fails (a proxy before it), a disk that fills up. `kills` does the same
to vLLM.
"""

import random
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.keys import TURNS_FOLDER
from tests.faults.corpus import make_corpus
from tests.faults.fault import ENDPOINT_OUTAGE_SECONDS, EXIT_CODES, ON_CLUSTER, ON_ENDPOINT, SIGNALS, Fault
from tests.faults.killed_job import GONE_SECONDS, KilledJob, Role
from tests.faults.loopback.cluster import LoopbackCluster
from tests.faults.loopback.proxy import RequestFault
from tests.faults.report import FaultReport, make_report, read_results, seconds_without_turn
from tests.faults.scenario import Scenario, job_arguments, make_world, paced
from tests.faults.submitted_job import SubmittedJob, reading_node

TURN_FILES = (2, 8)
"""Fewest and most log files before the fault strikes."""
OUTAGE_SECONDS = 15.0
"""How long the store is down, or the disk full, where it comes back."""
FLAKY = (
    *(RequestFault.INTERNAL_ERROR, RequestFault.UNAVAILABLE, RequestFault.THROTTLED),
    *(RequestFault.RESET, RequestFault.LOST_ANSWER, RequestFault.SLOW),
)
FAILING_SHARE = 0.3
"""Share of requests that a flaky store fails."""
SLOW_SECONDS = 5.0
"""Of a turn of the first of two attempts: it must still be reading when the second one has started Ray and planned."""
CLUSTER_POOL = ("--pool.replicas", "2", "--pool.cpus-per-replica", "1")
CLUSTER_TURN_SECONDS = 0.5
"""Slow enough that no reading has ended when a node is killed."""
CLUSTER_TURN_FILES = 4
WORKER_CPUS = 3
"""One worker alone carries both replicas and the tasks beside them."""


def strike(
    fault: Fault,
    folder: Path,
    *,
    rng: random.Random,
    documents: int = 8,
    chunks: int = 33,
    outage_share: float = 1.0,
) -> FaultReport:
    """Runs the job, lets the fault strike in mid-reading, and lets the job finish.

    Args:
        fault: What strikes.
        folder: Where documents, output and console lie.
        rng: Draws the moment.
        documents: Number of documents.
        chunks: Chunks of each, about.
        outage_share: Part of `ENDPOINT_OUTAGE_SECONDS` for which an endpoint is away.
    """
    if fault in ON_CLUSTER:
        return _strike_cluster(fault, folder, documents=documents, chunks=chunks)
    with ExitStack() as stack:
        scenario = stack.enter_context(make_world(fault, folder, documents=documents, chunks=chunks))
        slow = paced(SLOW_SECONDS) if fault == Fault.SECOND_ATTEMPT else ()
        job = stack.enter_context(KilledJob([*scenario.arguments, *slow], output=scenario.job_folder / "job"))
        if fault == Fault.TEXTS_SILENT:
            _start_planned(job, scenario)
        else:
            _start_reading(job, scenario, files=rng.randint(*TURN_FILES))
        began = time.time()
        left = _strike(fault, job, scenario, outage_seconds=ENDPOINT_OUTAGE_SECONDS.get(fault, 0.0) * outage_share)
        if fault != Fault.SECOND_ATTEMPT and (code := job.finish()):
            raise RuntimeError(f"{fault}: the run did not go on, exit code {code}: {job.last_words()}")
        if fault in (Fault.STORE_FLAKY, Fault.STORE_SILENT):
            _require_struck(fault, scenario)
        _, outlived = job.wait_until_gone(patience=GONE_SECONDS)
        results = read_results(scenario.output)
        return make_report(
            results,
            fault=fault,
            asked=documents,
            seconds_to_recover=[seconds_without_turn(results, began=began)],
            processes_left=[*left, *outlived],
            console=job.last_words(),
            reference=scenario.reference,
        )


def _strike_cluster(fault: Fault, folder: Path, *, documents: int, chunks: int) -> FaultReport:
    """Submits the job, kills a node in mid-reading, and sees the job to its end."""
    output = Location(uri=str(folder / "run"))
    arguments = [*job_arguments(make_corpus(folder, chunks=[chunks] * documents)), *CLUSTER_POOL]
    arguments += ["--engine", "simulated", "--simulated.turn-seconds", str(CLUSTER_TURN_SECONDS)]
    arguments += ["--output", output.uri]
    clusters = [LoopbackCluster(num_workers=2, worker_cpus=WORKER_CPUS)]
    with clusters[0] as cluster:
        job = SubmittedJob(cluster, arguments)
        job.wait_until(lambda: len((output / TURNS_FOLDER).files()) >= CLUSTER_TURN_FILES)
        began = time.time()
        if fault == Fault.NODE_KILLED:
            reading_node(cluster).kill()
            console = _require_success(job, fault)
        else:
            cluster.nodes[0].kill()
            job.abandon()
    if fault == Fault.HEAD_KILLED:
        clusters.append(LoopbackCluster(num_workers=2, worker_cpus=WORKER_CPUS))
        with clusters[1] as cluster:
            console = _require_success(SubmittedJob(cluster, arguments), fault)
    left = [title for cluster in clusters for title in cluster.left()]
    results = read_results(output)
    return make_report(
        results,
        fault=fault,
        asked=documents,
        seconds_to_recover=[seconds_without_turn(results, began=began)],
        processes_left=left,
        console=console,
    )


def _require_success(job: SubmittedJob, fault: Fault) -> str:
    """Waits for the end of the job; returns its console."""
    end = job.finish()
    if end.status != "SUCCEEDED":
        raise RuntimeError(f"{fault}: the job ended as {end.status}: {end.console[-3000:]}")
    return end.console


def _start_reading(job: KilledJob, scenario: Scenario, *, files: int) -> None:
    """Starts the command and waits for that many log files."""
    job.start()
    if not job.wait_until(lambda: len((scenario.output / "log/turns").files()) >= files):
        raise RuntimeError(f"the command ended before the fault struck: {job.last_words()}")


def _start_planned(job: KilledJob, scenario: Scenario) -> None:
    """Starts the command and waits until the run is recorded: it is planned, and no text has been fetched yet."""
    job.start()
    if not job.wait_until((scenario.output / "run.json").exists):
        raise RuntimeError(f"the command ended before the fault struck: {job.last_words()}")


def _strike(fault: Fault, job: KilledJob, scenario: Scenario, *, outage_seconds: float) -> list[str]:
    """Lets the fault strike; the job runs when this returns. Returns processes that should be gone and are not."""
    match fault:
        case Fault.DRIVER_TERMINATED | Fault.DRIVER_INTERRUPTED | Fault.DRIVER_KILLED:
            _find(job, Role.DRIVER).send_signal(SIGNALS[fault])
            _again(fault, job)
        case Fault.ACTOR_TERMINATED | Fault.ACTOR_KILLED:
            _find(job, Role.ACTOR).send_signal(SIGNALS[fault])
        case Fault.ENGINE_HANGS:
            return _stop_engine(job)
        case Fault.SECOND_ATTEMPT:
            with KilledJob(list(scenario.arguments), output=scenario.job_folder / "second") as second:
                second.start()
                _require_code(fault, job)
                if code := second.finish():
                    raise RuntimeError(f"the second attempt ended with {code}: {second.last_words()}")
        case Fault.DISK_FULL:
            _fill_disk(scenario)
        case _ if fault in ON_ENDPOINT:
            _strike_endpoint(fault, job, scenario, outage_seconds=outage_seconds)
        case _:
            _strike_store(fault, job, scenario)
    return []


def _strike_endpoint(fault: Fault, job: KilledJob, scenario: Scenario, *, outage_seconds: float) -> None:
    if scenario.proxy is None:
        raise RuntimeError(f"{fault}: no endpoint reads the documents")
    match fault:
        case Fault.ENDPOINT_REFUSED:
            scenario.proxy.refuse()
            time.sleep(outage_seconds)
            scenario.proxy.listen()
        case Fault.KEY_EXPIRED:
            scenario.proxy.strike(RequestFault.UNAUTHORIZED, rate=1)
            _require_code(fault, job)
            scenario.proxy.strike(rate=0)
            _again(fault, job)
        case _:
            answer = RequestFault.THROTTLED if fault == Fault.ENDPOINT_QUOTA else RequestFault.UNAVAILABLE
            scenario.proxy.strike(answer, rate=1)
            time.sleep(outage_seconds)
            scenario.proxy.strike(rate=0)


def _strike_store(fault: Fault, job: KilledJob, scenario: Scenario) -> None:
    if scenario.proxy is None:
        raise RuntimeError(f"{fault}: no store holds output or documents")
    match fault:
        case Fault.STORE_FLAKY:
            scenario.proxy.strike(*FLAKY, rate=FAILING_SHARE)
        case Fault.STORE_SILENT:
            scenario.proxy.strike(RequestFault.SILENT, rate=0.1)
        case Fault.STORE_REFUSED:
            scenario.proxy.refuse()
            time.sleep(OUTAGE_SECONDS)
            scenario.proxy.listen()
        case Fault.STORE_OUTAGE:
            scenario.proxy.strike(RequestFault.UNAVAILABLE, RequestFault.RESET, rate=1)
            time.sleep(OUTAGE_SECONDS)
            scenario.proxy.strike(rate=0)
        case Fault.TEXTS_SILENT:
            scenario.proxy.strike(RequestFault.SILENT, rate=1)
            _require_code(fault, job)
            scenario.proxy.strike(rate=0)
            _again(fault, job)
        case Fault.STORE_DOWN:
            scenario.proxy.strike(RequestFault.UNAVAILABLE, RequestFault.RESET, rate=1)
            _require_code(fault, job)
            scenario.proxy.strike(rate=0)
            _again(fault, job)


def _again(fault: Fault, job: KilledJob) -> None:
    """Gives the command again as soon as it has ended as it should, though processes of it may still be there."""
    _require_code(fault, job)
    job.start()


def _require_code(fault: Fault, job: KilledJob) -> None:
    if (code := job.finish()) != EXIT_CODES[fault]:
        raise RuntimeError(f"{fault}: exit code {code}, not {EXIT_CODES[fault]}: {job.last_words()}")


def _require_struck(fault: Fault, scenario: Scenario) -> None:
    if scenario.proxy is None or not scenario.proxy.struck:
        raise RuntimeError(f"{fault}: no request was struck")


def _find(job: KilledJob, role: Role) -> psutil.Process:
    process = job.find(role)
    if process is None:
        raise RuntimeError(f"there is no {role}: {job.last_words()}")
    return process


def _stop_engine(job: KilledJob) -> list[str]:
    """Stops vLLM's process without ending it; its title if it is still there when the engine has been replaced."""
    engine = _find(job, Role.ENGINE)
    engine.suspend()
    job.wait_until(lambda: (now := job.find(Role.ENGINE)) is not None and now.pid != engine.pid)
    return [f"{engine.pid} (stopped)"] if engine.is_running() else []


def _fill_disk(scenario: Scenario) -> None:
    if scenario.disk is None:
        raise RuntimeError("the output is on no small disk")
    ballast = scenario.disk / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        try:
            while stream.write(bytes(4096)):
                pass
        except OSError:
            pass  # full
    time.sleep(OUTAGE_SECONDS)
    ballast.unlink()
