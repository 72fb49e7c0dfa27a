"""The main job as a process that can be watched and killed: its processes, what it has logged, how many calls it made.

Every process of the job carries a mark in its environment, so that it is found after its parent died, and no other
job's process ever is.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.job_process import NOT_STARTED, START_TRIES
from tests.processes import runs

MARK = "KILLED_JOB_MARK"
POLL_SECONDS = 0.05
GONE_SECONDS = 120.0
"""Longest time that a process may outlive its driver: where that is killed, Ray's agents look for its GCS for 60 s."""
PATIENCE_SECONDS = 600.0
"""Longest wait for anything that a run does next; a replaced engine takes some 20 s on two cores."""


class Role(StrEnum):
    DRIVER = "driver"
    ACTOR = "actor"
    """Ray's worker process that holds the Reader."""
    ENGINE = "engine"


class KilledJob:
    """One output, written by the same command as often as it takes."""

    def __init__(self, arguments: Sequence[str], *, output: Path, command: str = "answer") -> None:
        self._arguments = list(arguments)
        self._name = command
        self._output = output
        self._mark = uuid.uuid4().hex
        self._ray = Path(tempfile.mkdtemp(prefix="k-", dir="/tmp"))  # short: Ray's socket names end at 107 bytes
        self._command: subprocess.Popen[bytes] | None = None
        self._tries_left = 0
        self._console_bytes = 0
        self.console = output.with_suffix(".console.txt")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._command:
            self._command.wait()
        shutil.rmtree(self._ray, ignore_errors=True)

    def start(self) -> None:
        """Gives the command, which is given again where Ray could not be started, as long as the job is waited for."""
        self._tries_left = START_TRIES
        self._run()

    def _run(self) -> None:
        self._tries_left -= 1
        self._console_bytes = self.console.stat().st_size if self.console.exists() else 0
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        environment |= {MARK: self._mark, "RAY_TMPDIR": str(self._ray)}
        environment["SPT_NOENV"] = "1"  # Ray and vLLM write their titles over the environment without this
        environment["RAY_worker_niceness"] = "0"  # by default the engine would wait for all else on the machine
        with self.console.open("ab") as console:
            self._command = subprocess.Popen(
                [sys.executable, "-m", "memagent_batch", self._name, *self._arguments],
                stdout=console,
                stderr=console,
                env=environment,
                start_new_session=True,
            )

    def exit_code(self) -> int | None:
        """How the command ended; None while it runs."""
        return self._command.poll() if self._command else None

    def finish(self) -> int:
        self.wait_until(self._has_ended)
        code = self.exit_code()
        return -1 if code is None else code

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_marked(process)]

    def find(self, role: Role) -> psutil.Process | None:
        if role == Role.DRIVER:
            return psutil.Process(self._command.pid) if self._command and self._command.poll() is None else None
        if role == Role.ACTOR:
            return next(iter(self._actors()), None)
        return next(iter(self._engines()), None)

    def require(self, role: Role) -> psutil.Process:
        process = self.find(role)
        assert process is not None, f"there is no {role}: {self.last_words()}"
        return process

    def num_calls(self) -> int:
        """Model calls that vLLM took on so far, in all tries, by its own log."""
        logs = self._ray.glob("ray/session_2*/logs/worker-*")
        return sum(log.read_bytes().count(b"Added request") for log in logs)

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        """Waits until it holds, or the command ends; returns whether it holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self._has_ended():
                return condition()
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing happened for {PATIENCE_SECONDS:g} s: {self.last_words()}")
            time.sleep(POLL_SECONDS)
        return True

    def kill(self, role: Role, process: psutil.Process) -> None:
        """Kills it, and requires that all of the job end with the driver, the descendants with any other process."""
        below = process.children(recursive=True)
        process.kill()
        if role == Role.DRIVER:
            self.require_gone()
        else:
            _require_end(lambda: [child for child in below if self._is_marked(child)])

    def require_gone(self) -> None:
        _require_end(self.processes)

    def last_words(self) -> str:
        return self.console.read_text(errors="replace")[-3000:]

    def _has_ended(self) -> bool:
        """Whether the command has ended and is not given again, as it is here where Ray could not be started."""
        code = self.exit_code()
        if code and self._tries_left and NOT_STARTED.encode() in self.console.read_bytes()[self._console_bytes :]:
            self._run()
            return False
        return code is not None

    def _actors(self) -> list[psutil.Process]:
        return [process for process in self.processes() if title_of(process).startswith("ray::") and _reads(process)]

    def _engines(self) -> list[psutil.Process]:
        below = [child for actor in self._actors() for child in _children(actor)]
        titles = ("VLLM::EngineCore", "forkserver")  # its own, or that of the server from which it is forked
        return [child for title in titles for child in below if title in title_of(child)]

    def _is_marked(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self._mark and runs(process)
        except psutil.Error:
            return False


def _require_end(left: Callable[[], list[psutil.Process]]) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while (processes := left()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    assert [title_of(process) for process in processes] == []


def title_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _reads(process: psutil.Process) -> bool:
    return any(name in title_of(process) for name in ("Replica", "Reader"))  # of a job, of `ma.read`


def _children(process: psutil.Process) -> Iterator[psutil.Process]:
    try:
        yield from process.children(recursive=True)
    except psutil.Error:
        return
