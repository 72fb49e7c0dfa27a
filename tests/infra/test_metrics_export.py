"""A run on a real Ray cluster, scraped by a real Prometheus: every panel and every alert finds what it asks for."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from memagent_batch.data.store.location import Location
from memagent_batch.run.executors.ray.metrics import COUNTERS
from memagent_batch.run.history import find_run
from tests.faults.loopback.cluster import LoopbackCluster, wait_until_listed
from tests.faults.loopback.prometheus import RULES, Prometheus, loopback_prometheus

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
PANELS = json.loads((ROOT / "infra" / "grafana" / "memagent.json").read_text())["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
PATIENCE_SECONDS = 300
DOCUMENTS = 16


@pytest.fixture(scope="module")
def prometheus(cluster: LoopbackCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    wait_until_listed(cluster.scrape_targets, num_nodes=len(cluster.nodes))
    with loopback_prometheus(cluster, tmp_path_factory.mktemp("prometheus")) as prometheus:
        yield prometheus


@pytest.fixture(scope="module")
def corpus(text_model: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments of a job with one question that is too long, and with memories that are cut."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = [f"{number} " + "the fox jumps over 12345 dogs. " * 35 for number in range(DOCUMENTS)]
    rows = [{"document_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    questions = [{"question": "Who?"}, {"question": "Why? " * 100, "document_id": "d0"}]
    (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in questions))
    settings = {
        "documents": str(folder / "documents.parquet"),
        "questions": str(folder / "questions.jsonl"),
        "engine": "simulated",
        "model": text_model,
        "window_tokens": 1000,
        "policy": {"chunk_tokens": 50, "question_tokens": 60, "memory_tokens": 10, "answer_tokens": 40},
        "simulated": {"turn_seconds": 0.5, "completion_tokens": 16},
        "pool": {"readings_in_flight": 4},
        "log": {"flush_seconds": 1},
        "max_failed_share": 0.1,
        "log_format": "json",
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(settings))
    return ["--config", str(folder / "job.yaml")]


def start_job(cluster: LoopbackCluster, arguments: list[str], output: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "memagent_batch", "answer", *arguments, "--output", str(output)],
        env=cluster.environment | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(holds: Callable[[], bool], *, what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"after {PATIENCE_SECONDS} s: {what()}")
        time.sleep(0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    output: Path
    before: dict[str, int]


@pytest.fixture(scope="module")
def finished_run(
    cluster: LoopbackCluster, prometheus: Prometheus, corpus: list[str], tmp_path_factory: pytest.TempPathFactory
) -> FinishedRun:
    output = tmp_path_factory.mktemp("finished") / "run"
    before = {name: prometheus.total(f"ray_{name}_total") for name, _ in COUNTERS.values()}
    job = start_job(cluster, [*corpus, "--simulated.turn-seconds", "0"], output)
    _, said = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 0, said
    return FinishedRun(output=output, before=before)


def test_run_counts_reach_prometheus_whole_when_it_ends(finished_run: FinishedRun, prometheus: Prometheus) -> None:
    spent = find_run(Location(uri=str(finished_run.output))).manifest["spent"]
    rows = pq.read_table(finished_run.output / "log" / "turns").to_pylist()
    assert spent is not None
    turns = [row for row in rows if not row["is_copy"]]  # equal prompts are asked once
    assert 0 < len(turns) < len(rows)
    expected = {
        "memagent_readings": DOCUMENTS + 1,
        "memagent_failed_readings": 1,
        "memagent_turns": len(turns),
        "memagent_prompt_tokens": spent["num_prompt_tokens"],
        "memagent_completion_tokens": spent["num_completion_tokens"],
        "memagent_memory_truncations": sum(turn["kind"] == "update" for turn in turns),
    }

    def counted() -> dict[str, int]:
        return {name: prometheus.total(f"ray_{name}_total") - finished_run.before[name] for name in expected}

    wait_until(lambda: counted() == expected, what=lambda: (counted(), expected))


@pytest.mark.usefixtures("finished_run")
def test_run_shows_data_in_every_panel_and_counts_an_engine_that_goes_away(
    cluster: LoopbackCluster, prometheus: Prometheus, corpus: list[str], tmp_path: Path
) -> None:
    before = prometheus.total("ray_memagent_turns_total")
    job = start_job(cluster, corpus, tmp_path / "run")
    missing = set(QUERIES)
    wait_until(lambda: prometheus.total("ray_memagent_turns_total") > before, what=lambda: missing)

    def all_answer() -> bool:
        missing.difference_update([query for query in missing if prometheus.query(query[1])])
        return not missing or job.poll() is not None

    wait_until(all_answer, what=lambda: missing)
    assert missing == set()
    restarts = prometheus.total("ray_memagent_engine_restarts_total")
    (reader,) = [reader for node in cluster.nodes for reader in node.readers()]
    reader.kill()
    _, said = job.communicate(timeout=PATIENCE_SECONDS)
    assert job.returncode == 0, said
    wait_until(
        lambda: prometheus.total("ray_memagent_engine_restarts_total") == restarts + 1, what=lambda: said[-3000:]
    )
    assert "engine_restarted" in [json.loads(line)["event"] for line in said.splitlines()]
    assert {name: rule["health"] for name, rule in prometheus.rules().items()} == dict.fromkeys(
        [rule["alert"] for rule in ALERTS], "ok"
    )


@pytest.mark.usefixtures("finished_run")
@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_asks_for_metrics_that_a_run_exports(rule: dict[str, Any], prometheus: Prometheus) -> None:
    names = {word for word in rule["expr"].replace("(", " ").replace("[", " ").split() if word.startswith("ray_")}
    assert names
    for name in (name.rstrip(")") for name in names):
        assert prometheus.query(f"last_over_time({name}[1h])"), name
