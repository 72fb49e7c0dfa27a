"""A Ray cluster of several nodes on this machine, with token authentication; its nodes can be killed.

Every process of a node carries a mark in its environment, so that a node is killed whole and nothing is left behind.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.faults.killed_job import title_of
from tests.processes import left_after, runs

MARK = "LOOPBACK_NODE_MARK"
BIN = Path(sys.executable).parent
PATIENCE_SECONDS = 300.0
"""Longest wait for a node to start or a process to end."""
REPORT_MILLISECONDS = 1000
"""Pause between exports of Ray's metrics; 10 s by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    """`head`, or `worker-1` and so on."""
    mark: str

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._holds(process)]

    def readers(self) -> list[psutil.Process]:
        titles = [(process, title_of(process)) for process in self.processes()]
        return [process for process, title in titles if title.startswith("ray::") and "Replica" in title]

    def kill(self) -> int:
        """Kills it with SIGKILL, its raylet first; returns the number of processes."""
        processes = sorted(self.processes(), key=lambda process: "raylet" not in title_of(process)[:200])
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        left_after(PATIENCE_SECONDS, processes)
        return len(processes)

    def _holds(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self.mark and runs(process)
        except psutil.Error:
            return False


class LoopbackCluster:
    """A head without CPUs, and workers."""

    def __init__(self, *, num_workers: int, worker_cpus: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="c-", dir="/tmp"))  # short: Ray's socket names end at 107 bytes
        self.dashboard_port = self._port = 0
        self.nodes: list[Node] = []
        self._num_workers, self._worker_cpus = num_workers, worker_cpus
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_metrics_report_interval_ms": str(REPORT_MILLISECONDS),
            "SPT_NOENV": "1",  # Ray writes its titles over the environment without this
        }

    def __enter__(self) -> Self:
        self.command("get-auth-token", "--generate", environment={"HOME": str(self.folder)})
        self.environment["RAY_AUTH_TOKEN_PATH"] = str(self.folder / ".ray" / "auth_token")
        try:
            self._start("head", self._head, folder=self.folder)
            self.environment["RAY_ADDRESS"] = f"127.0.0.1:{self._port}"
            for number in range(1, self._num_workers + 1):
                self._start(f"worker-{number}", partial(self._worker, number), folder=self.folder / f"w{number}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def scrape_targets(self) -> Path:
        """The file in which Ray lists its metrics ports for Prometheus."""
        return self.folder / "prom_metrics_service_discovery.json"

    @property
    def dashboard_url(self) -> str:
        return f"http://127.0.0.1:{self.dashboard_port}"

    def left(self) -> list[str]:
        """Titles of the processes that are left of all nodes; none once the block has ended."""
        return [title_of(process) for node in self.nodes for process in node.processes()]

    def command(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [BIN / "ray", *arguments],
            env=self.environment | (environment or {}),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"`ray {' '.join(arguments)}` failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def _head(self) -> list[str]:
        """Arguments of the head, at ports that were free a moment ago."""
        self.dashboard_port, self._port = free_port(), free_port()
        return ["--head", f"--port={self._port}", f"--dashboard-port={self.dashboard_port}", "--num-cpus=0"]

    def _worker(self, number: int) -> list[str]:
        cpus = [f"--num-cpus={self._worker_cpus}", f"--resources={json.dumps({f'worker-{number}': 1})}"]
        return [f"--address=127.0.0.1:{self._port}", *cpus]

    def _start(self, name: str, arguments: Callable[[], list[str]], *, folder: Path) -> None:
        """Starts a node with its own folder; in a shared one nodes would unpack a job's files over each other.

        A try that fails is repeated with arguments of its own.
        """
        node = Node(name=name, mark=uuid.uuid4().hex)
        self.nodes.append(node)
        for last in (False, False, True):  # Ray gives its own processes 30 s, too few on a machine that is busy
            ports = [f"--dashboard-agent-listen-port={free_port()}", f"--metrics-export-port={free_port()}"]
            own = [f"--temp-dir={folder}", *ports, "--disable-usage-stats"]
            try:
                self.command("start", *arguments(), *own, environment={MARK: node.mark})
                return
            except RuntimeError:
                node.kill()
                if last:
                    raise

    def _end(self) -> None:
        for node in reversed(self.nodes):
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def wait_until_listed(path: Path, *, num_nodes: int) -> None:
    """Waits until Ray lists the metrics port of every node, beside its own two."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if path.exists() and len(json.loads(path.read_text())[0]["targets"]) >= num_nodes:
            return
        time.sleep(0.5)
    raise TimeoutError(f"{path} does not list {num_nodes} nodes after {PATIENCE_SECONDS:g} s")
