"""`kill -9` of the driver in the middle of a second look; the same command then ends as a run that was never killed."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.faults.killed_job import KilledJob, Role
from tests.faults.test_closing_kill import KNOBS, NUM_DOCUMENTS, _comparable, _finish, _rows

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(1800)]

TO = json.dumps({"policy": {"kind": "overwrite", "chunk_tokens": 30}})
ESCALATE = ["--escalate.when", "answer", "--escalate.answers", "simulated", "--escalate.to", TO]


def test_kill_in_the_middle_of_a_second_look_ends_equal(text_model: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for number in range(NUM_DOCUMENTS):
        (tmp_path / "d" / f"{number}.txt").write_text(f"Line {number} is simulated.\r\nIt is signed by 😀.\n" * 5)
    job_knobs = [*KNOBS, "--documents", str(tmp_path / "d"), "--model", text_model, "--ask", "Who?", *ESCALATE]
    _finish([*job_knobs, "--output", str(tmp_path / "a")], output=tmp_path / "a")
    slow = ["--simulated.turn-seconds", "0.4", "--output", str(tmp_path / "b")]
    with KilledJob([*job_knobs, *slow], output=tmp_path / "b") as job:
        job.start()
        assert job.wait_until(lambda: _num_ended(tmp_path / "b") > NUM_DOCUMENTS)
        driver = job.find(Role.DRIVER)
        assert driver is not None
        job.kill(Role.DRIVER, driver, patience=120)
        assert NUM_DOCUMENTS < _num_ended(tmp_path / "b") < 2 * NUM_DOCUMENTS
        job.start()
        assert job.finish() == 0, job.last_words()
    assert {row["tier"] for row in pq.read_table(tmp_path / "b" / "answers").to_pylist()} == {2}
    for table in ("answers", "memories"):
        assert _comparable(tmp_path / "b" / table) == _comparable(tmp_path / "a" / table)
    assert _num_ended(tmp_path / "b") == 2 * NUM_DOCUMENTS


def _num_ended(output: Path) -> int:
    return len({(row["reader_fingerprint"], row["document_hash"]) for row in _rows(output / "log" / "outcomes")})
