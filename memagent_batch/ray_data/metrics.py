"""What a run shows to Prometheus, through the export of Ray's own metrics; docs/how-to/monitoring.md lists them.

Counters come from the driver, which lives until the run is closed and whose last values Ray exports when it leaves; an
actor that dies would take the last seconds with it. Latencies and queues come from the actors. Ray puts `ray_` before
every name, `_total` behind a counter's, and node and process into the labels.
"""

import sys
from collections.abc import Mapping, Sequence

from ray.util.metrics import Counter, Gauge, Histogram

from memagent_batch.settings import Settings

TAGS = ("model", "policy")
"""Labels of every series; ids of runs and readings would make a new series each, and stand in the log instead."""

COUNTERS = {
    "readings": ("memagent_readings", "readings that ended, failed ones included"),
    "failed": ("memagent_failed_readings", "readings that ended as a failed row"),
    "not_read": ("memagent_not_read_readings", "readings that could not be read now, and wait for the next run"),
    "turns": ("memagent_turns", "turns that the engine ran; turns held by the log are not counted"),
    "prompt_tokens": ("memagent_prompt_tokens", "prompt tokens of those turns"),
    "cached_tokens": ("memagent_cached_prompt_tokens", "of these, tokens that the engine's prefix cache held"),
    "completion_tokens": ("memagent_completion_tokens", "tokens that the engine wrote"),
    "memory_truncations": ("memagent_memory_truncations", "update turns that were cut at the memory's budget"),
    "engine_restarts": ("memagent_engine_restarts", "engines that came up in the place of one that went away"),
    "log_flushes": ("memagent_log_flushes", "flushes of the turn log"),
    "log_bytes": ("memagent_log_bytes", "bytes written to the turn log"),
}
"""Counts of the ProgressBoard, with the names and meanings under which they are exported."""

TURN_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""Upper bounds of the latency buckets, seconds."""

ALMOST_ZERO = sys.float_info.min
"""Starts a counter's series: Ray takes no 0, and Prometheus sees no increase in a series that starts above 0.

Added to any count it is lost in rounding.
"""


class RunMetrics:
    """The driver's metrics of one run."""

    def __init__(self, settings: Settings) -> None:
        """Starts every counter, so that its first increase is seen."""
        self._started = _counter("memagent_runs_started", "runs that began to read", settings)
        self._closed = _counter("memagent_runs_closed", "runs whose counts closed", settings)
        self._counters = {name: _counter(*described, settings) for name, described in COUNTERS.items()}
        self._seen = dict.fromkeys(COUNTERS, 0)
        self._asked = _gauge("memagent_readings_asked", "readings that the run was asked for", settings)
        self._to_do = _gauge("memagent_readings_to_do", "readings of the run that have not ended", settings)

    def start(self) -> None:
        """The run begins to read."""
        self._started.inc()

    def close(self) -> None:
        """The run's counts closed."""
        self._closed.inc()

    def show(self, sums: Mapping[str, int], *, asked: int, to_do: int) -> None:
        """Takes the sums of the board. A gauge is exported for as long as this is called every few seconds."""
        self._asked.set(asked)
        self._to_do.set(to_do)
        for name, counter in self._counters.items():
            seen, self._seen[name] = self._seen[name], sums[name]
            grown = sums[name] - seen if sums[name] >= seen else sums[name]  # a board that restarted began at 0
            if grown:
                counter.inc(grown)


class ReaderMetrics:
    """An actor's metrics."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is shown yet."""
        self._in_flight = _gauge("memagent_readings_in_flight", "readings that an actor keeps going", settings)
        self._waiting = _gauge("memagent_readings_waiting", "readings inside an actor that wait for a place", settings)
        self._turn_seconds = Histogram(
            "memagent_turn_seconds", "time of a turn inside the engine", boundaries=list(TURN_SECONDS), tag_keys=TAGS
        ).set_default_tags(_tags(settings))

    def show(self, turn_seconds: Sequence[float], *, in_flight: int, waiting: int) -> None:
        """Takes the latencies of the turns since the last call, and what is under way now."""
        self._in_flight.set(in_flight)
        self._waiting.set(waiting)
        for seconds in turn_seconds:
            self._turn_seconds.observe(seconds)


def _counter(name: str, description: str, settings: Settings) -> Counter:
    counter = Counter(name, description, tag_keys=TAGS).set_default_tags(_tags(settings))
    counter.inc(ALMOST_ZERO)
    return counter


def _gauge(name: str, description: str, settings: Settings) -> Gauge:
    return Gauge(name, description, tag_keys=TAGS).set_default_tags(_tags(settings))


def _tags(settings: Settings) -> dict[str, str]:
    return {"model": settings.model, "policy": settings.policy.kind}
