"""Log lines on stderr: standard `logging` with lines for people, or one JSON object a line.

A module logs with `logging.getLogger(__name__)` and names what happened: `extra={"event": EventKind.RUN_STARTED, ...}`.
The other entries of `extra` are fields for a machine: ids and counts. They hold no secret and no text of a document.
"""

import contextlib
import json
import logging
import math
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from threading import Thread
from typing import Any

from memagent_batch.masking import CONTROL, mask_urls, printable

OWN_LOGGER = "memagent_batch"

STDERR_NUMBER = 2

PIPE_SECONDS = 1.0
"""Longest wait for the last line of a pipe. A process that inherited the pipe may keep it open for longer."""

LINE_BYTES = 1 << 20
"""Longest line that is rewritten as one; a longer one is cut."""

LINE_END = re.compile(rb"(?<=\n)|(?<=\r)(?!\n)")
"""Where a line ends; a progress bar returns to the margin instead."""

LIBRARY_VARIABLES = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "TORCH_LOGS": "-all",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "PYTHONWARNINGS": "ignore::FutureWarning",
}
"""Environment under which vLLM, torch and transformers log errors only."""

log = logging.getLogger(__name__)


class EventKind(StrEnum):
    """What happened."""

    RUN_STARTED = "run_started"
    """The plan is made and recorded; reading begins."""
    DOCUMENTS_FOUND = "documents_found"
    """The documents are indexed: how many, from which files, and what was left out."""
    FILES_UNREADABLE = "files_unreadable"
    """Files or records of the input can't be read; they become `failed` rows."""
    DOCUMENTS_MISSING = "documents_missing"
    """Questions are bound to documents that are not there; they become `failed` rows."""
    COLUMNS_IGNORED = "columns_ignored"
    """The question list has columns that no question list has."""
    AGENT_CHANGED = "agent_changed"
    """Another agent than that of the last run reads into this output, so that all is read again."""
    QUESTIONS_UNTAUGHT = "questions_untaught"
    """A shipped policy gets questions of a form that it was not trained on."""
    THOUGHTS_UNBOUNDED = "thoughts_unbounded"
    """The model always thinks, so that a thought may use up the budget of a turn."""
    RUN_CLOSED = "run_closed"
    """The counts close and the manifest is written."""
    RUN_STOPPED = "run_stopped"
    """The command ends with an error; its exit code is not 0."""
    STEP = "step"
    """What happens before the first reading begins."""
    PROGRESS = "progress"
    """How far the work is: readings, only where stderr is not a terminal; steps of learning, always."""
    READING_FAILED = "reading_failed"
    """A reading became a `failed` row."""
    READING_NOT_READ = "reading_not_read"
    """A reading could not be read now; the first one for each reason. The next run reads it."""
    ENGINE_DIED = "engine_died"
    """An engine can serve nothing more; its actor stops."""
    ENGINE_RESTARTED = "engine_restarted"
    """An engine is up again in place of one that died, or of an actor or node that went away."""
    REPLICA_GIVEN_UP = "replica_given_up"
    """The engine of a replica can't start; the others read without it."""
    ENDPOINT_AWAY = "endpoint_away"
    """An endpoint has answered nothing usable for some seconds; all requests of the actor wait for it."""
    ENDPOINT_BACK = "endpoint_back"
    """It answers again; the readings go on."""
    ENDPOINT_SLOW = "endpoint_slow"
    """An endpoint answers late or turns requests away; fewer are sent at a time."""
    ENDPOINT_CHANGED = "endpoint_changed"
    """An endpoint says that it is another server, or has another model, than before."""
    BATCH_SENT = "batch_sent"
    """Requests were sent to an endpoint as one batch, or a batch of an earlier run is waited for."""
    BATCH_ENDED = "batch_ended"
    """A batch has ended, in whatever way."""
    RECORD_UNREADABLE = "record_unreadable"
    """A file that an earlier run or a review has left can't be used; the work goes on without it."""
    OTHER = "other"
    """A line of a library, or one that was written to stderr past `logging`."""


def begin_log(*, as_json: bool) -> None:
    """Sends all log lines of this process to stderr, in that form; called again, it changes the form."""
    end_log()
    handler = _Stderr()
    handler.setFormatter(_JsonLines() if as_json else _TextLines())
    handler.setLevel(logging.INFO)  # bm25s says at DEBUG, which it sets for itself, that it builds an index
    logging.getLogger().addHandler(handler)
    logging.getLogger(OWN_LOGGER).setLevel(logging.INFO)


def end_log() -> None:
    """Ends what `begin_log` began."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Stderr)]:
        root.removeHandler(handler)


@contextlib.contextmanager
def log_of_program(*, as_json: bool = False) -> Iterator[None]:
    """Sends the log lines of the block to stderr, unless the program that runs it has set up `logging` itself."""
    own = logging.getLogger(OWN_LOGGER)
    level = own.level
    is_set_up = bool(logging.getLogger().handlers or level)
    if not is_set_up:
        begin_log(as_json=as_json)
    try:
        yield
    finally:
        if not is_set_up:
            end_log()
            own.setLevel(level)


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Hides what libraries log below errors, in this process and those that the block starts.

    A variable that is set stays as it is: `VLLM_LOGGING_LEVEL=INFO` shows vLLM's lines.
    """
    added = {name: value for name, value in LIBRARY_VARIABLES.items() if name not in os.environ}
    os.environ.update(added)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def log_step(message: str) -> None:
    """Logs what begins now, before the first reading."""
    log.info(message, extra={"event": EventKind.STEP})


@contextlib.contextmanager
def rewritten_stderr(rewrite: Callable[[bytes], bytes]) -> Iterator[None]:
    """The block with each line on its way to stderr as `rewrite` returns it, whoever writes it.

    That includes child processes, and libraries in C that write to the file descriptor.
    """
    reader, writer = os.pipe()
    stderr = os.dup(STDERR_NUMBER)
    sys.stderr.flush()
    os.dup2(writer, STDERR_NUMBER)
    os.close(writer)
    thread = Thread(target=_rewrite, args=(rewrite, reader, os.dup(stderr)), daemon=True, name="stderr")
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # nobody reads stderr any more
            sys.stderr.flush()
        os.dup2(stderr, STDERR_NUMBER)
        thread.join(PIPE_SECONDS)
        os.close(stderr)


def as_json(line: bytes) -> bytes:
    """A line of stderr as a JSON object with time, level, event and message, URLs masked; nothing for an empty one."""
    text = line.decode(errors="replace").rstrip()
    if not text:
        return b""
    own = {"time": _time(time.time()), "level": "warning", "event": EventKind.OTHER, "logger": "stderr"}
    shown = _json_line(_own_line(text) or {**own, "message": text})
    return f"{shown}\n".encode()


def kind_of(record: logging.LogRecord) -> EventKind:
    """What a record says that happened. Libraries have fields of the same name."""
    kind = record.__dict__.get("event")
    return kind if isinstance(kind, EventKind) else EventKind.OTHER


def _rewrite(rewrite: Callable[[bytes], bytes], reader: int, stderr: int) -> None:
    """Ends when every process has closed its end of the pipe; reads on where nobody reads stderr any more."""
    rest = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe, os.fdopen(stderr, "wb", buffering=0) as shown:
        while chunk := pipe.read(LINE_BYTES):
            *lines, rest = LINE_END.split(rest + chunk)
            if len(rest) >= LINE_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                with contextlib.suppress(OSError):
                    shown.write(rewrite(line))
        with contextlib.suppress(OSError):
            shown.write(rewrite(rest))


class _Stderr(logging.Handler):
    """Writes to what stderr is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record; no record of any library, and no stderr that is gone, raises where it was logged."""
        with contextlib.suppress(Exception):
            try:
                line = self.format(record)
            except Exception as error:  # noqa: BLE001 - arguments that don't fit, fields that hold themselves
                line = self.format(_bare(record, error))
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


class _TextLines(logging.Formatter):
    """A message is one line; that of an end may be several, and only the first of these begins at the margin.

    So no text of a document, a file system or an endpoint looks like a line of this program.
    """

    def format(self, record: logging.LogRecord) -> str:
        message = mask_urls(record.getMessage())
        if kind_of(record) != EventKind.RUN_STOPPED:
            return printable(message)
        trace = mask_urls(self.formatException(record.exc_info)).split("\n") if record.exc_info else []
        first, *others = [*message.split("\n"), *trace]
        return "\n  ".join([printable(first), *(printable(line.removeprefix("  ")) for line in others)])


class _JsonLines(logging.Formatter):
    """Time, level and kind first, then the fields, then the message; characters that steer a terminal as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        kind = kind_of(record)
        fields = _own_fields(record) if kind != EventKind.OTHER else {"logger": record.name}
        if record.exc_info:
            fields["exc_info"] = self.formatException(record.exc_info)
        own = {"time": _time(record.created), "level": record.levelname.lower(), "event": kind}
        return _json_line({**own, **fields, "message": record.getMessage()})


def _own_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was logged with a message, without what `logging`, or a library such as vLLM, adds to every record."""
    arguments: Any = ("", logging.INFO, "", 0, "", (), None)
    every = {"event", "message", "asctime", *logging.getLogRecordFactory()(*arguments).__dict__}
    return {name: value for name, value in record.__dict__.items() if name not in every}


def _bare(record: logging.LogRecord, error: Exception) -> logging.LogRecord:
    """A record without its fields, which can't be written."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - its arguments don't fit, or can't be shown
        message = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
    fields = {name: record.__dict__[name] for name in ("name", "levelno", "levelname", "created")}
    text = f"{message} (the rest of this line can't be written: {type(error).__name__})"
    return logging.makeLogRecord({**fields, "msg": text, "event": kind_of(record)})


def _own_line(text: str) -> dict[str, Any] | None:
    """The object of a line that this program has logged; None for any other line."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):  # malformed, too deep, with numbers too long
        return None
    is_own = isinstance(fields, dict) and fields.get("event") in list(EventKind) and "message" in fields
    return fields if is_own else None


def _json_line(fields: Mapping[str, Any]) -> str:
    line = json.dumps(_shown_value(fields), ensure_ascii=False, allow_nan=False)
    return CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], line)


def _shown_value(value: object) -> Any:
    """A JSON value for any value, without the secrets of URLs in texts, names and what else is shown as text."""
    if isinstance(value, Mapping):
        return {mask_urls(str(name)): _shown_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_shown_value(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else mask_urls(str(value))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
