"""How a driver leaves before its run has ended: on a signal, or because a newer run has taken over the output.

Either raises in the main thread. Nobody waits for the readers: turns since their last flush are read again.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType, TracebackType
from typing import Self

from memagent_batch.data.store.location import Location
from memagent_batch.errors import EXIT_INTERRUPTED, MemagentError, SupersededError, TerminatedError
from memagent_batch.logs import EventKind
from memagent_batch.run.state import write_stop_note

log = logging.getLogger(__name__)

CLAIM_SECONDS = 5.0
"""Pause between looks at the claim while readings go on."""

LEAVE_SECONDS = 60.0
"""Longest way out of a run that is to leave. What takes longer is a library that waits forever."""

LAST_LINE_SECONDS = 1.0
"""Longest wait for the last line of a process that is ended by force."""

TERMINATED = "SIGTERM: the node or the job is being removed; the same command goes on from the log"

Handler = Callable[[int, FrameType | None], None]
"""What a signal calls."""


class ShutdownRequested(KeyboardInterrupt):
    """Raised in the main thread to leave. A KeyboardInterrupt, since libraries let that pass."""

    def __init__(self, cause: MemagentError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """While the block runs, SIGTERM leaves it with a TerminatedError, and a ShutdownRequested becomes its cause.

    Signals reach the main thread alone; in any other one the block just runs. A library whose callback they meet makes
    an error of its own of what is raised there, as DuckDB does; the block ends as if it had not.

    Raises:
        TerminatedError: SIGTERM came.
        SupersededError: a newer run has taken over the output.
    """
    requested: list[ShutdownRequested] = []

    def terminate(number: int, frame: FrameType | None) -> None:
        requested.append(ShutdownRequested(TerminatedError(TERMINATED)))
        FORCED_EXIT.arm(requested[-1])
        raise requested[-1]

    with handling(signal.SIGTERM, terminate):
        try:
            yield
        except ShutdownRequested as leave:
            raise leave.cause from None
        except Exception as error:
            if requested:
                raise requested[0].cause from error
            raise


class ForcedExit:
    """Ends the process `LEAVE_SECONDS` after its run was to leave, where the block has not ended by then.

    A library that is interrupted anywhere may wait forever for a thread that has ended, and a night that hangs keeps
    its machine. A Python session and a notebook, which go on after a run, are never ended.
    """

    def __init__(self) -> None:
        self._blocks = 0
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        self._blocks += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._blocks -= 1
        if self._blocks == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def arm(self, cause: KeyboardInterrupt) -> None:
        """Begins to wait, once in a block."""
        if self._blocks == 0 or self._timer is not None or hasattr(sys, "ps1") or "ipykernel" in sys.modules:
            return
        self._timer = threading.Timer(LEAVE_SECONDS, _exit_by_force, args=(cause,))
        self._timer.daemon = True
        self._timer.start()


FORCED_EXIT = ForcedExit()
"""That of this process."""


def _exit_by_force(cause: KeyboardInterrupt) -> None:
    """Logs and ends the process; logging may wait forever too, for a lock that the hanging thread holds."""
    error = cause.cause if isinstance(cause, ShutdownRequested) else None
    exit_code = EXIT_INTERRUPTED if error is None else error.exit_code
    message = f"stopped by force: the run did not end within {LEAVE_SECONDS:g} s ({error or 'SIGINT'})"
    fields = {"event": EventKind.RUN_STOPPED, "exit_code": exit_code}
    last_line = threading.Thread(target=log.error, args=(message,), kwargs={"extra": fields}, daemon=True)
    last_line.start()
    last_line.join(LAST_LINE_SECONDS)
    time.sleep(LAST_LINE_SECONDS)  # a thread may still write what was logged
    os._exit(exit_code)


def can_be_interrupted() -> bool:
    """Whether signals raise in this thread."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def handling(number: signal.Signals, handler: Handler | signal.Handlers) -> Iterator[None]:
    """The block with another handler of a signal; without it outside the main thread."""
    if not can_be_interrupted():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


class GracefulShutdown:
    """While the block runs, SIGTERM, SIGINT and the loss of the claim raise in it.

    Outside the main thread, which alone can be interrupted, the loss of the claim calls `stop`, which lets the block
    end soon, and raises then.
    """

    def __init__(self, *, require_claim: Callable[[], None], stop: Callable[[], None] = lambda: None) -> None:
        self._require_claim = require_claim
        self._is_interruptible, self._stop = can_be_interrupted(), stop
        self._cause: KeyboardInterrupt | None = None
        self._over = threading.Event()
        self._handlers = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="leaving")

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as handlers:
            for number in (signal.SIGTERM, signal.SIGINT) if self._is_interruptible else ():
                handlers.enter_context(handling(number, self._interrupt))
            self._thread.start()  # last: where a signal comes before, nothing is left to stop
            self._handlers = handlers.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        with self._handlers:
            if self._thread.ident is not None:
                self._thread.join()
        if self._cause is not None and (kind is None or issubclass(kind, Exception)):
            raise self._cause from error

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._cause is None:
            self._cause = (
                KeyboardInterrupt() if number == signal.SIGINT else ShutdownRequested(TerminatedError(TERMINATED))
            )
        FORCED_EXIT.arm(self._cause)
        if not _is_inside(frame, GracefulShutdown.__exit__.__code__):  # which would leave the thread and the handlers
            raise self._cause

    def _watch(self) -> None:
        """Interrupts the main thread again at the next look where a library has swallowed what was raised in it."""
        while not self._over.wait(CLAIM_SECONDS):
            if self._cause is not None or self._is_superseded():
                if self._is_interruptible:
                    os.kill(os.getpid(), signal.SIGINT)
                else:
                    self._stop()

    def _is_superseded(self) -> bool:
        try:
            self._require_claim()
        except SupersededError as error:
            self._cause = ShutdownRequested(error)
            return True
        except MemagentError:
            return False  # an outage, or a table `runs` that can't be read: the next write reports it
        return False


def _is_inside(frame: FrameType | None, code: CodeType) -> bool:
    """Whether this code is among what runs, from the frame outwards."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


@contextmanager
def noted_stop(output: Location, *, run_id: str) -> Iterator[None]:
    """Runs the block, and writes a note when it raises. A note that can't be written is left out: it is a help only."""
    try:
        yield
    except BaseException as error:
        with suppress(MemagentError):
            write_stop_note(output, run_id=run_id, why=_why_stopped(error))
        raise


def _why_stopped(error: BaseException) -> str:
    match error:
        case ShutdownRequested():
            return str(error.cause)
        case KeyboardInterrupt():
            return "interrupted, as by Ctrl-C"
        case MemagentError():
            return str(error)
        case _:
            return type(error).__name__
