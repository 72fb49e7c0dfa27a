"""The bounds of a run by its settings."""

import pytest

from memagent_batch.config.job import RunConfig
from memagent_batch.runs.bounds import Spent, bound_met, has_bounds

SPENT: Spent = {
    "num_turns": 0,
    "num_prompt_tokens": 600_000,
    "num_cached_prompt_tokens": 0,
    "num_completion_tokens": 400_000,
}


def run_of(**settings: object) -> RunConfig:
    return RunConfig.model_validate({"output": "out", **settings})


@pytest.mark.parametrize(
    ("settings", "seconds", "bound"),
    [
        ({"max_tokens": 1_000_001}, 0, None),
        ({"max_tokens": 1_000_000}, 0, "max_tokens"),
        ({"max_hours": 2}, 7199, None),
        ({"max_hours": 2}, 7200, "max_hours"),
        ({"max_tokens": 2_000_000, "max_hours": 0.1}, 400, "max_hours"),
    ],
)
def test_bound_is_met_by_what_the_turns_have_taken(
    settings: dict[str, float], seconds: float, bound: str | None
) -> None:
    assert bound_met(run_of(**settings), SPENT, seconds=seconds) == bound


def test_run_without_bounds_meets_none() -> None:
    assert not has_bounds(run_of())
    assert has_bounds(run_of(max_hours=1))
    assert bound_met(run_of(), SPENT, seconds=10**6) is None
