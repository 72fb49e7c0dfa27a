"""An unchanged night over a bucket lists it, and opens the documents that changed."""

import argparse

import pytest

from benchmarks.requests import add_options, measure


@pytest.mark.s3
@pytest.mark.parametrize("options", [[], ["--inventory"]])
def test_unchanged_night_opens_no_object_and_a_changed_one_its_own(options: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    nights = list(measure(parser.parse_args(["--objects", "12", *options])))
    assert [(night["readings_read"], night["opened"]) for night in nights] == [(12, 12), (0, 0), (1, 1)]
