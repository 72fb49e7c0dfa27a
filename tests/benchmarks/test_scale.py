"""The measurement of what a corpus costs the driver."""

import argparse

from benchmarks.scale import add_options, measure


def test_scale_has_figures_of_a_first_and_an_unchanged_run() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    given = ["--documents", "30", "--questions", "2", "--form", "rows", "--unchanged", "1"]
    first, unchanged = measure(parser.parse_args(given))
    assert (first["what"], unchanged["what"]) == ("first", "unchanged")
    assert {"scan_plan", "pending", "recorded_plan"} <= first["phases"].keys() & unchanged["phases"].keys()
    assert all(phase["anonymous_mib"] > 0 for phase in first["phases"].values())
