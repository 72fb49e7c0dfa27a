"""`ray job submit` to a cluster of several nodes on loopback, with token authentication."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.job_submission import knock, lose_a_node, make_job, refuse
from benchmarks.loopback_cluster import LoopbackCluster

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1500)]

DOCUMENTS = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[LoopbackCluster]:
    with LoopbackCluster(num_workers=2, worker_cpus=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def config(text_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_job(tmp_path_factory.mktemp("job"), model=text_model, num_documents=DOCUMENTS)


def test_cluster_without_the_token_lets_nobody_in(cluster: LoopbackCluster) -> None:
    assert knock(cluster) in {401, 403}


def test_submitted_job_goes_on_when_a_worker_node_is_killed(
    cluster: LoopbackCluster, config: Path, tmp_path: Path
) -> None:
    report = lose_a_node(cluster, config, output=tmp_path / "run")
    assert (report.status, report.exit_code, report.submit_exit_code) == ("SUCCEEDED", 0, 0), report.console
    assert (report.counts["asked"], report.counts["ok"], report.counts["answers_rows"]) == (DOCUMENTS,) * 3
    rows = pq.read_table(tmp_path / "run" / "answers", columns=["document_id"])["document_id"].to_pylist()
    assert sorted(rows) == sorted(f"d{number}" for number in range(DOCUMENTS))
    events = [json.loads(line)["event"] for line in report.console.splitlines() if line.startswith('{"time"')]
    assert {"run_started", "run_closed"} <= set(events)


def test_submitted_job_that_is_refused_has_the_exit_code_of_the_run(cluster: LoopbackCluster, config: Path) -> None:
    report = refuse(cluster, config)
    assert (report.status, report.exit_code, report.submit_exit_code) == ("FAILED", 2, 1), report.console
    assert "/nowhere/: no such file or folder" in report.console
