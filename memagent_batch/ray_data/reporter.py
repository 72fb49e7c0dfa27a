"""What an actor tells of itself once a second: counts and events to the board, latencies and queues to Prometheus."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

import ray

from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.engines.engine import Engine, Outage, RemoteEngine
from memagent_batch.errors import EngineDeadError
from memagent_batch.events import Event, EventKind
from memagent_batch.log.writer import TurnLogWriter
from memagent_batch.ray_data.metrics import ReaderMetrics
from memagent_batch.ray_data.progress import COUNTS, REPORT_SECONDS
from memagent_batch.settings import Settings

SETTLE_SECONDS = 30.0
"""Longest wait for the board; a reading goes on without it."""

AWAY_SECONDS = 5.0
"""An endpoint that is away for less is not worth a line: throttling may hold requests back every other second."""


def is_replacement() -> bool:
    """Whether this process is an actor that Ray started again after it died, or its node."""
    context = ray.get_runtime_context() if ray.is_initialized() else None
    return bool(context and context.get_actor_id() and context.was_current_actor_reconstructed)


class Reporter:
    """The one tally of an actor's work; lives on its event loop."""

    def __init__(self, settings: Settings, *, board: Any, log: TurnLogWriter) -> None:
        """Starts from nothing; the board is an actor handle of the ProgressBoard."""
        self.in_flight = 0
        """Readings under way."""
        self.waiting = 0
        """Readings that wait for a place."""
        self._board = board
        self._log = log
        self._metrics = ReaderMetrics(settings)
        self._counts = dict.fromkeys(COUNTS, 0)
        self._turn_seconds: list[float] = []
        self._events: list[Event] = []
        self._told_log = {"log_flushes": 0, "log_bytes": 0}
        self._engine_died = False
        self._run_id = ""
        self._outage: Outage | None = None
        self._away_seconds = 0.0

    async def report(self) -> None:
        """Tells all of it once a second, for ever."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self.send()

    def count_engine_start(self, engine: Engine, *, run_id: str) -> None:
        """Takes an engine that is up; tells where it stands in for one that went away."""
        self._run_id = run_id
        self._outage = engine.outage if isinstance(engine, RemoteEngine) else None
        if is_replacement():
            self._counts["engine_restarts"] += 1
            self.tell(Event(kind=EventKind.ENGINE_RESTARTED, message="engine restarted", fields={"run_id": run_id}))

    def count_engine_death(self, error: EngineDeadError, *, run_id: str) -> None:
        """Takes the death of the engine, which every turn under way reports; tells it once and at once."""
        if not self._engine_died:
            self._engine_died = True
            fields = {"run_id": run_id, "error_message": str(error)}
            self.tell(Event(kind=EventKind.ENGINE_DIED, message=f"engine died: {error}", fields=fields))
            self.send()

    def count_turn(self, prompt: Prompt, completion: Completion) -> None:
        """Takes a turn; what the log held cost the engine nothing."""
        if prompt.span is not None:
            self._counts["document_chars"] += prompt.span.char_end - prompt.span.char_start
        if completion.replayed:
            return
        cut = completion.finish_reason == FinishReason.LENGTH
        self._counts["turns"] += 1
        self._counts["prompt_tokens"] += completion.num_prompt_tokens
        self._counts["cached_tokens"] += completion.num_cached_prompt_tokens
        self._counts["completion_tokens"] += len(completion.token_ids)
        self._counts["memory_truncations"] += prompt.writes_memory and cut
        self._turn_seconds.append(completion.engine_seconds)

    def count_reading(self, status: Status) -> None:
        """Takes a reading that ended, or was not read."""
        self._counts["readings"] += status != Status.NOT_READ
        self._counts["failed"] += status == Status.FAILED
        self._counts["not_read"] += status == Status.NOT_READ

    def tell(self, event: Event) -> None:
        """Takes what the driver shall say."""
        self._events.append(event)

    async def settle(self) -> None:
        """Sends, and waits until the board has it: when the last reading has returned, nobody asks it again."""
        with contextlib.suppress(TimeoutError, ray.exceptions.RayError):
            await asyncio.wait_for(asyncio.gather(*self.send()), SETTLE_SECONDS)

    def send(self) -> list[Awaitable[None]]:
        """Tells what has come together since the last time; returns what ends when the board has it."""
        self._tell_outage()
        counts, self._counts = self._counts | self._log_counts(), dict.fromkeys(COUNTS, 0)
        events, self._events = self._events, []
        sent: list[Awaitable[None]] = []
        if events:
            sent.append(self._board.tell.remote(events))
        if any(counts.values()):
            sent.append(self._board.add.remote(counts))
        turn_seconds, self._turn_seconds = self._turn_seconds, []
        self._metrics.show(turn_seconds, in_flight=self.in_flight, waiting=self.waiting)
        return sent

    def _tell_outage(self) -> None:
        """Tells once that the endpoint is away, and once that it is back."""
        if self._outage is None:
            return
        seconds, before = self._outage.away_seconds, self._away_seconds
        if seconds >= AWAY_SECONDS and not before:
            message = f"endpoint away for {seconds:.0f} s, all readings wait for it: {self._outage.failure}"
            self._tell_absence(EventKind.ENDPOINT_AWAY, message, seconds=seconds)
        elif before and not seconds:
            self._tell_absence(EventKind.ENDPOINT_BACK, f"endpoint back after {before:.0f} s", seconds=before)
        self._away_seconds = seconds if seconds >= AWAY_SECONDS else 0.0

    def _tell_absence(self, kind: EventKind, message: str, *, seconds: float) -> None:
        self.tell(Event(kind=kind, message=message, fields={"run_id": self._run_id, "away_seconds": round(seconds)}))

    def _log_counts(self) -> dict[str, int]:
        """What the log has written since the last time."""
        told, self._told_log = self._told_log, {"log_flushes": self._log.num_flushes, "log_bytes": self._log.num_bytes}
        return {name: count - told[name] for name, count in self._told_log.items()}
