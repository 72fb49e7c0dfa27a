"""The fault table: the whole job, struck in mid-reading, ends with one row for each reading."""

import random
import re
from pathlib import Path

import pytest

from tests.faults.fault import ON_VLLM, Fault
from tests.faults.report import FaultReport
from tests.faults.strike import strike

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]

FAULTS = [
    pytest.param(fault, marks=[pytest.mark.vllm] if fault is Fault.ENGINE_HANGS else [])
    for fault in Fault
    if fault not in ON_VLLM
]
MESSAGES = {
    Fault.DRIVER_TERMINATED: "stopped: SIGTERM: .*the same command goes on",
    Fault.DRIVER_INTERRUPTED: "stopped; the same command goes on from here",
    Fault.SECOND_ATTEMPT: "superseded: .*claimed by a newer attempt, run .*not read again",
    Fault.KEY_EXPIRED: "error: .*answered 401",
    Fault.STORE_DOWN: r"failed: .*can't be written.*tried for 5 s \(log\.outage_seconds\)",
}
OUTAGE_SHARE = 0.1
"""Of the fault table's outages of an endpoint: 9, 20 and 60 seconds, each longer than a request is tried by itself."""
ORDERLY = (
    Fault.DRIVER_TERMINATED,
    Fault.DRIVER_INTERRUPTED,
    Fault.ACTOR_TERMINATED,
    Fault.STORE_REFUSED,
    Fault.STORE_OUTAGE,
    Fault.DISK_FULL,
    Fault.ENDPOINT_UNAVAILABLE,
    Fault.ENDPOINT_REFUSED,
    Fault.ENDPOINT_QUOTA,
    Fault.KEY_EXPIRED,
)
"""After these no finished turn is repeated."""


@pytest.mark.parametrize("fault", FAULTS)
def test_job_struck_in_mid_reading_ends_with_one_row_for_each_reading(fault: Fault, tmp_path: Path) -> None:
    report = strike(fault, tmp_path, rng=random.Random(str(fault)), outage_share=OUTAGE_SHARE)
    require_whole(report)
    assert not report.rows_changed
    assert re.search(MESSAGES.get(fault, ""), report.console, re.DOTALL)
    if fault in ORDERLY:
        assert report.turns_logged_twice == 0


def require_whole(report: FaultReport) -> None:
    assert (report.rows_lost, report.rows_doubled) == (0, 0)
    assert report.errors == []
    assert report.ok == report.asked
    assert report.counts_close
    assert report.processes_left == []
