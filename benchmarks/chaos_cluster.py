"""A node of a Ray cluster killed while a job reads: a worker node, or the head with the job's driver."""

import time
from pathlib import Path

from benchmarks.chaos_report import ChaosReport, read_report
from benchmarks.chaos_world import write_documents
from benchmarks.job_submission import Job, reading_node
from benchmarks.loopback_cluster import LoopbackCluster
from benchmarks.troubles import Trouble
from memagent_batch.files.location import Location
from memagent_batch.log.writer import TURNS_FOLDER

POOL = ("--pool.replicas", "2", "--pool.cpus-per-replica", "1")
TURN_SECONDS = 0.5
"""Slow enough that nobody has finished when a node is killed."""
TURN_FILES = 4
"""Log files before that."""
WORKER_CPUS = 3
"""One worker alone carries both replicas and the tasks beside them."""


def strike_cluster(trouble: Trouble, folder: Path, *, documents: int, chunks: int) -> ChaosReport:
    """Submits the job, kills a node in mid-reading, and sees the job to its end.

    Raises:
        RuntimeError: the job did not end as it should; shows the end of its console.
    """
    output = Location(uri=str(folder / "run"))
    arguments = [*write_documents(folder, documents=documents, chunks=chunks), *POOL]
    arguments += ["--engine", "simulated", "--simulated.turn-seconds", str(TURN_SECONDS), "--output", output.uri]
    clusters = [LoopbackCluster(num_workers=2, worker_cpus=WORKER_CPUS)]
    with clusters[0] as cluster:
        job = Job(cluster, arguments)
        job.wait_until(lambda: len((output / TURNS_FOLDER).files()) >= TURN_FILES)
        began = time.time()
        if trouble == Trouble.NODE_KILLED:
            reading_node(cluster).kill()
            said = _require_success(job, trouble)
        else:
            cluster.nodes[0].kill()
            job.abandon()
    if trouble == Trouble.HEAD_KILLED:
        clusters.append(LoopbackCluster(num_workers=2, worker_cpus=WORKER_CPUS))
        with clusters[1] as cluster:
            said = _require_success(Job(cluster, arguments), trouble)
    left = [title for cluster in clusters for title in cluster.left()]
    return read_report(output, trouble=trouble, asked=documents, began=began, processes_left=left, said=said)


def _require_success(job: Job, trouble: Trouble) -> str:
    """What the job said, which ended well."""
    end = job.finish(trouble)
    if end["status"] != "SUCCEEDED":
        raise RuntimeError(f"{trouble}: the job ended as {end['status']}: {end['console'][-3000:]}")
    return str(end["console"])
