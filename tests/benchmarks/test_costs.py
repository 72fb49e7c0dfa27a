"""The measurements of what is not the engine: they run, and their figures are of what was asked for."""

import argparse
from types import ModuleType
from typing import Any

from benchmarks import scale


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


def test_plan_over_a_made_log_has_figures_of_a_night_in_which_nothing_is_read() -> None:
    first, unchanged = figures_of(scale, "--plan-only", "--documents", "300", "--unchanged", "1")
    assert {"in_order", "pending", "write_plan"} <= first["phases"].keys()
    assert {"last_run", "pending", "write_plan"} <= unchanged["phases"].keys()
