"""The scrape configurations and alert rules, by Prometheus's own tool, and what the dashboard of Grafana asks for."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from memagent_batch.run.executors.ray.metrics import COUNTERS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra" / "prometheus"
ALERTS = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]


def promtool(*arguments: str | Path) -> str:
    """What promtool says; fails where it finds a fault."""
    tool = shutil.which("promtool")
    assert tool, "promtool is missing: make tools"
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.system
def test_alert_rules_fire_where_they_must_and_nowhere_else() -> None:
    promtool("test", "rules", FOLDER / "alerts_test.yaml")


def test_alert_rules_each_has_a_case_in_which_it_fires() -> None:
    cases = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
    fired = {check["alertname"] for case in cases for check in case["alert_rule_test"] if check["exp_alerts"]}
    assert fired == {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alert_rule_names_a_runbook_that_exists(rule: dict[str, Any]) -> None:
    page, anchor = rule["annotations"]["runbook"].split("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]


@pytest.mark.system
def test_scrape_configuration_of_machines_is_valid() -> None:
    promtool("check", "config", FOLDER / "prometheus.yaml")


@pytest.mark.system
def test_scrape_configuration_of_kuberay_is_valid_but_for_its_discovery(tmp_path: Path) -> None:
    """Debian builds Prometheus without the discovery of Kubernetes; a fixed target stands in for it."""
    config = yaml.safe_load((FOLDER / "prometheus-kuberay.yaml").read_text())
    (job,) = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    job["static_configs"] = [{"targets": ["127.0.0.1:8080"]}]
    (tmp_path / "alerts.yaml").write_text((FOLDER / "alerts.yaml").read_text())
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    promtool("check", "config", tmp_path / "prometheus.yaml")


def test_dashboard_shows_every_counter_and_asks_the_chosen_source_with_the_chosen_variables() -> None:
    dashboard = json.loads((ROOT / "infra" / "grafana" / "memagent.json").read_text())
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    shown = " ".join(target["expr"] for target in targets)
    assert [name for name, _ in COUNTERS.values() if f"ray_{name}_total" not in shown] == []
    assert set(re.findall(r"\$([a-z]+)", shown)) <= variables
    assert all(target["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for target in targets)
