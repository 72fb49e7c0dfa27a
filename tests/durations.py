"""How long tests took: `make durations` records it; it says which tests start first, and which ones must be slow."""

import json
import os
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("durations.json")
MIN_SECONDS = 0.2
"""Shorter tests are not recorded: most tests are, and together they take little."""

_seconds: dict[str, dict[str, float]] = {"setup": {}, "call": {}}


def recorded() -> dict[str, dict[str, float]]:
    """Seconds by test, of its set-up and of its call."""
    record: dict[str, dict[str, float]] = json.loads(RECORD.read_text())
    return record


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "teardown" and report.duration >= MIN_SECONDS:
        _seconds[report.when][report.nodeid] = round(report.duration, 2)


def pytest_sessionfinish() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        RECORD.write_text(json.dumps(_seconds, indent=1, sort_keys=True) + "\n")
