"""A job on a real cluster as operators run it: `ray job submit` with token authentication, and a worker node killed.

Head and two workers are nodes of their own on this machine. Shown: that nobody gets in without the token, that a run
goes on when a node is killed with SIGKILL, and that the job's exit code is the run's.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.loopback_cluster import BIN, LoopbackCluster, Node

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 600.0
"""Longest wait for anything that a job does next."""
ADDRESS_OF_A_TURN = ["document_hash", "question_hash", "sample", "reader_fingerprint", "path"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of one job."""

    what: str
    """The case."""
    status: str
    """Status of the Ray job."""
    exit_code: int | None
    """Exit code of the run, as Ray keeps it."""
    submit_exit_code: int
    """Exit code of `ray job submit`, which is 1 for every failed job."""
    seconds: float
    """From submission to end."""
    counts: dict[str, Any] = field(default_factory=dict)
    """Counts of the manifest."""
    turns_repeated: int = 0
    """Turns that the log holds more than once."""
    killed: str | None = None
    """Node that was killed."""
    killed_processes: int = 0
    """Its processes."""
    console: str = ""
    """What the job wrote."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true", help="JSON lines only")
    known = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, LoopbackCluster(num_workers=2, worker_cpus=3) as cluster:
        print(json.dumps({"benchmark": "job_submission", "what": "no token", "http_status": knock(cluster)}))
        config = make_job(Path(folder), model="tiny")
        for report in (lose_a_node(cluster, config, output=Path(folder) / "run"), refuse(cluster, config)):
            figures = asdict(report)
            console = figures.pop("console")
            print(json.dumps({"benchmark": "job_submission", **figures}))
            if not known.json:
                print(console)


def make_job(folder: Path, *, model: str, num_documents: int = 40) -> Path:
    """Documents and a job file that reads them in some 25 s with two replicas that need no model."""
    rows = [
        {"document_id": f"d{number}", "text": f"{number} " + "the fox jumps over 12345 dogs. " * 60}
        for number in range(num_documents)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    knobs = {
        "documents": str(folder / "documents.parquet"),
        "ask": ["Who?"],
        "output": str(folder / "run"),
        "engine": "simulated",
        "model": model,
        "window_tokens": 1000,
        "policy": {"chunk_tokens": 50, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40},
        "simulated": {"turn_seconds": 0.4},
        "pool": {"replicas": 2, "cpus_per_replica": 1, "readings_in_flight": 6},
        "log": {"flush_seconds": 1},
        "log_format": "json",
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(knobs))
    return folder / "job.yaml"


def knock(cluster: LoopbackCluster) -> int:
    """HTTP status of a request for the jobs without the token."""
    return httpx.get(f"{cluster.dashboard_url}/api/jobs/", trust_env=False).status_code


def lose_a_node(cluster: LoopbackCluster, config: Path, *, output: Path) -> Report:
    """Submits the job, and kills a worker node that reads, when some readings have ended."""
    job = Job(cluster, ["--config", str(config), "--output", str(output)])
    job.wait_until(lambda: len(outcomes_in(output)) >= 1)
    node = reading_node(cluster)
    num_processes = node.kill()
    report = job.finish("worker node killed")
    manifest = json.loads((output / "manifest.json").read_text()) if (output / "manifest.json").exists() else {}
    turns = pq.read_table(output / "log" / "turns", columns=ADDRESS_OF_A_TURN).to_pylist()
    return Report(
        **report,
        counts=manifest.get("counts", {}),
        turns_repeated=len(turns) - len({tuple(turn.values()) for turn in turns}),
        killed=node.name,
        killed_processes=num_processes,
    )


def refuse(cluster: LoopbackCluster, config: Path) -> Report:
    """Submits a job whose documents are not there."""
    output = config.with_name("refused")
    job = Job(cluster, ["--config", str(config), "--output", str(output), "--documents", "/nowhere/"])
    return Report(**job.finish("documents missing"))


def outcomes_in(output: Path) -> list[Path]:
    """Files of ended readings."""
    return [path for path in (output / "log" / "outcomes").glob("*") if not path.name.startswith(".")]


def reading_node(cluster: LoopbackCluster) -> Node:
    """A worker node with an actor that reads.

    Raises:
        RuntimeError: there is none.
    """
    for node in cluster.nodes[1:]:
        if node.readers():
            return node
    raise RuntimeError("no worker node holds an actor that reads")


class Job:
    """One submitted job."""

    def __init__(self, cluster: LoopbackCluster, arguments: Sequence[str]) -> None:
        """Submits `python -m jobs.answer` with the arguments."""
        self._cluster = cluster
        self._began = time.monotonic()
        submit = ["job", "submit", "--address", cluster.dashboard_url, "--log-color", "false", "--working-dir", "."]
        self._submitted = subprocess.Popen(
            [BIN / "ray", *submit, "--", "python", "-m", "jobs.answer", *arguments],
            env={name: value for name, value in cluster.environment.items() if name != "PYTHONPATH"},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Waits until it holds.

        Raises:
            RuntimeError: the job ended before.
            TimeoutError: nothing happened.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            if self._submitted.poll() is not None:
                raise RuntimeError(f"the job ended too early: {self._submitted.communicate()[0][-3000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing happened for {PATIENCE_SECONDS:g} s")
            time.sleep(0.1)

    def abandon(self) -> None:
        """Waits for no end: the cluster that ran it is gone."""
        self._submitted.kill()
        self._submitted.communicate()

    def finish(self, what: str) -> dict[str, Any]:
        """Waits for its end; fields of a Report."""
        console, _ = self._submitted.communicate(timeout=PATIENCE_SECONDS)
        seconds = time.monotonic() - self._began
        token = Path(self._cluster.environment["RAY_AUTH_TOKEN_PATH"]).read_text().strip()
        header = {"Authorization": f"Bearer {token}"}
        jobs = httpx.get(f"{self._cluster.dashboard_url}/api/jobs/", headers=header, trust_env=False).json()
        (job,) = [job for job in jobs if job["submission_id"] and f"'{job['submission_id']}'" in console]
        return {
            "what": what,
            "status": job["status"],
            "exit_code": job["driver_exit_code"],
            "submit_exit_code": self._submitted.returncode,
            "seconds": round(seconds, 1),
            "console": console,
        }


if __name__ == "__main__":
    main()
