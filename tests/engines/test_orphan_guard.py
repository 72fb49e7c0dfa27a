import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from memagent_batch.engines.vllm import orphan_guard
from memagent_batch.errors import EngineStartError

HERE = Path(__file__).parent
GUARD_SECONDS = 5.0
"""A guarded process looks twice a second; the rest is for a busy machine."""
IMPORT_SECONDS = 90.0
"""A process that is still importing vLLM looks when it has: some 10 s on an idle machine."""


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that the test starts; what is left of them and of their children is killed after it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("mode", ["guarded", "unguarded"])
def test_child_of_killed_parent_dies_only_if_guarded(
    mode: str, started: list["subprocess.Popen[str]"], tmp_path: Path
) -> None:
    child = psutil.Process(int(say(started, "guarded_child.py", str(tmp_path / "failure"), mode)))
    started[0].send_signal(signal.SIGKILL)
    gone = not survivors([child], seconds=GUARD_SECONDS if mode == "guarded" else 2.0)
    if not gone:
        child.kill()
    assert gone == (mode == "guarded")


def test_child_that_fails_leaves_its_cause_for_the_parent(
    started: list["subprocess.Popen[str]"], tmp_path: Path
) -> None:
    say(started, "guarded_child.py", str(tmp_path / "failure"), "guarded")
    assert (tmp_path / "failure").read_text(encoding="utf-8") == "ValueError: no memory for the cache"


def test_install_in_owner_or_other_process_does_nothing(tmp_path: Path) -> None:
    orphan_guard.install()
    with orphan_guard.environment(orphan_guard.guarded(tmp_path / "failure")):
        orphan_guard.install()
        assert os.environ[orphan_guard.OWNER_VARIABLE] == str(os.getpid())
    assert orphan_guard.OWNER_VARIABLE not in os.environ


def test_require_registered_plugin_left_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    orphan_guard.require_registered()
    monkeypatch.setenv("VLLM_PLUGINS", "another")
    with pytest.raises(EngineStartError, match="leaves out memagent_orphan_guard"):
        orphan_guard.require_registered()


@pytest.mark.vllm
@pytest.mark.slow
def test_engine_host_killed_while_serving_leaves_no_process(
    started: list["subprocess.Popen[str]"], tiny_model: str
) -> None:
    assert say(started, "engine_host.py", tiny_model) == "ready"
    children = psutil.Process(started[0].pid).children(recursive=True)
    started[0].send_signal(signal.SIGKILL)
    assert children
    assert survivors(children, seconds=GUARD_SECONDS) == []


@pytest.mark.vllm
@pytest.mark.slow
def test_engine_host_killed_during_start_leaves_no_process(
    started: list["subprocess.Popen[str]"], tiny_model: str
) -> None:
    started.append(host("engine_host.py", tiny_model))
    children = wait_for_engine_process(started[0].pid)
    started[0].send_signal(signal.SIGKILL)
    assert survivors(children, seconds=IMPORT_SECONDS) == []


def host(script: str, *arguments: str) -> "subprocess.Popen[str]":
    """Starts one of the scripts beside this file."""
    return subprocess.Popen([sys.executable, str(HERE / script), *arguments], stdout=subprocess.PIPE, text=True)


def say(started: list["subprocess.Popen[str]"], script: str, *arguments: str) -> str:
    """Starts a script; its first own line."""
    started.append(host(script, *arguments))
    assert started[-1].stdout is not None
    lines = (line.strip() for line in started[-1].stdout)
    return next(line for line in lines if line == "ready" or line.isdecimal())


def wait_for_engine_process(pid: int) -> list[psutil.Process]:
    """The children of a process as soon as one of them is a spawned Python process."""
    deadline = time.monotonic() + IMPORT_SECONDS
    while time.monotonic() < deadline:
        children = psutil.Process(pid).children(recursive=True)
        if any("spawn_main" in " ".join(child.cmdline()) for child in children):
            return children
        time.sleep(0.05)
    pytest.fail("no engine process was started")


def survivors(processes: list[psutil.Process], *, seconds: float) -> list[psutil.Process]:
    """Those that still run after this time; returns as soon as there is none."""
    return psutil.wait_procs(processes, timeout=seconds)[1]
