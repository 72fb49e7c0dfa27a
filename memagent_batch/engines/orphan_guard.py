"""Sees to it that no engine process outlives the process that started it, and that its last words are heard.

vLLM loads `install` by the entry point `vllm.general_plugins` in each of its processes. By itself an engine core whose
parent was killed hard (`kill -9`) waits for requests for ever, and holds its memory or its GPU.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

from memagent_batch.errors import EngineStartError

PLUGIN_GROUP = "vllm.general_plugins"
PLUGIN_NAME = "memagent_orphan_guard"

OWNER_VARIABLE = "MEMAGENT_ENGINE_OWNER_PID"
"""Environment of the processes that a guarded engine starts: the pid of the process that started the engine."""
FAILURE_VARIABLE = "MEMAGENT_ENGINE_FAILURE_FILE"
"""Environment of the same: the file that takes the first error that one of them logs."""

POLL_SECONDS = 0.5
"""Time between two looks at the parent; polled, because Linux's parent-death signal fires when the *thread* that
started the process ends, which says nothing about the parent."""


def install() -> None:
    """Guards this process if it belongs to a guarded engine; does nothing in any other process."""
    owner = os.environ.get(OWNER_VARIABLE)
    parent = multiprocessing.parent_process()
    if owner is None or owner == str(os.getpid()) or parent is None or parent.pid is None:
        return
    _note_failures(os.environ.get(FAILURE_VARIABLE))
    if os.getppid() != parent.pid:
        _die()
    threading.Thread(target=_die_with, args=(parent.pid,), name="memagent-orphan-guard", daemon=True).start()


def require_registered() -> None:
    """Refuses to start an engine whose processes would not load the guard.

    Raises:
        EngineStartError: the package isn't installed in this environment, or VLLM_PLUGINS leaves the guard out.
    """
    if not entry_points(group=PLUGIN_GROUP, name=PLUGIN_NAME):
        raise EngineStartError(
            "memagent-batch is not installed in this Python environment, so vLLM's processes would outlive a killed "
            "job; install it with `uv pip install --no-deps -e .` (or `make setup`) on every node"
        )
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and PLUGIN_NAME not in allowed.split(","):
        raise EngineStartError(
            f"VLLM_PLUGINS={allowed} leaves out {PLUGIN_NAME}, so vLLM's processes would outlive a killed job; "
            "add it to the list or unset the variable"
        )


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """The process environment with these variables while an engine starts; afterwards as it was."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def guarded(failure_file: Path) -> dict[str, str]:
    """Environment that makes the engine processes started under it guard themselves."""
    return {OWNER_VARIABLE: str(os.getpid()), FAILURE_VARIABLE: str(failure_file)}


def _die_with(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(POLL_SECONDS)
    _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _note_failures(path: str | None) -> None:
    if path:
        logging.getLogger("vllm").addHandler(_FailureNote(Path(path)))


class _FailureNote(logging.Handler):
    """Writes the first exception that vLLM logs in this process; the parent is told no more than that it exited."""

    def __init__(self, path: Path) -> None:
        super().__init__(level=logging.ERROR)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the exception's own message. A file that is there already tells the first cause."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        try:
            with self._path.open("x", encoding="utf-8") as file:
                file.write(f"{type(error).__name__}: {error}")
        except OSError:
            return
