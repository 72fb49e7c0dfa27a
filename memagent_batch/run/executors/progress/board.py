"""Where the readers' reports wait until the driver takes them. Nothing durable relies on it."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memagent_batch.logs import EventKind
from memagent_batch.loop.reasons import Reason
from memagent_batch.run.reading.suspects import TurnKey

KEPT_EVENTS = 1000
"""Log lines that wait for the driver's next look; what comes beyond is only counted."""
BOUND_SECONDS = 1.0
"""Pause between looks whether the run has met a bound, as long as that between the driver's own looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A log line of an actor, which the driver writes: nobody reads the stderr of an actor."""

    kind: EventKind
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def level(self) -> int:
        """The level of its line, as `logging` counts it."""
        return logging.INFO if self.kind == EventKind.ENDPOINT_BACK else logging.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounts:
    """The replicas of a run on a cluster."""

    ready: int
    asked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorReport:
    """What an actor did since its last report, or all of them since the driver's last look."""

    counts: Mapping[str, int]
    """Growth of the sums, by the names of `metrics.READER_COUNTS`."""
    events: Sequence[Event] = ()
    deaths: Sequence[TurnKey] = ()
    """Turns that were in flight at deaths of engines since then."""
    replicas: ReplicaCounts | None = None
    board_id: str = ""
    """Changes when the board's process is started again."""


class Board:
    """The reports of a run's readers, and what a reader leaves to the one that replaces it.

    Readers and driver may call it from several threads. `RayBoard` stands for one in another process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counter[str]()
        self._events: list[Event] = []
        self._num_left_out = 0
        self._reasons: set[str] = set()
        self._has_turns = False
        self._deaths: list[TurnKey] = []
        self._num_taken_deaths = 0
        self._bound = ""

    async def put(self, report: ActorReport) -> None:
        """Adds a reader's report; of readings that were not read it keeps the first event for each reason."""
        with self._lock:
            self._counts.update(report.counts)
            self._has_turns = self._has_turns or report.counts.get("turns", 0) > 0
            news = [event for event in report.events if self._is_news(event)]
            room = KEPT_EVENTS - len(self._events)
            self._events.extend(news[:room])
            self._num_left_out += len(news[room:])

    def take(self) -> ActorReport:
        """All reports since the last call; one more event gives the number of those that were left out."""
        with self._lock:
            counts, self._counts = self._counts, Counter[str]()
            events, self._events = self._events, []
            left_out, self._num_left_out = self._num_left_out, 0
            deaths, self._num_taken_deaths = self._deaths[self._num_taken_deaths :], len(self._deaths)
        if left_out:
            message = f"{left_out} more failed readings; the table `answers` has them all"
            events.append(Event(kind=EventKind.READING_FAILED, message=message, fields={"left_out": left_out}))
        return ActorReport(counts=counts, events=events, deaths=deaths)

    async def has_turns(self) -> bool:
        """Whether any reader has reported a turn."""
        return self._has_turns

    async def put_deaths(self, turns: Sequence[TurnKey]) -> None:
        """Adds the turns that were in flight when an engine died."""
        with self._lock:
            self._deaths.extend(turns)

    async def restore_deaths(self, turns: Sequence[TurnKey]) -> None:
        """Puts back deaths that `take` has returned, at a board that was started again."""
        with self._lock:
            self._deaths[:0] = turns
            self._num_taken_deaths += len(turns)

    async def deaths(self) -> Sequence[TurnKey]:
        """All that were added."""
        return self._deaths

    def stop_turns(self, bound: str) -> None:
        """The run has met the bound of this setting."""
        self._bound = bound

    def may_start_turns(self) -> bool:
        """Whether the run has met no bound yet."""
        return not self._bound

    async def bound_met(self) -> str:
        """The setting of the bound that the run has met; returns once it has."""
        while not self._bound:  # noqa: ASYNC110 - the driver sets it from another thread
            await asyncio.sleep(BOUND_SECONDS)
        return self._bound

    def _is_news(self, event: Event) -> bool:
        if event.kind != EventKind.READING_NOT_READ:
            return True
        reason = Reason(error_type=event.fields["error_type"], error_message=event.fields["error_message"])
        is_news = reason.key not in self._reasons and len(self._reasons) < KEPT_EVENTS
        self._reasons.update({reason.key} if is_news else ())
        return is_news
