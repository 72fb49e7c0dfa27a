"""A typed value that is another one is a difference, though the free answer is the same."""

from pathlib import Path
from typing import Any

import pytest

from memagent_batch.domain.closing.answer_types import Number
from memagent_batch.files.location import Location
from memagent_batch.runs.comparison import compare_runs
from memagent_batch.runs.history import find_run
from tests.runs.recorded_nights import Nights
from tests.runs.typed_nights import CUT, FAILED, FIVE, night


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(Location(uri=str(tmp_path / "run")))


def differences(nights: Nights, before: str, after: str) -> list[tuple[Any, ...]]:
    names = ("document_id", "change", "why", "value_status_before", "value_before", "value_status_after", "value_after")
    runs = (find_run(nights.output, name) for name in (before, after))
    rows = [row for table in compare_runs(*runs) for row in table.to_pylist()]
    assert all(row["answer_before"] == row["answer_after"] for row in rows)
    return [tuple(row[name] for name in names) for row in rows]


def test_value_that_was_cut_and_is_whole_with_a_larger_budget_has_changed(nights: Nights, text_model: str) -> None:
    first = night(nights, CUT, FIVE, json_tokens=64, model=text_model)
    second = night(nights, FIVE, FIVE, json_tokens=128, model=text_model)
    changed = ("0", "changed", ["closing"])
    assert differences(nights, first, second) == [(*changed, "invalid", None, "ok", '{"price":5}')]
    assert differences(nights, second, first) == [(*changed, "ok", '{"price":5}', "invalid", None)]


def test_value_whose_turn_failed_and_is_asked_again_has_changed(nights: Nights, text_model: str) -> None:
    first = night(nights, FAILED, FIVE, model=text_model)
    second = night(nights, FIVE, FIVE, mended=True, model=text_model)
    third = night(nights, FIVE, FIVE, model=text_model)
    changed = [("0", "changed", ["same inputs"], None, None, "ok", '{"price":5}')]
    assert differences(nights, first, second) == differences(nights, first, third) == changed
    assert differences(nights, second, third) == []


def test_values_of_another_type_are_shown_beside_each_other(nights: Nights, text_model: str) -> None:
    first = night(nights, FIVE, model=text_model)
    second = night(
        nights, {"value_status": "ok", "value": "5", "value_number": 5.0}, value_type=Number(), model=text_model
    )
    assert differences(nights, first, second) == [("0", "changed", ["type"], "ok", '{"price":5}', "ok", "5")]
