"""`jobs/again.sh` with real processes: what is started again, what is not, and how it stops."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

AGAIN = Path(__file__).parents[2] / "jobs" / "again.sh"
CHILD = """
import os, signal, sys, time
open(sys.argv[1], "a").write("run\\n")
ends = sys.argv[2:]
end = ends[min(open(sys.argv[1]).read().count("run"), len(ends)) - 1]
if end == "waits":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    open(sys.argv[1] + ".waits", "w").close()
    time.sleep(600)
os.kill(os.getpid(), -int(end)) if int(end) < 0 else sys.exit(int(end))
"""
"""Ends as its arguments say, run after run; the last of them holds for all further runs. -9 is SIGKILL."""


def run_again(runs: Path, ends: list[str], *, own_group: bool = False) -> subprocess.Popen[bytes]:
    command = ["bash", str(AGAIN), sys.executable, "-c", CHILD, str(runs), *ends]
    variables = os.environ | {"AGAIN_PAUSE_SECONDS": "0"}
    return subprocess.Popen(command, env=variables, start_new_session=own_group)


def num_runs(runs: Path) -> int:
    return runs.read_text().count("run")


@pytest.mark.parametrize(
    ("ends", "exit_code", "started"),
    [
        (["0"], 0, 1),
        (["1"], 1, 3),
        (["2"], 2, 1),
        (["6"], 6, 1),
        (["130"], 130, 1),
        (["137"], 137, 3),
        (["-9"], 137, 3),
        (["1", "-9", "0"], 0, 3),
        (["1", "4"], 4, 2),
        (["143", "0"], 0, 2),
    ],
)
def test_command_runs_again_only_after_what_may_pass(
    ends: list[str], exit_code: int, started: int, tmp_path: Path
) -> None:
    assert run_again(tmp_path / "runs", ends).wait(timeout=60) == exit_code
    assert num_runs(tmp_path / "runs") == started


@pytest.mark.parametrize("to_all", [False, True], ids=["script", "all processes, as `ray job stop` does it"])
def test_sigterm_to_the_script_or_all_its_processes_ends_its_command_and_starts_no_other(
    to_all: bool, tmp_path: Path
) -> None:
    process = run_again(tmp_path / "runs", ["waits"], own_group=to_all)
    wait_for(tmp_path / "runs.waits")
    if to_all:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.terminate()
    assert process.wait(timeout=60) == 143
    assert num_runs(tmp_path / "runs") == 1


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.05)
