"""How a driver leaves before its run has ended: told by a signal, or because a newer attempt has claimed the output.

The readers flush their logs first, so that no finished turn is lost; then the main thread is interrupted. Nothing is
done inside a signal handler, which may have interrupted any line of Ray's.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self

import ray

from memagent_batch.errors import MemagentError, SupersededError, TerminatedError

CLAIM_SECONDS = 5.0
"""Pause between looks at the claim while readings go on."""

FLUSH_SECONDS = 20.0
"""Longest wait for the readers' flushes; a spot node and Kubernetes leave 30 s between SIGTERM and the end."""

INSIST_SECONDS = 1.0
"""Pause between interruptions of a main thread that did not heed the one before."""

TERMINATED = "SIGTERM: the node or the job is being taken away; the same command goes on from the log"

Handler = Callable[[int, FrameType | None], None]
"""What a signal calls."""


class Leave(KeyboardInterrupt):
    """Raised in the main thread to leave. A KeyboardInterrupt, since libraries let that pass."""

    def __init__(self, cause: MemagentError) -> None:
        """Takes the error that the run ends with."""
        super().__init__(str(cause))
        self.cause = cause


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """While the block runs, SIGTERM leaves it with a TerminatedError, and a Leave becomes its cause.

    Signals reach the main thread alone; in any other one the block just runs.

    Raises:
        TerminatedError: SIGTERM came.
        SupersededError: a newer attempt has claimed the output.
    """
    with handling(signal.SIGTERM, _terminate):
        try:
            yield
        except Leave as leave:
            raise leave.cause from None


@contextlib.contextmanager
def handling(number: signal.Signals, handler: Handler | signal.Handlers) -> Iterator[None]:
    """The block with another handler of a signal; without it outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def heed_actor_sigterm(handler: Callable[[], None]) -> bool:
    """Calls `handler` when this actor's process gets SIGTERM, as when its node is taken away; tells whether it will.

    In a process that is no actor, or outside its main thread, nothing changes.
    """
    is_actor = ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
    if not is_actor or threading.current_thread() is not threading.main_thread():
        return False
    signal.signal(signal.SIGTERM, lambda number, frame: handler())
    return True


class OrderlyLeave:
    """While the block runs, SIGTERM, SIGINT and the loss of the claim end it after the readers have flushed.

    A second SIGINT ends it at once. Outside the main thread, which alone can be interrupted, the block just runs.
    """

    def __init__(self, board: Any, *, require_claim: Callable[[], None]) -> None:
        """Takes the actor handle of the ProgressBoard, and what raises SupersededError once the claim is lost."""
        self._board = board
        self._require_claim = require_claim
        self._told: KeyboardInterrupt | None = None
        self._leaving: KeyboardInterrupt | None = None
        self._wake = threading.Event()
        self._over = threading.Event()
        self._handlers = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="leaving")

    def __enter__(self) -> Self:
        """Begins to watch."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._handlers.enter_context(handling(number, self._handle))
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watches no longer."""
        self._over.set()
        self._wake.set()
        with self._handlers:
            if self._thread.ident is not None:
                self._thread.join()
        if kind is None and self._told is not None:
            raise self._told

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._leaving is not None:
            raise self._leaving
        if self._told is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._told = self._told or (
            KeyboardInterrupt() if number == signal.SIGINT else Leave(TerminatedError(TERMINATED))
        )
        self._wake.set()
        if not self._thread.is_alive() and not self._over.is_set():
            raise self._told  # nobody is there to have the readers flush

    def _watch(self) -> None:
        while not self._over.is_set() and self._told is None and not self._is_superseded():
            self._wake.wait(CLAIM_SECONDS)
        if self._over.is_set():
            return
        try:
            with contextlib.suppress(ray.exceptions.RayError, TimeoutError):  # no cluster is left: nothing to wait for
                ray.get(self._board.leave.remote(), timeout=FLUSH_SECONDS)
        finally:  # whatever the board answers, the run must end
            self._insist()

    def _insist(self) -> None:
        self._leaving = self._told
        while not self._over.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            self._over.wait(INSIST_SECONDS)

    def _is_superseded(self) -> bool:
        try:
            self._require_claim()
        except SupersededError as error:
            self._told = Leave(error)
            return True
        except MemagentError:
            return False  # an outage, or a `run.json` that can't be read: whoever writes next says so
        return False


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Leave(TerminatedError(TERMINATED))
