"""Runs a command of `memagent` again while that can help: `memagent supervise answer ...`.

For schedulers that can't tell exit codes apart, such as a RayJob, whose own retries would repeat any failure.
"""

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from memagent_batch.cli.main import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TERMINATED, asks_for_json
from memagent_batch.cli.settings import Command
from memagent_batch.logs import EventKind, begin_log

log = logging.getLogger(__name__)

MAX_RUNS = 3
"""Most runs of the command, the first one included: each has its bounds (`--max-cost` and the like) again."""
PAUSE_SECONDS = 60.0
"""Time for a store or an endpoint to come back."""
WAKE_SECONDS = 0.5
"""A pause checks this often whether it is to end: Python sleeps on after a signal."""
SIGNALS = 128
"""A process that signal N ended has exit code 128 + N, as shells count it."""


class Supervise(Command):
    """Runs a command of `memagent` again while that can help: after what may pass (a kill, an outage), three times
    in all, and never after a mistake, a bound or a newer attempt. For schedulers that can't tell exit codes apart.
    """

    command = "memagent supervise"
    examples = ("memagent supervise answer --config job.yaml", "memagent supervise convert --documents a/ --output b/")
    page = "docs/reference/exit-codes-and-events.md"
    words = ("arguments",)

    arguments: tuple[str, ...]
    """The command and its options, as they are written behind `memagent`."""


def supervise(arguments: Sequence[str]) -> int:
    """Runs `memagent` with these arguments; returns the exit code of its last run."""
    begin_log(as_json=asks_for_json(arguments))
    supervisor = Supervisor([sys.executable, "-m", "memagent_batch", *arguments])
    return supervisor.run(max_runs=MAX_RUNS, pause_seconds=PAUSE_SECONDS)


class Supervisor:
    """Runs a command until it needs no other run, or SIGTERM or SIGINT stops it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self, *, max_runs: int, pause_seconds: float) -> int:
        """Runs the command; returns the exit code of its last run, 128 + N if signal N ended it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        for run in range(1, max_runs + 1):
            exit_code = self._run_once()
            if exit_code == 0 or self._is_stopped:
                return exit_code
            is_final = run == max_runs or not may_run_again(exit_code)
            after = "it is not started again" if is_final else f"it starts again in {pause_seconds:g} s"
            message = f"run {run} of at most {max_runs} ended with exit code {exit_code}; {after}"
            log.warning(message, extra={"event": EventKind.RUN_SUPERVISED, "exit_code": exit_code})
            if is_final:
                return exit_code
            self._pause(pause_seconds)
            if self._is_stopped:
                break
        return EXIT_TERMINATED

    def _run_once(self) -> int:
        self._process = subprocess.Popen(self._command)
        if self._is_stopped:
            self._process.terminate()
        exit_code = self._process.wait()
        return exit_code if exit_code >= 0 else SIGNALS - exit_code

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._is_stopped and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, WAKE_SECONDS))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM is passed on, since it may reach this process alone; a terminal sends SIGINT to both."""
        self._is_stopped = True
        if number == signal.SIGTERM and self._process is not None:
            self._process.terminate()


def may_run_again(exit_code: int) -> bool:
    """Whether the same command may do better: it stopped, or a signal killed it (128 + N), and no person did."""
    return exit_code == EXIT_FAILED or (exit_code > SIGNALS and exit_code != EXIT_INTERRUPTED)
