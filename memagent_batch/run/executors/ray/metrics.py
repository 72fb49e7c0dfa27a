"""What a run exports to Prometheus, through the export of Ray's own metrics; docs/how-to/monitoring.md lists it.

Counters come from the driver, which lives until the run is closed and whose last values Ray exports when it leaves; an
actor that dies would take the last seconds with it. Latencies and queues come from the actors. Ray puts `ray_` before
every name, `_total` behind a counter's, and node and process into the labels, beside model and policy; ids of runs and
readings are in the log instead: each would make a new series. A process without Ray exports nothing.
"""

import sys
from typing import Any

GIVEN_UP = "replicas_given_up"
COUNTERS = {
    "readings": ("memagent_readings", "readings that ended, failed ones included"),
    "failed": ("memagent_failed_readings", "readings that ended as a failed row"),
    "not_read": ("memagent_not_read_readings", "readings that could not be read now, and wait for the next run"),
    "turns": ("memagent_turns", "turns that the engine ran; turns from the log are not counted"),
    "prompt_tokens": ("memagent_prompt_tokens", "prompt tokens of those turns"),
    "cached_tokens": ("memagent_cached_prompt_tokens", "of these, tokens found in the engine's prefix cache"),
    "completion_tokens": ("memagent_completion_tokens", "tokens that the engine wrote"),
    "memory_truncations": (
        "memagent_memory_truncations",
        "turns whose memory or note was cut at its budget",
    ),
    "engine_restarts": ("memagent_engine_restarts", "engines that came up in place of one that went away"),
    GIVEN_UP: ("memagent_replicas_given_up", "replicas whose engine could not start, or not start again"),
    "log_flushes": ("memagent_log_flushes", "flushes of the turn log"),
    "log_bytes": ("memagent_log_bytes", "bytes written to the turn log"),
}
"""Counts of a run, with the names and meanings under which they are exported."""

READER_COUNTS = (*COUNTERS, "document_bytes")
"""Everything that a reader counts; `document_bytes` is how much of the plan is read, see `ReadingShare`."""

TURN_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""Upper bounds of the latency buckets, seconds."""

ALMOST_ZERO = sys.float_info.min
"""Starts a counter's series: Ray takes no 0, and Prometheus sees no increase in a series that starts above 0.

Added to any count it is lost in rounding.
"""


class NotExported:
    """A series of a process without Ray."""

    def ignore(self, value: float = 1.0) -> None:
        """Counts nothing, and shows nothing."""

    inc = set = observe = ignore


def is_exported() -> bool:
    """Whether this process is part of a Ray cluster, whose agents export what it counts."""
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def counter(name: str, description: str, *, labels: dict[str, str]) -> Any:
    """A counter whose series has started, so that Prometheus sees its first increase."""
    series = _series("Counter", name, description, labels=labels)
    series.inc(ALMOST_ZERO)
    return series


def gauge(name: str, description: str, *, labels: dict[str, str]) -> Any:
    """A gauge; Ray exports it for as long as it is set every few seconds."""
    return _series("Gauge", name, description, labels=labels)


def turn_histogram(*, labels: dict[str, str]) -> Any:
    """The histogram of the turns' latencies."""
    name, description = "memagent_turn_seconds", "time of a turn inside the engine"
    return _series("Histogram", name, description, labels=labels, boundaries=list(TURN_SECONDS))


def _series(kind: str, name: str, description: str, *, labels: dict[str, str], **options: Any) -> Any:
    if not is_exported():
        return NotExported()
    from ray.util import metrics

    return getattr(metrics, kind)(name, description, tag_keys=tuple(labels), **options).set_default_tags(labels)
