"""The Grafana dashboard: its structure here; its queries against a real Prometheus in test_metrics_export.py."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.run.executors.ray.metrics import COUNTERS

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "infra" / "grafana" / "memagent.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])


@each_panel
def test_dashboard_panel_asks_the_chosen_source_with_the_chosen_variables(panel: dict[str, Any]) -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    for target in panel["targets"]:
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert set(re.findall(r"\$([a-z]+)", target["expr"])) <= variables
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_dashboard_shows_every_counter() -> None:
    shown = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    assert [name for name, _ in COUNTERS.values() if f"ray_{name}_total" not in shown] == []
