"""A real Prometheus on this machine, with the shipped configuration and rules, that scrapes a loopback cluster."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.faults.loopback.cluster import LoopbackCluster, free_port

RULES = Path(__file__).parents[3] / "infra" / "prometheus" / "alerts.yaml"
VARIABLES = {"$session": ".*", "$model": ".*", "$__rate_interval": "20s", "$__range": "10m"}
PATIENCE_SECONDS = 300.0


class Prometheus:
    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, trust_env=False, timeout=30)

    def is_ready(self) -> bool:
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        return self._ask(expression)

    def total(self, metric: str) -> int:
        """Sum of a counter over all series; 0 if there is none."""
        return sum(round(float(series["value"][1])) for series in self.query(metric))

    def rules(self) -> dict[str, dict[str, Any]]:
        groups = self._client.get("/api/v1/rules").json()["data"]["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def _ask(self, query: str) -> list[dict[str, Any]]:
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        answer = self._client.get("/api/v1/query", params={"query": query}).json()
        if answer["status"] != "success":
            raise ValueError(f"{query}: {answer}")
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series


@contextmanager
def loopback_prometheus(cluster: LoopbackCluster, folder: Path) -> Iterator[Prometheus]:
    """Prometheus in a hurry, while the block lasts: scrapes every second."""
    binary = shutil.which("prometheus")
    if binary is None:
        raise RuntimeError("prometheus is missing: make tools")
    config = yaml.safe_load(RULES.with_name("prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["file_sd_configs"] = [
        {"files": [str(cluster.scrape_targets)], "refresh_interval": "1s"}
    ]
    (folder / "alerts.yaml").write_text(RULES.read_text())
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    files = [f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}"]
    for is_last in (False, True):
        address = f"127.0.0.1:{free_port()}"  # bound a little later, when it may be taken
        with (folder / "log.txt").open("wb") as log:
            process = subprocess.Popen([binary, *files, f"--web.listen-address={address}"], stdout=log, stderr=log)
        prometheus = Prometheus(f"http://{address}")
        try:
            if _comes_up(prometheus, process):
                yield prometheus
                return
            if is_last or process.poll() is None:
                raise RuntimeError(f"prometheus does not start: {(folder / 'log.txt').read_text()[-2000:]}")
        finally:
            process.terminate()
            process.wait(timeout=60)


def _comes_up(prometheus: Prometheus, process: "subprocess.Popen[bytes]") -> bool:
    """Waits until it answers; False where its process ends first, or it takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if prometheus.is_ready():
            return True
        time.sleep(0.2)
    return False
