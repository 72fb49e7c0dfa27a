"""Keeps a line of Ray's core off the terminal, which says at every start that the core's log level is set."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

LEVEL_VARIABLE = "RAY_BACKEND_LOG_LEVEL"
NOTICE = f"Set ray log level from environment variable {LEVEL_VARIABLE}".encode()
STDERR = 2
"""File descriptor of stderr, to which the core writes past Python."""
LAST_LINE_SECONDS = 1.0
"""Longest wait for what was written last. A process that inherited the pipe may keep it open for longer."""


@contextmanager
def without_notice() -> Iterator[None]:
    """The block with all that is written to stderr passed on line by line, but for the notice."""
    reader, writer = os.pipe()
    stderr = os.dup(STDERR)
    os.dup2(writer, STDERR)
    os.close(writer)
    passing = Thread(target=_pass_on, kwargs={"reader": reader, "stderr": stderr}, daemon=True, name="stderr")
    passing.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, STDERR)
        passing.join(LAST_LINE_SECONDS)


def _pass_on(*, reader: int, stderr: int) -> None:
    """Until every process has closed its end of the pipe."""
    with os.fdopen(reader, "rb") as lines, os.fdopen(stderr, "wb", buffering=0) as shown:
        for line in lines:
            if NOTICE not in line:
                shown.write(line)
