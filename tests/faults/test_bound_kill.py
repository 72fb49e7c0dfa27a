"""`kill -9` of the driver while a run stops at its bound; the same command without the bound then ends it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import prompt_dependent_engine
from tests.faults.killed_job import KilledJob, Role

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]

NUM_DOCUMENTS = 12
MOST_TOKENS = 6000
KNOBS = [
    *("--engine", prompt_dependent_engine.KIND, "--allow-code", "--engine-knobs", '{"turn_seconds": 0.5}'),
    *("--window-tokens", "1500", "--pool.replicas", "2", "--pool.readings-in-flight", "2"),
    *("--policy.chunk-tokens", "60", "--policy.question-tokens", "60", "--policy.memory-tokens", "40"),
    *("--policy.answer-tokens", "40", "--log.flush-seconds", "0.2"),
]
OWN_COLUMNS = {"run_id", "started_at", "finished_at", "engine_seconds", "num_replayed_turns"}


def test_kill_at_the_stop_of_a_bound_ends_equal(text_model: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for number in range(NUM_DOCUMENTS):
        (tmp_path / "d" / f"{number}.txt").write_text(f"Line {number} is simulated.\nIt is signed.\n" * 20)
    plain = [*KNOBS, "--documents", str(tmp_path / "d"), "--model", text_model, "--ask", "Who?"]
    assert _end([*plain, "--output", str(tmp_path / "a")], output=tmp_path / "a") == 0
    bounded = [*plain, "--output", str(tmp_path / "b"), "--max-tokens", str(MOST_TOKENS)]
    with KilledJob(bounded, output=tmp_path / "b") as job:
        job.start()
        assert job.wait_until(lambda: "met its bound" in job.last_words())
        driver = job.find(Role.DRIVER)
        if driver is not None:  # else it had ended by itself meanwhile
            job.kill(Role.DRIVER, driver, patience=120)
        taken = _tokens(tmp_path / "b")
        assert taken >= MOST_TOKENS
        assert not (tmp_path / "b" / "manifest.json").exists()
        job.start()
        assert job.finish() == 6, job.last_words()
        assert taken < _tokens(tmp_path / "b")
    assert _end([*plain, "--output", str(tmp_path / "b")], output=tmp_path / "b") == 0
    assert _tokens(tmp_path / "b") == _tokens(tmp_path / "a"), "no turn was asked twice"
    for table in ("answers", "memories"):
        assert _comparable(tmp_path / "b" / table) == _comparable(tmp_path / "a" / table)


def _end(arguments: list[str], *, output: Path) -> int:
    with KilledJob(arguments, output=output) as job:
        job.start()
        return job.finish()


def _rows(folder: Path) -> list[dict[str, Any]]:
    names = [path for path in sorted(folder.glob("*.parquet")) if not path.name.startswith(".")]
    return pa.concat_tables([pq.read_table(path) for path in names]).to_pylist() if names else []


def _tokens(output: Path) -> int:
    return sum(row["num_prompt_tokens"] + len(row["token_ids"]) for row in _rows(output / "log" / "turns"))


def _comparable(folder: Path) -> list[str]:
    return sorted(str({name: value for name, value in row.items() if name not in OWN_COLUMNS}) for row in _rows(folder))
