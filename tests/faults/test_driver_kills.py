"""`kill -9` of the driver while grown documents are read, and while follow-ups are asked.

The same command then ends the run as if nothing had happened.
"""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.killed_job import KilledJob, Role
from tests.flows.grown import QUESTIONS, Stream, text_of
from tests.tables import comparable, rows_in

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]

NAMES = "abcdef"
PACE: dict[str, Any] = {
    "engine_options": {"turn_seconds": 0.5},
    "pool": {"readings_in_flight": 2},
    "log": {"flush_seconds": 0.2},
}
NUM_DOCUMENTS = 12
SIZES = [
    *("--window-tokens", "1500", "--policy.chunk-tokens", "60", "--policy.question-tokens", "60"),
    *("--policy.memory-tokens", "40", "--policy.answer-tokens", "40"),
    *("--log.flush-seconds", "0.2", "--pool.readings-in-flight", "2", "--ask", "Who?"),
]
FOLLOW_UPS = ["--follow-ups.evidence", "--follow-ups.support", "--simulated.turn-seconds", "0.5"]


def finish(arguments: list[str], *, output: Path) -> None:
    with KilledJob([*arguments, "--output", str(output)], output=output) as job:
        job.start()
        assert job.finish() == 0, job.last_words()


def kill_driver(job: KilledJob) -> None:
    job.kill(Role.DRIVER, job.require(Role.DRIVER))


def test_kill_in_the_middle_of_a_grown_night_asks_nothing_twice_and_ends_equal(text_model: str, tmp_path: Path) -> None:
    stream, new = (Stream(tmp_path, text_model, output=name, **PACE) for name in ("run", "new"))
    for each in (stream, new):
        each.output.with_suffix(".json").write_text(json.dumps(each.settings))
    arguments, other = (["--config", f"{each.output}.json", "--allow-code"] for each in (stream, new))
    stream.put({name: text_of(name, days=3) for name in NAMES})
    finish(arguments, output=stream.output)
    first = stream.manifest()["run_id"]
    stream.put({name: text_of(name, days=5) for name in NAMES})
    with KilledJob([*arguments, "--output", str(stream.output)], output=stream.output) as job:
        job.start()
        assert job.wait_until(lambda: num_asked(stream, after=first) > 6)
        kill_driver(job)
        job.start()
        assert job.finish() == 0, job.last_words()
    finish(other, output=new.output)
    assert stream.tables(stream.manifest()) == new.tables(new.manifest())
    num_readings = len(NAMES) * len(QUESTIONS)
    turns = stream.manifest()["changes"]["turns"]
    assert turns["reused"] == 3 * num_readings  # whole chunks of the night before
    assert 4 * num_readings <= turns["asked"] <= 4 * num_readings + 2  # in flight at the kill: two readings


def num_asked(stream: Stream, *, after: str) -> int:
    return sum(row["run_id"] > after and row["reused_from"] is None for row in stream.logged())


def test_kill_in_the_middle_of_follow_up_turns_asks_no_chunk_again_and_ends_equal(
    text_model: str, tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    for number in range(NUM_DOCUMENTS):
        text = f"Line {number} is simulated.\r\nIt is signed by 😀.\n" * 5
        (tmp_path / f"d/{number}.txt").write_text(text)
    plain = [*SIZES, "--documents", f"{tmp_path}/d", "--model", text_model, "--engine", "simulated"]
    left_alone, killed = tmp_path / "a", tmp_path / "b"
    finish(plain, output=left_alone)
    shutil.copytree(left_alone, killed)
    finish([*plain, *FOLLOW_UPS], output=left_alone)
    with KilledJob([*plain, *FOLLOW_UPS, "--output", str(killed)], output=killed) as job:
        job.start()
        assert job.wait_until(lambda: len(rows_in(killed / "log/follow_ups")) > 1)
        kill_driver(job)
        assert 1 < len(rows_in(killed / "log/follow_ups")) < NUM_DOCUMENTS
        job.start()
        assert job.finish() == 0, job.last_words()
    kinds, expected = (Counter(row["kind"] for row in rows_in(output / "log/turns")) for output in (killed, left_alone))
    assert (kinds["update"], kinds["answer"]) == (expected["update"], expected["answer"])
    assert expected["evidence"] == NUM_DOCUMENTS
    for table in ("answers", "evidence", "memories"):
        assert comparable(rows_in(killed / table)) == comparable(rows_in(left_alone / table))
