"""What `make test` says before it starts, on machines that lack something."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH with nothing on it but what a Makefile runs by itself."""
    for name in ("id", "make", "sh"):
        program = shutil.which(name)
        assert program, f"{name} is not on the PATH"
        (tmp_path / name).symlink_to(program)
    return tmp_path


def make(target: str, programs: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": str(programs)}
    command = [str(programs / "make"), "--no-print-directory", target]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def add_program(programs: Path, name: str, *, exit_code: int) -> None:
    (programs / name).write_text(f"#!/bin/sh\nexit {exit_code}\n")
    (programs / name).chmod(stat.S_IRWXU)


def test_make_test_names_each_program_that_is_missing_and_what_to_do(programs: Path) -> None:
    add_program(programs, "chromium", exit_code=0)
    done = make("test", programs)
    assert done.returncode != 0
    assert "needs chromedriver promtool; install" in done.stderr
    assert "make test-fast" in done.stderr


@pytest.mark.parametrize("is_allowed", [True, False])
def test_make_warns_of_missing_user_namespaces_and_names_the_remedy(programs: Path, is_allowed: bool) -> None:
    add_program(programs, "unshare", exit_code=0 if is_allowed else 1)
    done = make("namespaces", programs)
    assert done.returncode == 0
    assert ("--security-opt seccomp=unconfined" in done.stderr) != is_allowed
