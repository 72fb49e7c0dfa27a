"""What readers report while they read: counts and log lines, which wait at the board until the driver takes them.

Nothing durable relies on it.
"""

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.errors import EngineDeadError
from memagent_batch.logs import EventKind
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.loop.reasons import Reason
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.run.executors.ray.metrics import READER_COUNTS, gauge, turn_histogram
from memagent_batch.run.reading.places import TurnKey
from memagent_batch.types import Completion, FinishReason, Prompt, Status

KEPT_EVENTS = 1000
"""Log lines that wait for the driver's next look; what comes beyond is only counted."""
BOUND_SECONDS = 1.0
"""Pause between looks whether the run has met a bound, as long as that between the driver's own looks."""
REPORT_SECONDS = 1.0
SETTLE_SECONDS = 30.0
"""Longest wait for the board; a reading goes on without it."""
AWAY_SECONDS = 5.0
"""An endpoint that is away for less is not worth a line: throttling may hold requests back every other second."""


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
            message = f"{quantity(left_out, 'more failed reading')}; the table `answers` has all"
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


class Reporter:
    """Counts an actor's work; lives on its event loop."""

    def __init__(self, *, board: Board, log: TurnLogWriter, run_id: str, model: str, policy: str) -> None:
        self.in_flight = 0
        """Readings in flight."""
        self.waiting = 0
        """Readings that wait for a place."""
        self._board = board
        self._log = log
        self._run_id = run_id
        own = {"model": model, "policy": policy}
        self._in_flight = gauge("memagent_readings_in_flight", "readings that an actor keeps going", labels=own)
        self._waiting = gauge("memagent_readings_waiting", "readings inside an actor that wait for a place", labels=own)
        self._turn_histogram = turn_histogram(labels=own)
        self._counts = dict.fromkeys(READER_COUNTS, 0)
        self._events: list[Event] = []
        self._reported_log = Counter[str]()
        self._engine_died = False
        self._engine: Engine | None = None
        self._away_seconds = 0.0

    async def report(self) -> None:
        """Sends a report once a second, forever."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self.send()

    def count_engine_start(self, engine: Engine, *, is_replacement: bool) -> None:
        """Takes an engine that is up; it counts as a restart if it replaces one that went away."""
        self._engine = engine
        if is_replacement:
            self._counts["engine_restarts"] += 1
            self.add_event(EventKind.ENGINE_RESTARTED, "engine restarted")

    def count_engine_death(self, error: EngineDeadError) -> None:
        """Takes the death of the engine, which every turn in flight reports; sends it once and at once."""
        if not self._engine_died:
            self._engine_died = True
            self.add_event(EventKind.ENGINE_DIED, f"engine died: {error}", error_message=str(error))
            self.send()

    def count_turn(self, prompt: Prompt, completion: Completion) -> None:
        """Adds the tokens of a finished turn to the counts, unless the engine was not asked."""
        if completion.replayed:
            return
        cut = completion.finish_reason == FinishReason.LENGTH
        self._counts["turns"] += 1
        self._counts["prompt_tokens"] += completion.num_prompt_tokens
        self._counts["cached_tokens"] += completion.num_cached_prompt_tokens
        self._counts["completion_tokens"] += completion.num_completion_tokens
        self._counts["memory_truncations"] += prompt.writes is not None and cut
        self._turn_histogram.observe(completion.engine_seconds)

    def count_read(self, num_bytes: int) -> None:
        """Takes a part of what the plan counts for a reading."""
        self._counts["document_bytes"] += num_bytes

    def count_reading(self, status: Status) -> None:
        """Takes a reading that ended, or was not read."""
        self._counts["readings"] += status != Status.NOT_READ
        self._counts["failed"] += status == Status.FAILED
        self._counts["not_read"] += status == Status.NOT_READ

    def add_event(self, kind: EventKind, message: str, **fields: object) -> None:
        """Takes a line for the driver's log."""
        self._events.append(Event(kind=kind, message=message, fields={"run_id": self._run_id, **fields}))

    def add_failure(
        self,
        *,
        document_id: str,
        question_id: str,
        sample: int,
        is_failed: bool,
        error_type: str | None,
        error_message: str | None,
    ) -> None:
        """Takes a line on a reading that failed, or could not be read now."""
        end = "failed" if is_failed else "not read"
        error = f"{error_type}: {error_message}"
        self.add_event(
            EventKind.READING_FAILED if is_failed else EventKind.READING_NOT_READ,
            f"reading {end}: document {document_id!r}, question {question_id!r}: {error}",
            document_id=document_id,
            question_id=question_id,
            sample=sample,
            error_type=error_type,
            error_message=error_message,
        )

    async def settle(self) -> None:
        """Sends, and waits until the board has it: when the last reading has returned, nobody reads it again."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.send(), SETTLE_SECONDS)

    def send(self) -> asyncio.Future[None]:
        """Reports what has come together since the last time; what it returns ends when the board has it."""
        self._note_outage()
        self._in_flight.set(self.in_flight)
        self._waiting.set(self.waiting)
        counts, self._counts = self._counts | self._log_counts(), dict.fromkeys(READER_COUNTS, 0)
        events, self._events = self._events, []
        if not events and not any(counts.values()):
            return asyncio.ensure_future(asyncio.sleep(0))
        return asyncio.ensure_future(self._board.put(ActorReport(counts=counts, events=events)))

    def _note_outage(self) -> None:
        """Adds one event when the endpoint is away, and one when it is back."""
        if self._engine is None:
            return
        seconds, before = self._engine.away_seconds, self._away_seconds
        if seconds >= AWAY_SECONDS and not before:
            message = f"endpoint away for {seconds:.0f} s, all readings wait for it: {self._engine.away_reason}"
            self.add_event(EventKind.ENDPOINT_AWAY, message, away_seconds=round(seconds))
        elif before and not seconds:
            message = f"endpoint back after {before:.0f} s"
            self.add_event(EventKind.ENDPOINT_BACK, message, away_seconds=round(before))
        self._away_seconds = seconds if seconds >= AWAY_SECONDS else 0.0

    def _log_counts(self) -> dict[str, int]:
        """What the log has written since the last time."""
        before = self._reported_log
        self._reported_log = Counter(log_flushes=self._log.num_flushes, log_bytes=self._log.num_bytes)
        return self._reported_log - before


class ReadingShare:
    """How much of one reading is done, between its turns and the counts of its actor.

    Counts a reading in the bytes that it has in the plan: a part with each turn, the rest at its end.

    Its turns count as parts of the most that it may take, and one more. So a reading is whole at its end alone: not
    after a round over the chunks that others follow, and not before what is asked after its answer.
    """

    def __init__(self, reporter: Reporter, *, num_bytes: int, most_turns: Callable[[], int]) -> None:
        """`most_turns`, without those after the answer, is asked at the first one."""
        self._reporter = reporter
        self._num_bytes = num_bytes
        self._most_turns = most_turns
        self._num_turns = self._reported = 0

    def count_turn(self, prompt: Prompt, completion: Completion) -> None:
        """Counts a finished turn of the reading, also one that the engine was not asked."""
        self._reporter.count_turn(prompt, completion)
        if prompt.fingerprint is None:
            most = self._most_turns()
            self._num_turns = min(self._num_turns + 1, most)
            self._report(self._num_bytes * self._num_turns // (most + 1))

    def end(self) -> None:
        """The reading ended, whatever came of it; one that was not read has more to do."""
        self._report(self._num_bytes)

    def _report(self, num_bytes: int) -> None:
        self._reporter.count_read(num_bytes - self._reported)
        self._reported = num_bytes
