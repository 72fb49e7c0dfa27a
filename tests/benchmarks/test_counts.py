"""Files of each kind are read and counted, and no word of them is missing."""

import argparse

import pytest

from benchmarks.counts import MAKERS, add_options, measure


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_file_of_each_kind_is_counted_without_a_missing_word(kind: str) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    (figures,) = measure(parser.parse_args(["--kinds", kind, "--megabytes", "0.02", "--runs", "1"]))
    assert (figures["kind"], figures["missing"]) == (kind, 0)
    assert figures["megabytes"] > 0
    assert figures["ratio"] > 0
