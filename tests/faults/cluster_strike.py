"""A node of a Ray cluster killed while a job reads: a worker node, or the head with the job's driver."""

import time
from pathlib import Path

from memagent_batch.files.location import Location
from memagent_batch.log.writer import TURNS_FOLDER
from tests.faults.corpus import make_corpus
from tests.faults.fault import Fault
from tests.faults.loopback.cluster import LoopbackCluster
from tests.faults.report import FaultReport, make_report, read_results, seconds_without_turn
from tests.faults.submitted_job import SubmittedJob, reading_node
from tests.faults.world import job_arguments

POOL = ("--pool.replicas", "2", "--pool.cpus-per-replica", "1")
TURN_SECONDS = 0.5
"""Slow enough that no reading has ended when a node is killed."""
TURN_FILES = 4
WORKER_CPUS = 3
"""One worker alone carries both replicas and the tasks beside them."""


def strike_cluster(fault: Fault, folder: Path, *, documents: int, chunks: int) -> FaultReport:
    """Submits the job, kills a node in mid-reading, and sees the job to its end."""
    output = Location(uri=str(folder / "run"))
    arguments = [*job_arguments(make_corpus(folder, chunks=[chunks] * documents)), *POOL]
    arguments += ["--engine", "simulated", "--simulated.turn-seconds", str(TURN_SECONDS), "--output", output.uri]
    clusters = [LoopbackCluster(num_workers=2, worker_cpus=WORKER_CPUS)]
    with clusters[0] as cluster:
        job = SubmittedJob(cluster, arguments)
        job.wait_until(lambda: len((output / TURNS_FOLDER).files()) >= TURN_FILES)
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
        began=began,
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
