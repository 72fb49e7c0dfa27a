"""What a run says on stderr while it goes, through stdlib logging: lines for people, or one JSON object a line.

Actors have no stderr that anybody reads; their events reach the driver with their counts, and are told there.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from memagent_batch.masking import CONTROL, printable, shown_text

CLEAR_LINE = "\r\x1b[K"
"""Takes a terminal's cursor to the start of the line, and empties it."""

LOGGER = logging.getLogger("memagent")


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
    QUESTIONS_UNTAUGHT = "questions_untaught"
    """A shipped policy is asked for what it was not taught."""
    TOKENIZERS_DIFFER = "tokenizers_differ"
    """A suite is read with another tokeniser than the one in whose tokens its lengths are counted."""
    RUN_CLOSED = "run_closed"
    """The counts close and the manifest is written."""
    RUN_STOPPED = "run_stopped"
    """The command ends with an error; its exit code is not 0."""
    STEP = "step"
    """What is done before the first reading begins: a passing line where stderr is a terminal."""
    PROGRESS = "progress"
    """How far the work is: readings, only where stderr is no terminal; steps of learning, always."""
    READING_FAILED = "reading_failed"
    """A reading became a `failed` row."""
    READING_NOT_READ = "reading_not_read"
    """A reading could not be read now; told once for each reason. The next run reads it."""
    ENGINE_DIED = "engine_died"
    """An engine can serve nothing more; its actor stops."""
    ENGINE_RESTARTED = "engine_restarted"
    """An engine is up again in the place of one that died, or of an actor or node that went away."""
    ENDPOINT_AWAY = "endpoint_away"
    """An endpoint has answered nothing usable for some seconds; all requests of the actor wait for it."""
    ENDPOINT_BACK = "endpoint_back"
    """It answers again; the readings go on."""
    PROBABILITIES_DIFFER = "probabilities_differ"
    """The learner gives what was drawn other probabilities than the engine that drew it."""


WARNINGS = frozenset(
    {
        EventKind.FILES_UNREADABLE,
        EventKind.DOCUMENTS_MISSING,
        EventKind.QUESTIONS_UNTAUGHT,
        EventKind.TOKENIZERS_DIFFER,
        EventKind.READING_FAILED,
        EventKind.READING_NOT_READ,
        EventKind.ENGINE_DIED,
        EventKind.ENGINE_RESTARTED,
        EventKind.ENDPOINT_AWAY,
        EventKind.PROBABILITIES_DIFFER,
    }
)
"""Kinds that are worth a look though the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened."""

    kind: EventKind
    """What."""
    message: str
    """The line for people."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What a machine wants to know besides: run and reading ids, counts. Nothing secret, and no text of a document."""


def begin_log(*, as_json: bool) -> None:
    """From here on events go to stderr in that form."""
    handler = _Stderr()
    handler.setFormatter(_JsonLines() if as_json else _TextLines())
    LOGGER.handlers = [handler]
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False


def tell(event: Event) -> None:
    """Writes an event's line; as text where no form was chosen."""
    if not LOGGER.handlers:
        begin_log(as_json=False)
    LOGGER.log(_level(event.kind), event.message, extra={"event": event})


@contextmanager
def step(message: str) -> Iterator[None]:
    """While the block runs, says what it does; on a terminal the line is gone when it ends."""
    tell(Event(kind=EventKind.STEP, message=message))
    try:
        yield
    finally:
        for handler in LOGGER.handlers:
            if isinstance(handler, _Stderr):
                handler.clear()


class _Stderr(logging.Handler):
    """Writes to what stderr is at the time."""

    def __init__(self) -> None:
        super().__init__()
        self._passing = False

    def emit(self, record: logging.LogRecord) -> None:
        event: Event = record.__dict__["event"]
        line = self.format(record)
        self.clear()
        if event.kind == EventKind.STEP and sys.stderr.isatty() and isinstance(self.formatter, _TextLines):
            sys.stderr.write(f"{line} ...")
            self._passing = True
        else:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Takes back the line of a step."""
        if self._passing:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
        self._passing = False


class _TextLines(logging.Formatter):
    """A message is one line; that of an end may be several, of which only the first begins at the margin.

    So no text of a document, a file system or an endpoint looks like a line of this program.
    """

    def format(self, record: logging.LogRecord) -> str:
        event: Event = record.__dict__["event"]
        message = shown_text(event.message)
        if event.kind != EventKind.RUN_STOPPED:
            return printable(message)
        first, *others = message.split("\n")
        return "\n  ".join([printable(first), *(printable(line.removeprefix("  ")) for line in others)])


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event: Event = record.__dict__["event"]
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": event.kind,
            **event.fields,
            "message": shown_text(event.message),
        }
        return CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], json.dumps(line, ensure_ascii=False))


def _level(kind: EventKind) -> int:
    if kind == EventKind.RUN_STOPPED:
        return logging.ERROR
    return logging.WARNING if kind in WARNINGS else logging.INFO
