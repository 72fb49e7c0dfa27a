"""The bounds of a run by its knobs."""

import pytest

from memagent_batch.config.job import PoolConfig, RunConfig
from memagent_batch.runs.bounds import NOTHING, bounds_of, cost


def run_of(**knobs: object) -> RunConfig:
    return RunConfig.model_validate({"output": "out", "pool": PoolConfig(replicas=2, max_replicas=4), **knobs})


@pytest.mark.parametrize(
    ("knobs", "seconds", "knob"),
    [
        ({"max_hours": 2}, 7200, "max_hours"),
        ({"max_cost": 6, "price_per_hour": 3}, 1800, "max_cost"),  # 4 machines at most, at 3 an hour each
        ({"max_cost": 6, "price_per_hour": 3, "max_hours": 2}, 1800, "max_cost"),
        ({"max_cost": 6, "price_per_hour": 3, "max_hours": 0.1}, 360, "max_hours"),
    ],
)
def test_a_price_of_machines_bounds_the_time_of_all_that_may_run_and_the_earlier_end_counts(
    knobs: dict[str, float], seconds: float, knob: str
) -> None:
    bounds = bounds_of(run_of(**knobs))
    assert bounds is not None
    assert bounds.seconds == pytest.approx(seconds)
    assert (bounds.seconds_knob, len(bounds.meters)) == (knob, 0)


def test_what_a_run_may_cost_by_the_hour_is_what_its_longest_time_costs() -> None:
    run = run_of(max_cost=6, price_per_hour=3)
    bounds = bounds_of(run)
    assert bounds is not None
    assert cost(run, NOTHING, seconds=bounds.seconds) == pytest.approx(6)
