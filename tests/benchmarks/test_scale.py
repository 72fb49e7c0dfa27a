"""The measurements of what a corpus costs the driver, and its log a scan."""

import argparse

from benchmarks import log_scan
from benchmarks.scale import add_options, measure


def test_scale_has_figures_of_a_first_and_an_unchanged_run() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    given = ["--documents", "30", "--questions", "2", "--form", "rows", "--unchanged", "1"]
    first, unchanged = measure(parser.parse_args(given))
    assert (first["what"], unchanged["what"]) == ("first", "unchanged")
    assert {"scan_plan", "pending", "recorded_plan"} <= first["phases"].keys() & unchanged["phases"].keys()
    assert all(phase["anonymous_mib"] > 0 for phase in first["phases"].values())


def test_plan_over_a_made_log_has_figures_of_a_night_in_which_nothing_is_read() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    first, unchanged = measure(parser.parse_args(["--plan-only", "--documents", "300", "--unchanged", "1"]))
    assert {"in_order", "pending", "write_plan"} <= first["phases"].keys()
    assert {"last_run", "pending", "write_plan"} <= unchanged["phases"].keys()


def test_log_scan_has_figures_before_and_after_its_merge() -> None:
    parser = argparse.ArgumentParser()
    log_scan.add_options(parser)
    arguments = parser.parse_args(["--flushes", "70", "--writers", "2", "--request-seconds", "0"])
    parts = list(log_scan.measure(arguments))
    assert [part["part"] for part in parts] == ["without_keys", "keys", "merge", "merged"]
    assert parts[-1]["key_files"] == 2
