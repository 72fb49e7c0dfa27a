import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.domain.readings import Status

pytestmark = pytest.mark.slow

HOST = Path(__file__).parent / "poisoned_reader.py"
POISON = "POISON"


@pytest.fixture(scope="module")
def lives(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], Path]:
    """Exit codes of the processes that one run took, and its output."""
    folder = tmp_path_factory.mktemp("poisoned")
    texts = {name: f"{name} " * 600 for name in ("first", "second", "third", "fourth")}
    texts["poisoned"] = "sound " * 300 + POISON + " sound" * 300
    columns = {"document_id": list(texts), "text": list(texts.values())}
    pq.write_table(pa.table(columns), folder / "documents.parquet")
    knobs = {
        "documents": str(folder / "documents.parquet"),
        "output": str(folder / "run"),
        "ask": ["What?"],
        "model": tiny_model,
        "engine": "simulated",
        "simulated": {"turn_seconds": 0.05},
        "window_tokens": 1024,
        "policy": {"chunk_tokens": 128, "question_tokens": 64, "memory_tokens": 64, "answer_tokens": 64},
    }
    codes: list[int] = []
    while 0 not in codes and len(codes) < 8:
        command = [sys.executable, str(HOST), "20260101T000000.000Z", POISON, json.dumps(knobs)]
        codes.append(subprocess.run(command, timeout=120, check=False).returncode)
    return codes, folder / "run"


def rows_of(output: Path, folder: str, columns: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(output / "log" / folder, columns=columns).to_pylist()
    return rows


def test_poisoned_turn_fails_its_reading_at_the_fourth_death_and_no_other(lives: tuple[list[int], Path]) -> None:
    codes, output = lives
    assert codes == [1, 1, 1, 1, 0]
    rows = rows_of(output, "outcomes", ["status", "error_type", "error_message"])
    assert Counter(row["status"] for row in rows) == {Status.OK: 4, Status.FAILED: 1}
    (failed,) = [row for row in rows if row["status"] == Status.FAILED]
    assert failed["error_type"] == "EngineRequestError"
    assert "died 4 times" in failed["error_message"]


def test_poisoned_turn_costs_no_finished_turn_of_any_reading(lives: tuple[list[int], Path]) -> None:
    turns = rows_of(lives[1], "turns", ["document_hash", "path"])
    assert Counter(tuple(turn.values()) for turn in turns).most_common(1)[0][1] == 1
