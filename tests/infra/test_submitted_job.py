"""`ray job submit` to a cluster of several nodes on loopback, with token authentication."""

import json
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
import yaml

from tests.faults.corpus import make_corpus
from tests.faults.loopback.cluster import LoopbackCluster
from tests.faults.submitted_job import JobEnd, SubmittedJob, reading_node

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1500)]

DOCUMENTS, CHUNKS = 20, 12


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job file: two replicas that need no model read it in some 15 s."""
    folder = tmp_path_factory.mktemp("job")
    corpus = make_corpus(folder, chunks=[CHUNKS] * DOCUMENTS)
    knobs = {
        "documents": str(corpus.documents),
        "questions": str(corpus.questions),
        "engine": "simulated",
        "model": "tiny",
        "window_tokens": 1000,
        "policy": {"chunk_tokens": 50, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40},
        "simulated": {"turn_seconds": 0.4},
        "pool": {"replicas": 2, "cpus_per_replica": 1, "readings_in_flight": 6},
        "log": {"flush_seconds": 1},
        "log_format": "json",
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(knobs))
    return folder / "job.yaml"


def exits_of(end: JobEnd) -> tuple[str, int | None, int]:
    return end.status, end.exit_code, end.submit_exit_code


def test_cluster_without_the_token_lets_nobody_in(cluster: LoopbackCluster) -> None:
    jobs = httpx.get(f"{cluster.dashboard_url}/api/jobs/", trust_env=False)
    assert jobs.status_code in {401, 403}


@pytest.mark.slow
def test_submitted_job_goes_on_when_a_worker_node_is_killed(
    cluster: LoopbackCluster, config: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    job = SubmittedJob(cluster, ["--config", str(config), "--output", str(output)])
    job.wait_until(lambda: any((output / "log" / "outcomes").glob("[!.]*")))
    reading_node(cluster).kill()
    end = job.finish()
    assert exits_of(end) == ("SUCCEEDED", 0, 0), end.console
    counts = json.loads((output / "manifest.json").read_text())["counts"]
    assert (counts["asked"], counts["ok"], counts["answers_rows"]) == (DOCUMENTS,) * 3
    rows = pq.read_table(output / "answers", columns=["document_id"])["document_id"].to_pylist()
    assert sorted(rows) == sorted(f"d{number}" for number in range(DOCUMENTS))
    events = [json.loads(line)["event"] for line in end.console.splitlines() if line.startswith('{"time"')]
    assert {"run_started", "run_closed"} <= set(events)


def test_submitted_job_that_is_refused_has_the_exit_code_of_the_run(cluster: LoopbackCluster, config: Path) -> None:
    output = config.with_name("refused")
    end = SubmittedJob(cluster, ["--config", str(config), "--output", str(output), "--documents", "/nowhere/"]).finish()
    assert exits_of(end) == ("FAILED", 2, 1), end.console
    assert "/nowhere/: no such file or folder" in end.console
