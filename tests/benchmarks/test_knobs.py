"""Command lines of the benchmarks that run the job: each of their knobs is one of the job's."""

from collections.abc import Sequence

import pytest

from benchmarks.peers.contestants import MODE_ARGUMENTS
from benchmarks.peers.same_accuracy import WAYS
from benchmarks.tiny_job import CONFIG
from memagent_batch.cli.answer import Answer
from memagent_batch.cli.main import read_command

PLACES = ("--config", str(CONFIG), "--documents", "documents", "--ask", "Who?", "--output", "run")


@pytest.mark.parametrize(
    "knobs",
    [*WAYS.values(), *MODE_ARGUMENTS.values()],
)
def test_knobs_of_benchmarks_are_those_of_the_job(knobs: Sequence[str]) -> None:
    job = read_command(Answer, [*PLACES, *knobs]).job()
    assert job.agent.model == "tiny"
