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
    assert {"scan_plan", "write", "close_run"} <= first["phases"].keys()
    assert {"scan_plan", "close_quiet_run"} <= unchanged["phases"].keys()
    assert all(phase["anonymous_mib"] > 0 for phase in first["phases"].values())
