from typing import Any

import pytest

from memagent_batch.evaluation.report.failures import Fault, choose_failures, fault_of


def reading(number: int = 0, **columns: Any) -> dict[str, Any]:
    row = {"document_id": f"d{number}", "question_id": "q", "sample": 0, "task": "niah", "length_tokens": 1000}
    return row | {"depth": None, "score": 0.0, "status": "ok", "answered": True} | columns


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"score": 1.0}, Fault.NONE),
        ({"score": 0.5}, Fault.PARTLY),
        ({}, Fault.WRONG),
        ({"answered": False}, Fault.UNANSWERED),
        ({"answered": False, "status": "failed"}, Fault.FAILED),
        ({"answered": False, "status": "missing"}, Fault.MISSING),
    ],
)
def test_fault_of_reading_says_what_is_wrong(columns: dict[str, Any], fault: Fault) -> None:
    assert fault_of(reading(**columns)) is fault


def test_choose_failures_over_the_limit_takes_each_cell_in_turn_and_counts_all() -> None:
    rows = [reading(number, score=0.5) for number in range(90)]
    rows += [reading(100 + number, task="vt", score=number / 10) for number in range(11)]
    failures = choose_failures(rows, limit=6)
    assert [row["task"] for row in failures.shown] == ["niah"] * 3 + ["vt"] * 3
    assert [row["score"] for row in failures.shown[3:]] == [0.0, 0.1, 0.2]
    assert failures.total == 100
    assert failures.by_fault == {Fault.WRONG: 1, Fault.PARTLY: 99}


def test_choose_failures_all_right_shows_none() -> None:
    failures = choose_failures([reading(score=1.0)])
    assert (failures.shown, failures.total, failures.by_fault) == ((), 0, {})
