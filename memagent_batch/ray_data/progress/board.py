"""Where the readers' reports wait until the driver takes them. Nothing durable relies on it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from memagent_batch.domain.reasons import Reason
from memagent_batch.logs import EventKind
from memagent_batch.ray_data.starts import NextStep, Starts
from memagent_batch.reading.suspects import TurnKey

KEPT_EVENTS = 1000
"""Log lines that wait for the driver's next look; what comes beyond is only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A log line of an actor, which the driver writes: nobody reads the stderr of an actor."""

    kind: EventKind
    """What happened."""
    message: str
    """The line for people."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Ids and counts for a machine."""

    @property
    def level(self) -> int:
        """The level of its line, as `logging` counts it."""
        return logging.INFO if self.kind == EventKind.ENDPOINT_BACK else logging.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an actor did since its last report, or all of them since the driver's last look."""

    counts: Mapping[str, int]
    """Growth of the sums, by the names of `metrics.COUNTS`."""
    events: Sequence[Event] = ()
    """Log lines, in their order."""


class ProgressBoard:
    """A Ray actor between the readers and the driver, and between a reader and the one that replaces it."""

    def __init__(self) -> None:
        """Nothing has been reported."""
        self._counts = Counter[str]()
        self._events: list[Event] = []
        self._num_left_out = 0
        self._reasons: set[str] = set()
        self._has_turns = False
        self._deaths: list[TurnKey] = []
        self._starts = Starts()
        self._run_ended = asyncio.Event()
        self._bound = ""
        self._bound_met = asyncio.Event()
        self._shared: asyncio.Future[ray.ObjectRef] | None = None

    async def put(self, report: Report) -> None:
        """Adds a reader's report; of readings that were not read it keeps the first event for each reason."""
        self._counts.update(report.counts)
        self._has_turns = self._has_turns or report.counts.get("turns", 0) > 0
        news = [event for event in report.events if self._is_news(event)]
        room = KEPT_EVENTS - len(self._events)
        self._events.extend(news[:room])
        self._num_left_out += len(news[room:])

    async def take(self) -> Report:
        """All reports since the last call; one more event gives the number of those that were left out."""
        counts, self._counts = self._counts, Counter[str]()
        events, self._events = self._events, []
        left_out, self._num_left_out = self._num_left_out, 0
        if left_out:
            message = f"{left_out} more failed readings; the table `answers` has them all"
            events.append(Event(kind=EventKind.READING_FAILED, message=message, fields={"left_out": left_out}))
        return Report(counts=counts, events=events)

    async def has_turns(self) -> bool:
        """Whether any reader has reported a turn."""
        return self._has_turns

    async def put_deaths(self, turns: Sequence[TurnKey]) -> None:
        """Adds the turns that were under way when an engine died, where no log keeps them."""
        self._deaths.extend(turns)

    async def deaths(self) -> Sequence[TurnKey]:
        """All that were added."""
        return self._deaths

    async def begin_start(self, replica: str) -> None:
        """A replica begins to start; see `Starts`."""
        await self._starts.begin(replica)

    async def end_start(self, replica: str, *, num_replicas: int, problem: str | None) -> NextStep:
        """What a replica does whose start ended; see `Starts`."""
        return await self._starts.end(replica, num_replicas=num_replicas, has_failed=problem is not None)

    async def end_run(self) -> None:
        """The readings have ended."""
        self._run_ended.set()

    async def run_ended(self) -> None:
        """Returns once the readings have ended."""
        await self._run_ended.wait()

    async def stop_turns(self, bound: str) -> None:
        """The run has met the bound of this setting."""
        self._bound = bound
        self._bound_met.set()

    async def may_start_turns(self) -> bool:
        """Whether the run has met no bound yet."""
        return not self._bound

    @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
    async def bound_met(self) -> str:
        """The setting of the bound that the run has met; returns once it has."""
        await self._bound_met.wait()
        return self._bound

    @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
    async def share(self, make: Callable[[], Any]) -> list[ray.ObjectRef]:
        """What `make` returns, for all callers; it is called at the first of them, and again if it raised."""
        if self._shared is None or (self._shared.done() and self._shared.exception() is not None):
            self._shared = asyncio.ensure_future(asyncio.to_thread(lambda: ray.put(make())))
        return [await asyncio.shield(self._shared)]

    def _is_news(self, event: Event) -> bool:
        if event.kind != EventKind.READING_NOT_READ:
            return True
        reason = Reason(error_type=event.fields["error_type"], error_message=event.fields["error_message"])
        is_news = reason.key not in self._reasons and len(self._reasons) < KEPT_EVENTS
        self._reasons.update({reason.key} if is_news else ())
        return is_news


def start_board() -> Any:
    """A ProgressBoard as an actor that takes no CPU; returns its handle."""
    return ray.remote(num_cpus=0, max_restarts=-1)(ProgressBoard).remote()
