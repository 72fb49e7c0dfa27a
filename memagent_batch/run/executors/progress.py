"""The driver's side of a run's counts: it takes the readers' reports, and shows, logs and exports them."""

import contextlib
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tqdm import tqdm

from memagent_batch.errors import MemagentError
from memagent_batch.logs import EventKind
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.run.executors.ray.metrics import COUNTERS, GIVEN_UP, READER_COUNTS, counter, gauge
from memagent_batch.run.executors.reports import ActorReport, Board, ReplicaCounts
from memagent_batch.run.manifest import Spent
from memagent_batch.run.plan import PendingWork
from memagent_batch.run.state import ProgressNote

LOOK_SECONDS = 1.0

NOTE_SECONDS = 15.0
"""Pause between notes for `memagent status`."""

LAST_NOTE_SECONDS = 5.0
"""Longest wait for the last note, of a run that stops: a store that hangs holds up no longer."""

MAX_SHARE = 0.9999
"""Share that is read, at most, while readings are in flight: as it is shown, with four digits."""

ESTIMATE_SHARE = 0.01
"""Share that must be read, at this pace, before an end is expected."""

LOG_SECONDS = 30.0
"""Pause between log lines where stderr is not a terminal."""

BAR = "readings {n_fmt}/{total_fmt} |{bar}| {elapsed}{postfix}"
"""The line of a terminal, in tqdm's words."""

log = logging.getLogger(__name__)


class Progress:
    """Counts of one run: a line in a terminal, log lines elsewhere, counters and gauges for Prometheus."""

    def __init__(
        self,
        *,
        run_id: str,
        asked: int,
        model: str,
        policy: str,
        bound_met: Callable[[Spent], str | None] | None = None,
    ) -> None:
        self._bound_met = bound_met
        self._run_id, self._asked = run_id, asked
        self._sums = Counter(dict.fromkeys(READER_COUNTS, 0))
        own = {"model": model, "policy": policy}
        self._started = counter("memagent_runs_started", "runs that began to read", labels=own)
        self._closed = counter("memagent_runs_closed", "runs whose counts closed", labels=own)
        self._counters = {name: counter(*texts, labels=own) for name, texts in COUNTERS.items()}
        self._asked_gauge = gauge("memagent_readings_asked", "readings that the run was asked for", labels=own)
        self._to_do_gauge = gauge("memagent_readings_to_do", "readings of the run that have not ended", labels=own)
        self._board = Board()
        self._done_before = self._pending_bytes = 0
        self._starting = ""
        self._replicas: ReplicaCounts | None = None
        self._began = self._last_line = 0.0
        self._first_read: tuple[float, float] | None = None
        self._last_turn_at: str | None = None
        self._bar: Any = None

    @property
    def replicas_given_up(self) -> int:
        """Replicas that were given up since their engine could not start."""
        return self._sums[GIVEN_UP]

    def begin(self) -> None:
        """Counts the run as one that began to read."""
        self._started.inc()

    def close(self) -> None:
        """Counts the run as one whose counts closed."""
        self._closed.inc()

    def spent(self) -> Spent:
        """What the run's turns have taken, as far as readers have reported it."""
        sums = self._sums
        return {
            "num_turns": sums["turns"],
            "num_prompt_tokens": sums["prompt_tokens"],
            "num_cached_prompt_tokens": sums["cached_tokens"],
            "num_completion_tokens": sums["completion_tokens"],
        }

    def bound_met(self) -> str | None:
        """The setting of the bound that the run has met; None while its turns may start."""
        return self._bound_met(self.spent()) if self._bound_met else None

    def note(self) -> ProgressNote:
        """How far the run is, for whoever looks at its output."""
        seconds = max(time.monotonic() - self._began, 0.001)
        tokens = self._sums["prompt_tokens"] + self._sums["completion_tokens"]
        now, seconds_left = datetime.now(UTC), self._seconds_left()
        ends_at = None if seconds_left is None else now + timedelta(seconds=seconds_left)
        return {
            "readings_done": self._done,
            "readings_failed": self._sums["failed"],
            "readings_asked": self._asked,
            "share_read": round(min(self._share, 1.0), 4),
            "turns": self._sums["turns"],
            "tokens": tokens,
            "tokens_per_second": round(tokens / seconds, 1),
            "expected_end_at": ends_at.isoformat() if ends_at else None,
            "last_turn_at": self._last_turn_at,
            "at": now.isoformat(),
        }

    @property
    def _share(self) -> float:
        """How much of what was to be read is read; turns from the log count, as they do in what is to be read.

        All is read once all readings have ended, and not before: an actor that is replaced counts some turns again.
        """
        share = self._sums["document_bytes"] / self._pending_bytes
        return share if self._done >= self._asked else min(share, MAX_SHARE)

    def _seconds_left(self) -> float | None:
        """Time to the end at the pace since the first turns, so without the start of engines and what the log had."""
        if self._first_read is None:
            return None
        at, share_before = self._first_read
        share = self._share
        if share - share_before < ESTIMATE_SHARE or share >= 1:
            return None
        return (time.monotonic() - at) * (1 - share) / (share - share_before)

    @contextlib.contextmanager
    def shown(
        self,
        board: Board,
        *,
        pending: PendingWork,
        starting: str,
        keep: Callable[[ProgressNote], None] | None = None,
    ) -> Iterator[None]:
        """Shows the block's readings, from a thread.

        `keep` takes a note of how far the run is, now and then.
        """
        self._board, self._starting = board, starting
        self._done_before, self._pending_bytes = self._asked - pending.readings, max(pending.num_bytes, 1)
        self._began = self._last_line = time.monotonic()
        self._show_start()
        stop = threading.Event()
        thread = threading.Thread(target=self._look_until, args=(stop,), daemon=True, name="progress")
        ended = threading.Event()
        notes = threading.Thread(target=self._keep_until, args=(ended, keep), daemon=True, name="progress notes")
        with contextlib.ExitStack() as ends:
            if keep is not None:
                notes.start()
                ends.callback(notes.join, LAST_NOTE_SECONDS)
                ends.callback(ended.set)
            if self._bar is not None:
                ends.callback(self._bar.close)
            ends.callback(thread.join)
            ends.callback(stop.set)
            thread.start()
            yield
            stop.set()
            thread.join()
            self._look(is_last=False)  # this one may have been asked for before, so it lacks what was reported since
            self._look(is_last=True)

    def _show_start(self) -> None:
        done = self._done_before
        if sys.stderr.isatty():
            self._bar = tqdm(total=self._asked, initial=done, dynamic_ncols=True, leave=True, bar_format=BAR)
            self._bar.set_postfix_str(self._starting)
        else:
            self._log(f"readings {done}/{self._asked}: {self._starting}", readings=done, asked=self._asked)

    def _look_until(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_SECONDS):
            self._look(is_last=False)

    def _keep_until(self, ended: threading.Event, keep: Callable[[ProgressNote], None]) -> None:
        """Notes at the start, now and then, and at the end."""
        pause, is_last = 0.0, False
        while not is_last:
            is_last, pause = ended.wait(pause), NOTE_SECONDS
            with contextlib.suppress(MemagentError):  # the note is a help only
                keep(self.note())

    def _look(self, *, is_last: bool) -> None:
        report = self._board.take()
        if bound := self.bound_met():
            self._board.stop_turns(bound)
        self._count(report)
        if report.events:
            with tqdm.external_write_mode(file=sys.stderr):
                for event in report.events:
                    log.log(event.level, event.message, extra={"event": event.kind, **event.fields})
        self._show(is_last=is_last)

    def _count(self, report: ActorReport) -> None:
        self._sums.update(report.counts)
        self._replicas = report.replicas or self._replicas
        if report.counts.get("turns"):
            self._last_turn_at = datetime.now(UTC).isoformat()
        if self._first_read is None and self._sums["document_bytes"]:
            self._first_read = time.monotonic(), self._share
        self._asked_gauge.set(self._asked)
        self._to_do_gauge.set(self._asked - self._done)
        for name, series in self._counters.items():
            if report.counts.get(name):
                series.inc(report.counts[name])

    @property
    def _done(self) -> int:
        """Readings that have ended; one that an actor did not give back before it died is counted twice."""
        return min(self._done_before + self._sums["readings"], self._asked)

    def _show(self, *, is_last: bool) -> None:
        sums, seconds = self._sums, time.monotonic() - self._began
        tokens = sums["prompt_tokens"] + sums["completion_tokens"]
        rate = f"{quantity(sums['turns'], 'turn')}, {tokens / seconds:,.0f} tokens/s, {sums['failed']} failed"
        rate += f", {sums['not_read']} not read" if sums["not_read"] else ""
        seconds_left = self._seconds_left()
        to_go = "" if seconds_left is None else f"{_duration(seconds_left)} to go"
        doing = rate if sums["readings"] or sums["turns"] else self._starting
        doing += _missing_replicas(self._replicas)
        if self._bar is not None:
            self._bar.n = self._done
            self._bar.set_postfix_str(", ".join(part for part in (doing, to_go) if part))
        elif is_last or time.monotonic() - self._last_line >= LOG_SECONDS:
            self._last_line = time.monotonic()
            parts = [f"readings {self._done}/{self._asked}", doing, _duration(seconds), to_go]
            fields = {**sums, "readings": self._done, "asked": self._asked}
            self._log(", ".join(part for part in parts if part), **fields)

    def _log(self, message: str, **fields: int) -> None:
        log.info(message, extra={"event": EventKind.PROGRESS, "run_id": self._run_id, **fields})


def _missing_replicas(replicas: ReplicaCounts | None) -> str:
    if replicas is None or replicas.ready >= replicas.asked:
        return ""
    return f", {replicas.ready} of {quantity(replicas.asked, 'replica')}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"
