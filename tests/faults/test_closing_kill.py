"""`kill -9` of the driver while closing turns are asked over a finished run; the same command then ends it."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.killed_job import KilledJob, Role

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]

NUM_DOCUMENTS = 12
KNOBS = [
    "--engine",
    "simulated",
    "--window-tokens",
    "1500",
    "--policy.chunk-tokens",
    "60",
    "--policy.question-tokens",
    "60",
    "--policy.memory-tokens",
    "40",
    "--policy.answer-tokens",
    "40",
    "--log.flush-seconds",
    "0.2",
    "--pool.readings-in-flight",
    "2",
]
CLOSING = ["--closing.evidence", "--closing.support", "--simulated.turn-seconds", "0.5"]
OWN_COLUMNS = {"run_id", "started_at", "finished_at", "engine_seconds", "num_replayed_turns"}


def test_kill_in_the_middle_of_closing_turns_asks_no_chunk_again_and_ends_equal(
    text_model: str, tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    for number in range(NUM_DOCUMENTS):
        (tmp_path / "d" / f"{number}.txt").write_text(f"Line {number} is simulated.\r\nIt is signed by 😀.\n" * 5)
    plain = [*KNOBS, "--documents", str(tmp_path / "d"), "--model", text_model, "--ask", "Who?"]
    _finish([*plain, "--output", str(tmp_path / "a")], output=tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    _finish([*plain, *CLOSING, "--output", str(tmp_path / "a")], output=tmp_path / "a")
    with KilledJob([*plain, *CLOSING, "--output", str(tmp_path / "b")], output=tmp_path / "b") as job:
        job.start()
        assert job.wait_until(lambda: _num_closed(tmp_path / "b") > 1)
        driver = job.find(Role.DRIVER)
        assert driver is not None
        job.kill(Role.DRIVER, driver, patience=120)
        assert 1 < _num_closed(tmp_path / "b") < NUM_DOCUMENTS
        job.start()
        assert job.finish() == 0, job.last_words()
    kinds = Counter(row["kind"] for row in _rows(tmp_path / "b" / "log" / "turns"))
    reference = Counter(row["kind"] for row in _rows(tmp_path / "a" / "log" / "turns"))
    assert (kinds["update"], kinds["answer"]) == (reference["update"], reference["answer"])
    assert reference["evidence"] == NUM_DOCUMENTS
    for table in ("answers", "evidence", "memories"):
        assert _comparable(tmp_path / "b" / table) == _comparable(tmp_path / "a" / table)


def _finish(arguments: list[str], *, output: Path) -> None:
    with KilledJob(arguments, output=output) as job:
        job.start()
        assert job.finish() == 0, job.last_words()


def _rows(folder: Path) -> list[dict[str, Any]]:
    names = [path for path in sorted(folder.glob("*.parquet")) if not path.name.startswith(".")]
    return pa.concat_tables([pq.read_table(path) for path in names]).to_pylist() if names else []


def _num_closed(output: Path) -> int:
    return len(_rows(output / "log" / "closings"))


def _comparable(folder: Path) -> list[str]:
    return sorted(str({name: value for name, value in row.items() if name not in OWN_COLUMNS}) for row in _rows(folder))
