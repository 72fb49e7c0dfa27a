"""The Grafana dashboard: its structure here; its queries against a real Prometheus in test_metrics_export.py."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.ray_data.progress.metrics import COUNTERS

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "infra" / "grafana" / "memagent.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
GRID_COLUMNS = 24
each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    """Cells of the grid that a panel covers."""
    place = panel["gridPos"]
    columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
    return {(column, row) for column in columns for row in rows}


def test_dashboard_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    covered = [cell for panel in PANELS for cell in cells(panel)]
    assert len(set(covered)) == len(covered)
    assert max(column for column, _ in covered) < GRID_COLUMNS


@each_panel
def test_dashboard_panel_says_what_it_shows_in_which_unit(panel: dict[str, Any]) -> None:
    assert panel["type"] in {"timeseries", "stat"}
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in {"short", "s", "ops", "percentunit", "Bps"}


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
