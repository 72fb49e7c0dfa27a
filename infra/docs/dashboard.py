"""Draws the dashboard of `docs/how-to/monitoring.md`: the panels' own queries, answered by a real Prometheus.

The run takes some two minutes on a cluster of loopback nodes, with the simulated engine; its actor is killed once.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec

from memagent_batch.wiring import TINY_MODEL
from tests.faults.loopback.cluster import LoopbackCluster, wait_until_listed
from tests.faults.loopback.prometheus import Prometheus, loopback_prometheus

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "infra" / "grafana" / "memagent.json").read_text())
COLUMNS = 24
"""Of Grafana's grid."""
CELL_INCHES = (0.6, 0.42)
STEP_SECONDS = 1.0
QUIET_SECONDS = 8.0
"""Shown after the run's end."""
KILLED_AFTER_SECONDS = 40.0
"""From the first turn to the actor's end."""
UNITS = {"short": "", "s": " s", "ops": " /s", "percentunit": "", "Bps": " B/s"}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "pictures" / "dashboard.png")
    parser.add_argument("--documents", type=int, default=90, help="documents of some 35 turns (default: 90)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, LoopbackCluster(num_workers=1, worker_cpus=3) as cluster:
        folder = Path(name)
        wait_until_listed(cluster.scrape_targets, num_nodes=2)
        with loopback_prometheus(cluster, folder) as prometheus:
            start, end = run_job(cluster, prometheus, folder, documents=options.documents)
            draw(prometheus, options.picture, start=start, end=end)
    print(f"{len(DASHBOARD['panels'])} panels over {end - start:.0f} s: {options.picture}")


def run_job(cluster: LoopbackCluster, prometheus: Prometheus, folder: Path, *, documents: int) -> tuple[float, float]:
    """Runs a job and kills its actor on the way; first and last moment to show, Unix seconds.

    Raises:
        RuntimeError: the job failed, or ended before its actor was killed.
    """
    start, killed_at = time.time(), None
    command = [sys.executable, "-m", "memagent_batch", "answer", *job_arguments(folder, documents=documents)]
    environment = cluster.environment | {"PYTHONPATH": os.fspath(ROOT)}
    with (folder / "console.txt").open("wb") as console:
        job = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=console, stderr=console)
    while job.poll() is None:
        time.sleep(0.5)
        if killed_at is None and prometheus.total("ray_memagent_turns_total"):
            killed_at = time.monotonic() + KILLED_AFTER_SECONDS
        if killed_at is not None and time.monotonic() > killed_at:
            for reader in [reader for node in cluster.nodes for reader in node.readers()]:
                reader.kill()
            killed_at = float("inf")
    if job.returncode or killed_at != float("inf"):
        raise RuntimeError(f"exit code {job.returncode}: {(folder / 'console.txt').read_text()[-3000:]}")
    time.sleep(QUIET_SECONDS)
    return start, time.time()


def job_arguments(folder: Path, *, documents: int) -> list[str]:
    """Documents, and a question that is too long for one of them; the command's arguments."""
    texts = [f"{number} " + "the fox jumps over 12345 dogs. " * 90 for number in range(documents)]
    rows = [{"document_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    questions = [{"question": "Who?"}, {"question": "Why? " * 100, "document_id": "d0"}]
    (folder / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in questions))
    return [
        *("--documents", str(folder / "documents.parquet"), "--questions", str(folder / "questions.jsonl")),
        *("--output", str(folder / "run"), "--engine", "simulated", "--model", str(TINY_MODEL)),
        *("--window-tokens", "1000", "--policy.chunk-tokens", "50", "--policy.question-tokens", "60"),
        *("--policy.memory-tokens", "10", "--policy.answer-tokens", "40", "--simulated.turn-seconds", "0.4"),
        *("--pool.readings-in-flight", "12", "--log.flush-seconds", "2"),
    ]


def draw(prometheus: Prometheus, picture: Path, *, start: float, end: float) -> None:
    """Draws every panel in its place of the dashboard's grid.

    Raises:
        RuntimeError: a panel has nothing to show.
    """
    panels = DASHBOARD["panels"]
    num_rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = plt.figure(figsize=(COLUMNS * CELL_INCHES[0], num_rows * CELL_INCHES[1]))
    grid = GridSpec(num_rows, COLUMNS, figure=figure, hspace=14, wspace=9)
    for panel in panels:
        place = panel["gridPos"]
        rows, columns = (place["y"], place["y"] + place["h"]), (place["x"], place["x"] + place["w"])
        axes = figure.add_subplot(grid[rows[0] : rows[1] - 1, columns[0] : columns[1]])
        axes.set_title(panel["title"], fontsize=10, loc="left")
        shown = {
            _label(target, series): [(float(at) - start, float(value)) for at, value in series["values"]]
            for target in panel["targets"]
            for series in prometheus.query_range(target["expr"], start=start, end=end, step_seconds=STEP_SECONDS)
        }
        if not shown:
            raise RuntimeError(f"the panel {panel['title']!r} shows nothing")
        _draw_panel(axes, panel, shown, seconds=end - start)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=80, bbox_inches="tight")


def _draw_panel(
    axes: Axes, panel: dict[str, Any], shown: dict[str, list[tuple[float, float]]], *, seconds: float
) -> None:
    unit = UNITS[panel["fieldConfig"]["defaults"]["unit"]]
    if panel["type"] == "stat":
        axes.axis("off")
        values = [points[-1][1] for points in shown.values()]
        axes.text(0.5, 0.4, ", ".join(f"{value:.3g}{unit}" for value in values), ha="center", va="center", fontsize=20)
        return
    for label, points in shown.items():
        axes.plot([at for at, _ in points], [value for _, value in points], label=label, linewidth=1.2)
    axes.set_xlim(0, seconds)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit.strip(), fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="upper right")


def _label(target: dict[str, Any], series: dict[str, Any]) -> str:
    """The legend of a series, with the name of a model's folder instead of its path."""
    model = Path(series["metric"].get("model", "")).name
    return str(target["legendFormat"]).replace("{{model}}", model)


if __name__ == "__main__":
    main()
