"""The bounds of a run by its settings."""

import pytest

from memagent_batch.config.job import PoolConfig, RunConfig
from memagent_batch.runs.bounds import Rates, Spent, bound_met, estimate, has_bounds

SPENT: Spent = {
    "num_turns": 0,
    "num_prompt_tokens": 600_000,
    "num_cached_prompt_tokens": 0,
    "num_completion_tokens": 400_000,
}


TOKEN_PRICES = {"price_per_million_prompt_tokens": 5, "price_per_million_completion_tokens": 10}


def run_of(**settings: object) -> RunConfig:
    return RunConfig.model_validate({"output": "out", "pool": PoolConfig(replicas=2, max_replicas=4), **settings})


@pytest.mark.parametrize(
    ("settings", "seconds", "bound"),
    [
        ({"max_tokens": 1_000_001}, 0, None),
        ({"max_tokens": 1_000_000}, 0, "max_tokens"),
        ({"max_cost": 7.01, **TOKEN_PRICES}, 0, None),
        ({"max_cost": 7, **TOKEN_PRICES}, 0, "max_cost"),
        ({"max_hours": 2}, 7199, None),
        ({"max_hours": 2}, 7200, "max_hours"),
        ({"max_cost": 6, "price_per_hour": 3}, 1799, None),
        ({"max_cost": 6, "price_per_hour": 3}, 1800, "max_cost"),  # 4 machines at most, at 3 an hour each
        ({"max_cost": 6, "price_per_hour": 3, "max_hours": 0.1}, 400, "max_hours"),
    ],
)
def test_bound_is_met_by_what_the_turns_have_taken(
    settings: dict[str, float], seconds: float, bound: str | None
) -> None:
    assert bound_met(run_of(**settings), SPENT, seconds=seconds) == bound


def test_run_without_bounds_meets_none() -> None:
    assert not has_bounds(run_of(**TOKEN_PRICES))
    assert has_bounds(run_of(max_hours=1))
    assert bound_met(run_of(price_per_hour=3), SPENT, seconds=10**6) is None


PLAN = {
    "prompt_tokens_at_least": 7_200_000,
    "prompt_tokens_at_most": 9_000_000,
    "completion_tokens_at_most": 700_000,
    "follow_up_prompt_tokens_at_most": 1_000_000,
    "follow_up_completion_tokens_at_most": 100_000,
}


def test_estimate_divides_tokens_by_speed_and_multiplies_hours_by_price() -> None:
    told = estimate(PLAN, Rates(tokens_per_second=1000, price_per_hour=2.5), replicas=2)
    assert told == {
        "replicas": 2,
        "tokens_per_second": 1000,
        "hours_at_least": 1.0,
        "hours_at_most": 1.5,
        "cost_at_least": 5.0,
        "cost_at_most": 7.5,
    }
