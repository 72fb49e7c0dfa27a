"""Several attempts at one output: whatever their order, no table mixes them, and a stale one ends with 3."""

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.run.flows.verify import verify
from tests.flows.struck_jobs import (
    FIRST_NIGHT,
    SECOND_NIGHT,
    Length,
    StruckJob,
    await_moment,
    look,
    looked_at,
    results,
    strike,
    wait,
)

LENGTH = Length(seconds=4.0, num_commits=8)


@pytest.fixture(params=["disk", pytest.param("s3", marks=[pytest.mark.slow, pytest.mark.s3])])
def job(request: pytest.FixtureRequest, tmp_path: Path, text_model: str) -> StruckJob:
    place = Location(uri=str(tmp_path)) if request.param == "disk" else request.getfixturevalue("s3_bucket")
    job = StruckJob(folder=tmp_path, output=place / "run", model=text_model)
    job.put(SECOND_NIGHT)
    return job


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, text_model: str) -> dict[str, list[Any]]:
    """What a run over the second night ends with."""
    folder = tmp_path_factory.mktemp("undisturbed")
    job = StruckJob(folder=folder, output=Location(uri=str(folder / "run")), model=text_model)
    job.put(SECOND_NIGHT)
    job.run()
    return results(job)


def states(job: StruckJob) -> list[str]:
    """States of the runs, in the order of their numbers."""
    rows = OutputTable(output=job.output, name="runs").dataset().to_table().to_pylist()
    return [row["state"] for row in sorted(rows, key=lambda row: row["run_id"])]


def test_second_attempt_started_while_the_first_runs_supersedes_it(
    job: StruckJob, undisturbed: dict[str, list[Any]]
) -> None:
    with looked_at(job.output):
        first = job.start()
        await_moment(job, first, random.Random(1), LENGTH)
        second = job.start()
        codes = [wait(first), wait(second)]
    assert codes in ([3, 0], [0, 0], [0, 3]), job.console.read_text()[-3000:]
    assert look(job.output)
    assert results(job) == undisturbed
    assert verify(job.output).problems == []
    assert "running" not in states(job)
    assert (3 in codes) >= ("superseded" in states(job))


@pytest.mark.parametrize("is_changed", [False, True])
def test_older_attempt_that_wakes_up_late_changes_nothing(
    is_changed: bool, job: StruckJob, undisturbed: dict[str, list[Any]]
) -> None:
    if is_changed:  # after the first attempt has listed them
        job.put(FIRST_NIGHT)
    first = job.start()
    await_moment(job, first, random.Random(1), LENGTH)
    strike(first, signal.SIGSTOP)
    try:
        job.put(SECOND_NIGHT)
        job.run()
        shown = look(job.output)
    finally:
        strike(first, signal.SIGCONT)
    code = wait(first)
    assert code in (0, 3), job.console.read_text()[-3000:]  # 0 if it had ended, or had not listed the sources yet
    if code:
        assert look(job.output) == shown
        assert "superseded: " in job.console.read_text()
    assert "running" not in states(job)
    assert (code == 3) >= ("superseded" in states(job))
    assert results(job) == undisturbed
    assert verify(job.output).problems == []


def test_killed_run_is_running_in_the_table_of_runs_until_the_next_one_takes_over(job: StruckJob) -> None:
    killed = job.start()
    while not job.calls and killed.is_alive():
        time.sleep(0.01)
    strike(killed, signal.SIGKILL)
    assert wait(killed) == -signal.SIGKILL
    assert states(job) == ["running"]
    job.run()
    assert states(job) == ["superseded", "finished"]


def test_two_slices_at_once_fill_one_output_and_a_killed_one_goes_on(
    job: StruckJob, undisturbed: dict[str, list[Any]]
) -> None:
    rng, slices = random.Random(1), [{"slice": f"{number}/2"} for number in (1, 2)]
    with looked_at(job.output, is_sliced=True):
        first, second = [job.start(input=each) for each in slices]
        await_moment(job, second, rng, LENGTH)
        strike(second, signal.SIGKILL)
        assert wait(first) == 0, job.console.read_text()[-3000:]
        assert wait(second) in (0, -signal.SIGKILL)
        first, second = [job.start(input=each) for each in slices]
        assert [wait(first), wait(second)] == [0, 0], job.console.read_text()[-3000:]
    assert look(job.output)
    assert results(job) == undisturbed
    assert verify(job.output).problems == []
