"""A driver leaves on SIGTERM, whatever its watching thread meets."""

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from memagent_batch.errors import OutputError, StorageOutageError, TerminatedError
from memagent_batch.ray_data.leaving import OrderlyLeave, terminable

LONGEST_SECONDS = 120.0
"""After which a block counts as deaf to the signal."""


def wait_for_the_signal(look: Callable[[], None], striker: threading.Thread) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    with terminable(), OrderlyLeave(require_claim=look):
        striker.start()
        while time.monotonic() < deadline:
            time.sleep(0.05)


@pytest.mark.parametrize(
    "error",
    [OutputError("run.json is not valid JSON"), StorageOutageError("no answer"), ZeroDivisionError("a bug")],
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
