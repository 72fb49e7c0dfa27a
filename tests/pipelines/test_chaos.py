"""The fault table: the whole job, struck in mid-reading, ends with one row for each reading."""

import random
import re
from pathlib import Path

import pytest

from benchmarks.chaos import strike
from benchmarks.chaos_report import ChaosReport
from benchmarks.troubles import Trouble

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]

IN_EVERY_TEST = (Trouble.DRIVER_KILLED, Trouble.DRIVER_TERMINATED, Trouble.SECOND_ATTEMPT, Trouble.STORE_FLAKY)
"""A short selection that `make test` runs too."""
SAID = {
    Trouble.DRIVER_TERMINATED: "stopped: SIGTERM: .*the same command goes on",
    Trouble.DRIVER_INTERRUPTED: "stopped; the same command goes on from here",
    Trouble.SECOND_ATTEMPT: "superseded: .*claimed by a newer attempt, run .*not read again",
    Trouble.KEY_EXPIRED: "error: .*answered 401",
    Trouble.STORE_DOWN: r"failed: .*can't be written.*tried for 5 s \(log\.outage_seconds\)",
}
OUTAGE_SHARE = 0.1
"""Of the fault table's outages of an endpoint: 9, 20 and 60 seconds, each longer than a request is tried by itself."""
ORDERLY = (
    Trouble.DRIVER_TERMINATED,
    Trouble.DRIVER_INTERRUPTED,
    Trouble.ACTOR_TERMINATED,
    Trouble.STORE_REFUSED,
    Trouble.STORE_OUTAGE,
    Trouble.DISK_FULL,
    Trouble.ENDPOINT_UNAVAILABLE,
    Trouble.ENDPOINT_REFUSED,
    Trouble.ENDPOINT_QUOTA,
    Trouble.KEY_EXPIRED,
)
"""After these no finished turn is repeated."""
MARKS = {trouble: [] if trouble in IN_EVERY_TEST else [pytest.mark.chaos] for trouble in Trouble}
MARKS[Trouble.ENGINE_HANGS].append(pytest.mark.vllm)


@pytest.mark.parametrize("trouble", [pytest.param(trouble, marks=MARKS[trouble]) for trouble in Trouble])
def test_job_struck_in_mid_reading_ends_with_one_row_for_each_reading(trouble: Trouble, tmp_path: Path) -> None:
    report = strike(trouble, tmp_path, rng=random.Random(str(trouble)), outage_share=OUTAGE_SHARE)
    require_whole(report)
    assert re.search(SAID.get(trouble, ""), report.said, re.DOTALL)
    if trouble in ORDERLY:
        assert report.turns_logged_twice == 0


def require_whole(report: ChaosReport) -> None:
    assert (report.rows_lost, report.rows_doubled) == (0, 0)
    assert report.ok == report.asked
    assert report.failed == 0
    assert report.counts_close
    assert report.processes_left == []
