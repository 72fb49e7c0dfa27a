"""Ensures that no engine process outlives the process that started it, and that its last words are heard.

vLLM loads `install` by entry points in each of its processes: as a platform plug-in while it is imported, and as a
general plug-in when the engine is built. By itself an engine core whose parent was killed hard (`kill -9`) waits five
minutes for it during a start, and forever afterwards, with its memory or its GPU.
"""

import logging
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

THREAD_NAME = "memagent-orphan-guard"

PARENT_POLL_SECONDS = 0.5
"""Time between two looks at the parent; polled, because Linux's parent-death signal fires when the *thread* that
started the process ends, which says nothing about the parent."""


def install() -> None:
    """Guards this process if it belongs to a guarded engine; does nothing in any other process, or a second time.

    As a platform plug-in it returns None: no platform of its own.
    """
    owner = os.environ.get(OWNER_VARIABLE)
    if owner is None or owner == str(os.getpid()):
        return
    _note_failures(os.environ.get(FAILURE_VARIABLE))
    if not _is_running(int(owner)):
        _die()
    if THREAD_NAME not in [thread.name for thread in threading.enumerate()]:
        threading.Thread(target=_die_with, args=(int(owner), os.getppid()), name=THREAD_NAME, daemon=True).start()


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


def _die_with(owner: int, parent: int) -> None:
    """Ends this process once its parent has gone, or the owner above it."""
    while os.getppid() == parent and _is_running(owner):
        time.sleep(PARENT_POLL_SECONDS)
    _die()


def _is_running(pid: int) -> bool:
    """Whether there is such a process, and it is more than a killed one that nobody has waited for yet."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False  # gone, or the number is now that of another user's process
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state not in ("Z", "X")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _note_failures(path: str | None) -> None:
    logger = logging.getLogger("vllm")
    if path and not any(isinstance(handler, _FailureNote) for handler in logger.handlers):
        logger.addHandler(_FailureNote(Path(path)))


class _FailureNote(logging.Handler):
    """Writes the first exception that vLLM logs in this process; the parent learns no more than that it exited."""

    def __init__(self, path: Path) -> None:
        super().__init__(level=logging.ERROR)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the exception's own message. A file that is there already holds the first cause."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        try:
            with self._path.open("x", encoding="utf-8") as file:
                file.write(f"{type(error).__name__}: {error}")
        except OSError:
            return
