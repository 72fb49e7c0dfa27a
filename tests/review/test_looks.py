"""Looks at several samples of the same readings: which of them cost the intervals their fixed size, and which don't."""

from dataclasses import replace
from pathlib import Path

from memagent_batch.flows.review import make_estimate, make_review
from memagent_batch.review.record import rule_of
from memagent_batch.store.location import Location
from tests.review.labelled_run import MadeRun, write_run
from tests.review.test_review import ASKED, label_all, record_of

MADE = MadeRun(num_documents=300, share_failed=0.05, share_invalid=0.05)
SMALL = replace(ASKED, labels="100", second_share=0.0)


def test_samples_made_before_any_estimate_have_wider_intervals_once_another_is_estimated(
    output: Path, location: Location
) -> None:
    truth = write_run(output, MADE)
    first, second = (label_all(output, truth, asked=replace(SMALL, seed=seed)).name for seed in (0, 1))
    red = replace(SMALL, rule=rule_of("value_label = 'red'", by=None, unsure_below=None))
    other = label_all(output, truth, asked=red).name
    for name, expected in ((first, False), (second, True), (first, True), (other, False)):
        values, page = make_estimate(location, name, so_far=False, with_seen=False)
        assert values["is_sequence"] is expected, name
        looked = first if name == second else second
        assert (f"estimated before ({looked})" in page) is expected


def test_look_at_a_sample_that_another_review_names_is_not_named_as_anothers(output: Path, location: Location) -> None:
    write_run(output, MADE)
    first = make_review(location, SMALL)["review"]
    make_estimate(location, first, so_far=True, with_seen=False)
    assert record_of(make_review(location, replace(SMALL, seed=1)))["grown"][0]["review_id"] == first
    grown = record_of(make_review(location, replace(SMALL, labels="150")))["grown"]
    assert [(each["is_after_look"], "review_id" in each) for each in grown] == [(True, False)]
