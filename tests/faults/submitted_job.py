"""The main job submitted to a cluster as operators do it: `jobs/submit.py` with token authentication."""

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.faults.loopback.cluster import BIN, LoopbackCluster, Node

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    status: str
    exit_code: int | None
    submit_exit_code: int
    console: str


def reading_node(cluster: LoopbackCluster) -> Node:
    for node in cluster.nodes[1:]:
        if node.readers():
            return node
    raise RuntimeError("no worker node holds an actor that reads")


class SubmittedJob:
    def __init__(self, cluster: LoopbackCluster, arguments: Sequence[str], *, program: str = "answer") -> None:
        """Submits a command of `memagent`, or a pipeline, with the arguments."""
        self._cluster = cluster
        environment = {name: value for name, value in cluster.environment.items() if name != "PYTHONPATH"}
        self._submission = subprocess.Popen(
            [BIN / "python", "jobs/submit.py", program, *arguments],
            env={**environment, "RAY_API_SERVER_ADDRESS": cluster.dashboard_url},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            if self._submission.poll() is not None:
                raise RuntimeError(f"the job ended too early: {self._submission.communicate()[0][-3000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing happened for {PATIENCE_SECONDS:g} s")
            time.sleep(0.1)

    def abandon(self) -> None:
        """Stops waiting for its end: the cluster that ran it is gone."""
        self._submission.kill()
        self._submission.communicate()

    def finish(self) -> JobEnd:
        console, _ = self._submission.communicate(timeout=PATIENCE_SECONDS)
        token = Path(self._cluster.environment["RAY_AUTH_TOKEN_PATH"]).read_text().strip()
        header = {"Authorization": f"Bearer {token}"}
        jobs = httpx.get(f"{self._cluster.dashboard_url}/api/jobs/", headers=header, trust_env=False).json()
        (job,) = [job for job in jobs if job["submission_id"] and f"'{job['submission_id']}'" in console]
        return JobEnd(
            status=job["status"],
            exit_code=job["driver_exit_code"],
            submit_exit_code=self._submission.returncode,
            console=console,
        )
