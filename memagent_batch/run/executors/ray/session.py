"""Ray, as long loops need it: connects to a cluster or starts one here, and sets Ray Data's settings."""

import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from urllib.parse import urlsplit

import ray
from ray.data import DataContext, Dataset

from memagent_batch.errors import MemagentError, RunFailedError, SettingsError
from memagent_batch.logs import log_step, rewritten_stderr
from memagent_batch.run.executors.leaving import FORCED_EXIT, handling, terminable

LEVEL_VARIABLE = "RAY_BACKEND_LOG_LEVEL"
NOTICE = f"Set ray log level from environment variable {LEVEL_VARIABLE}".encode()
"""A line that Ray's core writes to stderr at every start where its log level is set."""

CPU_SHARE = 0.5
"""CPUs of one indexing, tokenising or writing task; low enough that they start beside the engines on two cores."""

RAY_NOTE = "\nFailed to apply UDF"
"""Begins the advice on retries that Ray Data adds to the message of every error in a task."""

LOG_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences with which Ray colours its messages."""

BLOCKS_AHEAD = 16
"""Documents that a CPU task holds ready. Ray Data takes them once a round of its loop, which lasts 0.1 s at the least;
with its own 2 ahead, readers get nine documents a second, however many replicas there are."""

REACH_SECONDS = 30.0
"""Longest wait for a cluster that was named; its head may be starting."""

CLIENT_PORT = 10001
"""The port that an address of `ray://` may leave out."""

START_SECONDS = 1800.0
"""Longest wait for replicas to start; a cluster may have to add nodes for them."""


@contextmanager
def ray_session() -> Iterator[bool]:
    """Connects to the cluster of RAY_ADDRESS (as in `ray job submit`), or starts one on this machine for the run.

    Yields whether the cluster is one machine that was started here, so that no node can join it.

    A session that is there already is used, and stays as it was. While one of ours is open, all that this process
    prints goes to stderr, since Ray prints there too (that a worker died, for one): stdout is for the command's result.
    """
    started = not ray.is_initialized()
    is_own = started and "RAY_ADDRESS" not in os.environ
    if started:
        log_step("starting Ray")
        _connect()
    context = DataContext.get_current().copy()
    set_long_loops(context)
    context.enable_progress_bars = False  # the run has its own progress line
    context.print_on_execution_start = False
    stdout = redirect_stdout(sys.stderr) if started else nullcontext()
    with FORCED_EXIT, DataContext.current(context), _silent_ray_data(), stdout:
        try:
            with terminable():
                yield is_own
        except ray.exceptions.RayError as error:
            raise own_error(error) from error
        finally:
            if started:
                with handling(signal.SIGTERM, signal.SIG_IGN):  # it is leaving already
                    ray.shutdown()


def require_cluster(address: str) -> None:
    """Waits for somebody to listen at `host:port` or `ray://host:port`; Ray itself would try for minutes, then crash.

    Raises:
        SettingsError: it is an address for `ray job submit`.
        RunFailedError: nobody listens there for `REACH_SECONDS`.
    """
    if ":" not in address:
        return
    url = urlsplit(address if "://" in address else f"//{address}")
    if url.scheme in ("http", "https"):
        raise SettingsError(
            f"RAY_ADDRESS={address} is an address for `ray job submit`, not of a cluster; give its head as host:port "
            "(mostly port 6379), or leave it out in a submitted job and where Ray shall start on this machine"
        )
    try:
        host, port = url.hostname, url.port or CLIENT_PORT
    except ValueError:
        return  # no port: Ray says so
    deadline = time.monotonic() + REACH_SECONDS
    while host and port:
        try:
            with socket.create_connection((host, port), timeout=max(0.1, deadline - time.monotonic())):
                return
        except OSError as error:
            if time.monotonic() >= deadline:
                raise RunFailedError(
                    f"no Ray cluster can be reached at RAY_ADDRESS={address} for {REACH_SECONDS:g} s ({error}); start "
                    "it or correct the address, then the same command goes on from the log. Without RAY_ADDRESS, Ray "
                    "is started on this machine"
                ) from error
        time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))


def own_error(error: ray.exceptions.RayError) -> MemagentError:
    """This project's error as a task or an actor raised it; else a RunFailedError with Ray's own words."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, MemagentError):
        return type(cause)(_without_advice(str(cause)))
    message = _without_advice(LOG_COLOURS.sub("", str(error))).strip()
    return RunFailedError(f"Ray stopped the run: {message}; the same command goes on from the log")


@contextmanager
def _silent_ray_data() -> Iterator[None]:
    """Keeps errors of Ray Data's from being logged; they are raised too, see `own_error`."""
    logger = logging.getLogger("ray.data")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def set_long_loops(context: DataContext) -> None:
    """Sets what Ray Data's defaults get wrong for readings that take hours."""
    context.execution_no_progress_timeout_s = -1  # a 10 M-token document returns no row for hours
    context.max_errored_blocks = 0  # nothing is dropped
    context.raise_original_map_exception = True  # else the type of an error is lost, unless a generator raised it
    context.actor_task_retry_on_errors = False  # the engine is the one layer that retries
    context.max_consecutive_actor_init_deaths = 3
    context.hash_shuffle_operator_actor_num_cpus_override = 0.0  # else a small machine has no CPU left for its tasks
    context._max_num_blocks_in_streaming_gen_buffer = BLOCKS_AHEAD  # a setting by no other name
    context.wait_for_min_actors_s = START_SECONDS  # else the first actor that is up takes all the longest documents


def with_long_loops(dataset: Dataset) -> Dataset:
    """The dataset with its own settings for long loops, for all that follows it; the one that was given stays."""
    own = Dataset.copy(dataset, _deep_copy=True)  # the one way to a dataset with another context
    set_long_loops(own.context)
    return own


def _without_advice(message: str) -> str:
    return message.split(RAY_NOTE, 1)[0]


def _connect() -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    here = "RAY_ADDRESS" not in os.environ
    is_silenced = here and LEVEL_VARIABLE not in os.environ
    if is_silenced:  # an error of Ray's core about every actor pool of Ray Data, which keeps its own arguments alive
        os.environ[LEVEL_VARIABLE] = "fatal"
    if here:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing about a run leaves the machine
        os.environ.setdefault("RAY_worker_niceness", "0")  # else engines yield to all that Ray itself does (nice 15)
    else:
        require_cluster(os.environ["RAY_ADDRESS"])
    try:
        with rewritten_stderr(lambda line: b"" if NOTICE in line else line) if is_silenced else nullcontext():
            ray.init(
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=True,
                **({"include_dashboard": False} if here else {}),
            )
    except Exception as error:  # Ray's own errors, ConnectionError, and a bare Exception after 30 s without a raylet
        place = "on this machine" if here else f"at RAY_ADDRESS={os.environ['RAY_ADDRESS']}"
        raise RunFailedError(
            f"Ray can't be started or reached {place}: {str(error).strip()}; the same command goes on from the log"
        ) from error
