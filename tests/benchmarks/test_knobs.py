"""Command lines of the benchmarks that run the job: each of their knobs is one of the job's."""

import argparse
from collections.abc import Sequence

import pytest

from benchmarks.answers.escalation import DOUBTS, second_look
from benchmarks.answers.questions import ALONE
from benchmarks.answers.questions import WAYS as ASKED_WAYS
from benchmarks.peers.contestants import MODE_ARGUMENTS
from benchmarks.peers.same_accuracy import WAYS
from benchmarks.reviews.end_to_end import FLAGGED
from benchmarks.tiny_job import CONFIG
from memagent_batch.cli.answer import MANUAL
from memagent_batch.cli.main import parse_settings
from memagent_batch.cli.settings import JobSettings
from memagent_batch.review.sample.conditions import parse_condition

PLACES = ("--config", str(CONFIG), "--documents", "documents", "--ask", "Who?", "--output", "run")
WHEN = (DOUBTS, ["answer"], ["low_confidence", "failed"])
LOOKS = [second_look(argparse.Namespace(when=list(when), better="parallel")) for when in WHEN]
SUPPORT = ("--closing.evidence", "--closing.support")


@pytest.mark.parametrize(
    "knobs",
    [
        *WAYS.values(),
        *ASKED_WAYS.values(),
        *MODE_ARGUMENTS.values(),
        ALONE,
        *([*look, *SUPPORT] for look in LOOKS),
    ],
)
def test_knobs_of_benchmarks_are_those_of_the_job(knobs: Sequence[str]) -> None:
    job = parse_settings(JobSettings, MANUAL, [*PLACES, *knobs]).job()
    assert job.agent.model == "tiny"


def test_condition_of_the_reviewed_scan_is_one() -> None:
    assert parse_condition(FLAGGED).value == "ok"
