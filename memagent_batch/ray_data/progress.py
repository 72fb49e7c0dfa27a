"""What a run has done so far: readers report to one small actor; the driver shows a line, tells events, and counts.


The same actor tells the readers that the driver is about to leave, so that they flush their logs before they end.
"""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import ray
from tqdm import tqdm

from memagent_batch.domain.reasons import Reason
from memagent_batch.events import Event, EventKind, tell
from memagent_batch.ray_data.metrics import COUNTERS, RunMetrics
from memagent_batch.runs.plan import PendingWork

REPORT_SECONDS = 1.0
"""Pause between a reader's reports, and between the driver's looks."""

LOG_SECONDS = 30.0
"""Pause between lines where the output is no terminal."""

SEEN_SECONDS = 5.0
"""Pause between a reader's questions whether the driver leaves; one that is silent for twice as long has gone."""

POLL_SECONDS = 0.02
"""Pause between looks whether all readers have flushed; no event tells of one that died."""

LOOK_SECONDS = 60.0
"""Longest wait for the board; what it has handed over by then is lost to the log lines."""

KEPT_EVENTS = 1000
"""Events that wait for the driver's next look; what comes beyond is only counted."""

BAR = "readings {n_fmt}/{total_fmt} |{bar}| {elapsed}{postfix}"
"""The line of a terminal, in tqdm's words."""

COUNTS = (*COUNTERS, "document_chars")
"""What is summed."""


class ProgressBoard:
    """Where readers and driver meet. Nothing durable relies on it: turns that are not flushed are read again."""

    def __init__(self) -> None:
        """All sums are zero, and no reader is there."""
        self._sums = dict.fromkeys(COUNTS, 0)
        self._leaving = asyncio.Event()
        self._seen: dict[str, float] = {}
        self._events: list[Event] = []
        self._num_left_out = 0
        self._told: set[str] = set()

    async def add(self, counts: dict[str, int]) -> None:
        """Adds a reader's counts since its last report."""
        for name, count in counts.items():
            self._sums[name] += count

    async def sums(self) -> dict[str, int]:
        """All sums."""
        return dict(self._sums)

    async def is_leaving(self, writer_id: str) -> bool:
        """A reader's question; answered as soon as the driver leaves, else after `SEEN_SECONDS`."""
        self._seen[writer_id] = time.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._leaving.wait(), SEEN_SECONDS)
        return self._leaving.is_set()

    async def say_flushed(self, writer_id: str) -> None:
        """A reader's last word: its log is durable."""
        self._seen.pop(writer_id, None)

    async def leave(self) -> None:
        """Tells the readers that the driver leaves; returns when all that are alive have flushed."""
        self._leaving.set()
        while any(time.monotonic() - seen < 2 * SEEN_SECONDS for seen in self._seen.values()):  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)

    async def tell(self, events: Sequence[Event]) -> None:
        """Keeps events for the driver; of readings that were not read, the first one for each reason."""
        news = [event for event in events if event.kind != EventKind.READING_NOT_READ or self._is_new_reason(event)]
        room = KEPT_EVENTS - len(self._events)
        self._events.extend(news[:room])
        self._num_left_out += len(news[room:])

    def _is_new_reason(self, event: Event) -> bool:
        fields = event.fields
        key = Reason(error_type=fields["error_type"], error_message=fields["error_message"]).key
        is_new = key not in self._told and len(self._told) < KEPT_EVENTS
        self._told.update({key} if is_new else ())
        return is_new

    async def take_events(self) -> list[Event]:
        """The events since the last call, and one more that says how many were left out."""
        events, self._events = self._events, []
        left_out, self._num_left_out = self._num_left_out, 0
        if left_out:
            message = f"{left_out} more failed readings; the table `answers` has them all"
            events.append(Event(kind=EventKind.READING_FAILED, message=message, fields={"left_out": left_out}))
        return events


def start_board() -> Any:
    """A ProgressBoard as an actor that takes no CPU; returns its handle."""
    return ray.remote(num_cpus=0, max_restarts=-1)(ProgressBoard).remote()


class ProgressLine:
    """A line in a terminal, plain log lines elsewhere: readings, turns, tokens a second, time to go."""

    def __init__(
        self, board: Any, *, metrics: RunMetrics, run_id: str, asked: int, pending: PendingWork, starting: str
    ) -> None:
        """Starts from the readings that need no turn; some characters stand for the bytes that are left.

        `starting` says what the run waits for until the first turn.
        """
        self._board = board
        self._metrics = metrics
        self._run_id = run_id
        self._asked = asked
        self._starting = starting
        self._done = asked - pending.readings
        self._pending_chars = max(pending.num_bytes, 1)
        self._began = time.monotonic()
        self._said = self._began
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="progress")
        self._absence = Absence()
        self._terminal = sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> Self:
        """Begins to show."""
        if self._terminal:
            self._bar = tqdm(total=self._asked, initial=self._done, dynamic_ncols=True, leave=True, bar_format=BAR)
            self._bar.set_postfix_str(self._starting)
        else:
            message = f"readings {self._done}/{self._asked}: {self._starting}"
            self._tell(message, readings=self._done, asked=self._asked)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shows the last state and ends."""
        self._stop.set()
        self._thread.join()
        if kind is None:
            self._show(last=True)
        if self._bar is not None:
            self._bar.close()

    def _watch(self) -> None:
        while not self._stop.wait(REPORT_SECONDS):
            self._show(last=False)

    def _show(self, *, last: bool) -> None:
        try:
            asked = [self._board.sums.remote(), self._board.take_events.remote()]
            sums, events = ray.get(asked, timeout=LOOK_SECONDS)
        except (ray.exceptions.RayError, TimeoutError):
            return  # the board restarts, or the cluster is going down: the run itself says so
        seconds = time.monotonic() - self._began
        done = self._done + sums["readings"]
        self._metrics.show(sums, asked=self._asked, to_do=self._asked - done)
        self._absence.look(events, turns=sums["turns"])
        if events:
            with tqdm.external_write_mode(file=sys.stderr):
                for event in events:
                    tell(event)
        tokens = sums["prompt_tokens"] + sums["completion_tokens"]
        rate = f"{sums['turns']} turns, {tokens / seconds:,.0f} tokens/s, {sums['failed']} failed"
        rate += f", {sums['not_read']} not read" if sums["not_read"] else ""
        share = sums["document_chars"] / self._pending_chars
        away = self._absence.text()
        to_go = f"{_duration(seconds / share - seconds)} to go" if 0 < share < 1 else ""
        if self._bar is not None:
            self._bar.n = done
            waits = self._starting if done == self._done and not sums["turns"] else ""
            self._bar.set_postfix_str(", ".join(part for part in (waits or rate, away, to_go) if part))
        elif last or time.monotonic() - self._said >= LOG_SECONDS:
            self._said = time.monotonic()
            parts = [f"readings {done}/{self._asked}", rate, _duration(seconds), away, to_go]
            self._tell(", ".join(part for part in parts if part), **(sums | {"readings": done, "asked": self._asked}))

    def _tell(self, message: str, **fields: int) -> None:
        tell(Event(kind=EventKind.PROGRESS, message=message, fields={"run_id": self._run_id, **fields}))


class Absence:
    """Whether the endpoint is away, by what the readers tell of it; all of them ask the same one."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """It is there."""
        self._clock = clock
        self._since: float | None = None
        self._turns = 0

    def look(self, events: Sequence[Event], *, turns: int) -> None:
        """Takes what was told since the last look, and the turns of all readers so far: where they grow, it answers."""
        if turns != self._turns:
            self._since, self._turns = None, turns
        for event in events:
            if event.kind == EventKind.ENDPOINT_AWAY and self._since is None:
                self._since = self._clock() - event.fields["away_seconds"]
            elif event.kind == EventKind.ENDPOINT_BACK:
                self._since = None

    def text(self) -> str:
        """What the line says of it; nothing where it is there."""
        return "" if self._since is None else f"endpoint away for {_duration(self._clock() - self._since)}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"
