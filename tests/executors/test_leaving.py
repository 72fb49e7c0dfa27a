"""A driver leaves on a signal, and when its claim is lost, whatever its watching thread meets."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import duckdb
import pyarrow as pa
import pytest

from memagent_batch.errors import StorageOutageError, SupersededError, TerminatedError
from memagent_batch.run.executors import leaving
from memagent_batch.run.executors.leaving import GracefulShutdown, terminable

MAX_SECONDS = 120.0
"""After which a block counts as deaf to the signal."""


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "CLAIM_SECONDS", 0.2)


def wait_for_the_signal(look: Callable[[], None], striker: threading.Thread) -> None:
    deadline = time.monotonic() + MAX_SECONDS
    with terminable(), GracefulShutdown(require_claim=look):
        striker.start()
        while time.monotonic() < deadline:
            time.sleep(0.05)


@pytest.mark.parametrize(
    "error",
    [StorageOutageError("no answer"), ZeroDivisionError("a bug")],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_sigterm_is_heeded_after_the_claim_could_not_be_looked_at(error: Exception) -> None:
    looked = threading.Event()

    def look() -> None:
        looked.set()
        raise error

    def strike() -> None:
        looked.wait()
        time.sleep(0.2)  # the thread that looked has died of it by then, if it does
        os.kill(os.getpid(), signal.SIGTERM)

    striker = threading.Thread(target=strike)
    with pytest.raises(TerminatedError):
        wait_for_the_signal(look, striker)
    striker.join()


def sleep_through(*, num_interrupts: int, strikes: bool) -> None:
    """Swallows some interrupts, as a library's callback does, and may strike itself before each."""
    for _ in range(num_interrupts):
        with contextlib.suppress(KeyboardInterrupt):
            if strikes:
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(MAX_SECONDS)
            pytest.fail("nothing interrupted the main thread")


def lost() -> None:
    raise SupersededError("run 2 has the output")


def test_loss_of_the_claim_outside_the_main_thread_lets_the_block_end_and_raises() -> None:
    stopped, raised = threading.Event(), list[BaseException]()

    def read() -> None:
        try:
            with terminable(), GracefulShutdown(require_claim=lost, stop=stopped.set):
                assert stopped.wait(MAX_SECONDS)
        except SupersededError as error:
            raised.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert [str(error) for error in raised] == ["run 2 has the output"]


def swallow_loss() -> None:
    with terminable(), GracefulShutdown(require_claim=lost):
        sleep_through(num_interrupts=2, strikes=False)
        time.sleep(MAX_SECONDS)


def test_lost_claim_interrupts_again_where_a_library_swallowed_it() -> None:
    with pytest.raises(SupersededError, match="run 2 has"):
        swallow_loss()


def test_each_sigint_interrupts_at_once_and_the_block_ends_with_it() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), GracefulShutdown(require_claim=lambda: None):
        sleep_through(num_interrupts=2, strikes=True)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("number", "reads"), [(signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGINT, True)])
def test_signal_in_a_query_ends_the_block_and_not_with_an_error_of_the_database(
    number: signal.Signals, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "CLAIM_SECONDS", MAX_SECONDS)  # one interrupt alone

    def batches() -> Iterator[pa.RecordBatch]:
        os.kill(os.getpid(), number)
        for _ in range(40):  # in a thread of the database, which looks for signals in between if the other lets it
            time.sleep(0.05)
            yield pa.record_batch({"a": [1]})

    table = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches())
    leave = GracefulShutdown(require_claim=lambda: None) if reads else contextlib.nullcontext()
    wanted = TerminatedError if number == signal.SIGTERM else KeyboardInterrupt
    with pytest.raises(wanted), terminable(), leave:
        duckdb.connect().register("rows", table).execute("select sum(a) from rows").fetchall()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_as_the_block_ends_leaves_no_handler_and_no_thread_behind(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def strike_at_exit(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is GracefulShutdown.__exit__.__code__:
            sys.setprofile(None)
            os.kill(os.getpid(), number)

    def ends() -> None:
        with terminable(), GracefulShutdown(require_claim=lambda: None):
            sys.setprofile(strike_at_exit)

    with pytest.raises(TerminatedError if number == signal.SIGTERM else KeyboardInterrupt):
        ends()
    assert signal.getsignal(number) is before
    assert "leaving" not in {thread.name for thread in threading.enumerate()}


HANGING = """
import os, signal, sys, threading
from memagent_batch.errors import SupersededError
from memagent_batch.run.executors import leaving

leaving.LEAVE_SECONDS, leaving.CLAIM_SECONDS = 0.5, 0.2
kind = sys.argv[1]

def look():
    if kind == "lost":
        raise SupersededError("run 2 has the output")

def hang():
    while True:  # a library that swallows every interrupt
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass

with leaving.FORCED_EXIT, leaving.terminable(), leaving.GracefulShutdown(require_claim=look):
    if kind != "lost":
        threading.Timer(0.3, os.kill, (os.getpid(), getattr(signal, kind))).start()
    hang()
"""


@pytest.mark.parametrize(("kind", "exit_code"), [("SIGTERM", 143), ("lost", 3)])
def test_run_that_never_gets_out_is_ended_by_force_with_its_exit_code(kind: str, exit_code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING, kind], capture_output=True, text=True, timeout=MAX_SECONDS)
    assert ended.returncode == exit_code, ended.stderr
    assert "stopped by force" in ended.stderr


def test_run_that_left_in_time_is_not_ended_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "LEAVE_SECONDS", 3.0)
    ended = threading.Event()
    monkeypatch.setattr(leaving, "_exit_by_force", lambda cause: ended.set())
    with pytest.raises(SupersededError), leaving.FORCED_EXIT:
        swallow_loss()
    assert not ended.wait(4.0)
