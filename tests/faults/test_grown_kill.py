"""`kill -9` of the driver while grown documents are read; the same command then ends it as if nothing had happened."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.killed_job import KilledJob, Role
from tests.flows.grown import QUESTIONS, Stream, text_of

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]

NAMES = "abcdef"
PACE: dict[str, Any] = {
    "engine_knobs": {"turn_seconds": 0.5},
    "pool": {"readings_in_flight": 2},
    "log": {"flush_seconds": 0.2},
}


def test_kill_in_the_middle_of_a_grown_night_asks_nothing_twice_and_ends_equal(text_model: str, tmp_path: Path) -> None:
    stream = Stream(tmp_path, text_model, **PACE)
    stream.put({name: text_of(name, days=3) for name in NAMES})
    _finish(stream)
    first = stream.manifest()
    stream.put({name: text_of(name, days=5) for name in NAMES})
    with _job(stream) as job:
        job.start()
        assert job.wait_until(lambda: _num_asked(stream, after=first["run_id"]) > 6)
        driver = job.find(Role.DRIVER)
        assert driver is not None
        job.kill(Role.DRIVER, driver, patience=120)
        job.start()
        assert job.finish() == 0, job.last_words()
    anew = Stream(tmp_path, text_model, output="anew", **PACE)
    _finish(anew)
    assert stream.tables(stream.manifest()) == anew.tables(anew.manifest())
    num_readings = len(NAMES) * len(QUESTIONS)
    turns = stream.manifest()["changes"]["turns"]
    assert turns["held"] == 3 * num_readings  # whole chunks of the night before
    assert 4 * num_readings <= turns["asked"] <= 4 * num_readings + 2  # under way at the kill: two readings


def _job(stream: Stream) -> KilledJob:
    config = stream.output.with_suffix(".json")
    config.write_text(json.dumps(stream.knobs))
    return KilledJob(["--config", str(config), "--allow-code"], output=stream.output)


def _finish(stream: Stream) -> None:
    with _job(stream) as job:
        job.start()
        assert job.finish() == 0, job.last_words()


def _num_asked(stream: Stream, *, after: str) -> int:
    return sum(row["run_id"] > after and row["held_from"] is None for row in stream.logged())
