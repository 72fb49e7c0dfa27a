import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from memagent_batch.errors import EngineStartError
from memagent_batch.loop.engines.vllm import orphan_guard
from tests.processes import left_after

HERE = Path(__file__).parent
GUARD_SECONDS = 20.0
"""A guarded process looks twice a second; the rest is for a busy machine."""


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that the test starts; what is left of them and of their children is killed after it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("is_guarded", [True, False])
def test_child_of_killed_parent_dies_only_if_guarded_and_leaves_the_cause_of_a_failure(
    is_guarded: bool, started: list["subprocess.Popen[str]"], tmp_path: Path
) -> None:
    mode = "guarded" if is_guarded else "unguarded"
    child = psutil.Process(int(say(started, "guarded_child.py", str(tmp_path / "failure"), mode)))
    if is_guarded:
        assert (tmp_path / "failure").read_text(encoding="utf-8") == "ValueError: no memory for the cache"
    started[0].send_signal(signal.SIGKILL)
    gone = not left_after(GUARD_SECONDS if is_guarded else 2.0, [child])
    if not gone:
        child.kill()
    assert gone == is_guarded


@pytest.mark.vllm
def test_engine_process_whose_owner_is_killed_while_it_starts_dies(
    started: list["subprocess.Popen[str]"], tiny_model: str
) -> None:
    engine = psutil.Process(int(say(started, "killed_starter.py", tiny_model)))
    server = engine.parent()
    assert server is not None
    assert not left_after(GUARD_SECONDS, [engine, server])


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


def say(started: list["subprocess.Popen[str]"], script: str, *arguments: str) -> str:
    """Starts a script; its first own line."""
    command = [sys.executable, str(HERE / script), *arguments]
    started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    assert started[-1].stdout is not None
    lines = (line.strip() for line in started[-1].stdout)
    return next(line for line in lines if line == "ready" or line.isdecimal())
