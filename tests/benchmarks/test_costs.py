"""The measurements of what is not the engine: they run, and their figures are of what was asked for."""

import argparse
from types import ModuleType
from typing import Any

from benchmarks import actor, endpoint, scale


def figures_of(measurement: ModuleType, *options: str) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser()
    measurement.add_options(parser)
    return list(measurement.measure(parser.parse_args(options)))


def test_scale_has_figures_of_a_first_and_an_unchanged_run() -> None:
    options = ("--documents", "30", "--questions", "2", "--form", "rows", "--unchanged", "1")
    first, unchanged = figures_of(scale, *options)
    assert (first["what"], unchanged["what"]) == ("first", "unchanged")
    assert {"scan_plan", "pending", "recorded_plan"} <= first["phases"].keys() & unchanged["phases"].keys()
    assert all(phase["anonymous_mib"] > 0 for phase in first["phases"].values())


def test_endpoint_has_figures_of_each_number_of_requests_in_flight() -> None:
    few, more = figures_of(endpoint, "--in-flight", "1", "3", "--seconds", "0.01", "--runs", "1")
    assert (few["in_flight"], more["in_flight"], more["requests"]) == (1, 3, 3 * endpoint.WAVES)
    assert few["wall_over_ideal_median"] > 1
    assert few["cpu_milliseconds_a_request_median"] > 0


def test_actor_has_figures_of_all_turns_of_its_readings() -> None:
    (figures,) = figures_of(actor, "--readings", "2", "--chunks", "3", "--runs", "1")
    assert figures["turns"] == 2 * (2 * (3 + 1) + 1)  # two rounds of reads and a merge, and the answer
    assert figures["blocked_milliseconds_median"] > 0


def test_plan_over_a_made_log_has_figures_of_a_night_in_which_nothing_is_read() -> None:
    first, unchanged = figures_of(scale, "--plan-only", "--documents", "300", "--unchanged", "1")
    assert {"in_order", "pending", "write_plan"} <= first["phases"].keys()
    assert {"last_run", "pending", "write_plan"} <= unchanged["phases"].keys()
