"""`jobs/submit.py` to a cluster of several nodes on loopback, with token authentication.

A node that is killed while a submitted job reads is in tests/faults/test_chaos.py.
"""

from pathlib import Path

import httpx
import pytest

from tests.faults.loopback.cluster import LoopbackCluster
from tests.faults.submitted_job import SubmittedJob

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1500)]


def test_cluster_without_the_token_lets_nobody_in(cluster: LoopbackCluster) -> None:
    jobs = httpx.get(f"{cluster.dashboard_url}/api/jobs/", trust_env=False)
    assert jobs.status_code in {401, 403}


def test_submitted_pipeline_finds_the_package_and_gets_its_arguments(cluster: LoopbackCluster) -> None:
    end = SubmittedJob(cluster, ["--help"], program="pipelines/rollouts.py").finish()
    assert (end.status, end.exit_code, end.submit_exit_code) == ("SUCCEEDED", 0, 0), end.console
    assert "--trainer {verl,trl,skyrl}" in end.console


def test_submitted_job_that_is_refused_has_the_exit_code_of_the_run(cluster: LoopbackCluster, tmp_path: Path) -> None:
    arguments = ["--documents", "/nowhere/", "--ask", "Who?", "--model", "tiny", "--output", str(tmp_path / "run")]
    end = SubmittedJob(cluster, [*arguments, "--engine", "simulated"]).finish()
    assert (end.status, end.exit_code, end.submit_exit_code) == ("FAILED", 2, 2), end.console
    assert "/nowhere/: no such file or folder" in end.console
