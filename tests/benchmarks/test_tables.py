"""Nights over objects in a bucket: an unchanged one opens no document, a changed one its own."""

import argparse

import pytest

from benchmarks.tables import add_options, measure

NUM_OBJECTS = 12


@pytest.mark.s3
def test_unchanged_night_opens_no_object_and_a_changed_one_its_own() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = ("--rows", "0", "--objects", str(NUM_OBJECTS), "--executors", "local")
    nights = list(measure(parser.parse_args(options)))
    assert [night["night"] for night in nights] == ["cold", "unchanged", "one changed"]
    cold, unchanged, changed = (night["requests"].get("document GET", 0) for night in nights)
    assert unchanged <= 1  # whether the documents are an output
    assert (cold - unchanged, changed - unchanged) == (NUM_OBJECTS, 1)
    assert all(night["seconds"] > 0 and night["anonymous_mib"] > 0 for night in nights)
