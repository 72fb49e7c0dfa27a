"""Processes of a job with real vLLM killed five times. `make test` kills an engine once, in test_main_job.

A driver is killed there with an engine that needs no start, in test_chaos.
"""

import random
from pathlib import Path

import pytest

from tests.faults.corpus import Corpus
from tests.faults.killed_job import Role
from tests.faults.kills import kill_at_moments, make_vllm_corpus, run_undisturbed
from tests.faults.results import Results

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_vllm_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def undisturbed(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run_undisturbed(corpus, output=tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.mark.parametrize("role", Role)
def test_run_with_killed_processes_ends_with_the_answers_of_an_undisturbed_one(
    role: Role, corpus: Corpus, undisturbed: Results, tmp_path: Path
) -> None:
    kill_at_moments(role, corpus, reference=undisturbed, output=tmp_path / "run", rng=random.Random(f"{role}-1"))
