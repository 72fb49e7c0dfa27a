import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.corpus import Corpus
from tests.faults.fault import ON_VLLM, Fault
from tests.faults.kills import MOMENTS, Moment, kill_at_moments, make_vllm_corpus, run_undisturbed
from tests.faults.report import Results

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1800)]

SHORT = pytest.param(Fault.VLLM_ENGINE_KILLED, (Moment.READING,), id="engine-once")
"""For `make test`; driver and actor are killed there with an engine that needs no start (test_chaos)."""
WHOLE = [
    pytest.param(fault, MOMENTS[role], marks=pytest.mark.chaos, id=f"{role}-five-times")
    for fault, role in ON_VLLM.items()
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_vllm_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def undisturbed(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run_undisturbed(corpus, output=tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.mark.parametrize(("fault", "moments"), [SHORT, *WHOLE])
def test_run_with_killed_processes_ends_with_the_answers_of_an_undisturbed_one(
    fault: Fault, moments: Sequence[Moment], corpus: Corpus, undisturbed: Results, tmp_path: Path
) -> None:
    report = kill_at_moments(
        fault,
        corpus,
        reference=undisturbed,
        output=tmp_path / "run",
        rng=random.Random(f"{fault}-1"),
        moments=moments,
    )
    assert (report.rows_lost, report.rows_doubled) == (0, 0)
    assert report.kills is not None
    assert report.kills.rows_changed == 0
    assert report.ok + report.failed == report.asked
    assert report.failed == corpus.num_unreadable
    assert report.turns == len(undisturbed.logged)
    assert report.kills.calls_repeated <= report.kills.calls_bound
    assert [title for title in report.processes_left if "Engine" in title or "Reader" in title] == []
    assert report.kills.counts_equal
    assert report.counts_close
