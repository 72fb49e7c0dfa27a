import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.kill_report import Results
from benchmarks.killed_job import Role
from benchmarks.kills import MOMENTS, Corpus, Moment, kill_at_moments, make_corpus, run_undisturbed

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1800)]

SHORT = pytest.param(Role.ENGINE, (Moment.READING,), id="engine-once")
"""For `make test`; driver and actor are killed there with an engine that needs no start (test_chaos)."""
WHOLE = [pytest.param(role, MOMENTS[role], marks=pytest.mark.chaos, id=f"{role}-five-times") for role in Role]


@pytest.fixture(scope="module")
def corpus(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), model=tiny_model)


@pytest.fixture(scope="module")
def undisturbed(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run_undisturbed(corpus, output=tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.mark.parametrize(("fault", "moments"), [SHORT, *WHOLE])
def test_run_with_killed_processes_ends_with_the_answers_of_an_undisturbed_one(
    fault: Role, moments: Sequence[Moment], corpus: Corpus, undisturbed: Results, tmp_path: Path
) -> None:
    report = kill_at_moments(
        fault,
        corpus,
        reference=undisturbed,
        output=tmp_path / "run",
        rng=random.Random(f"{fault}-1"),
        moments=moments,
    )
    assert (report.rows_lost, report.rows_doubled, report.rows_changed) == (0, 0, 0)
    assert report.ok + report.failed == report.asked
    assert report.failed == corpus.unreadable
    assert report.turns == len(undisturbed.logged)
    assert report.calls_repeated <= report.calls_bound
    assert [title for title in report.processes_left if "Engine" in title or "Reader" in title] == []
    assert report.counts == undisturbed.counts
