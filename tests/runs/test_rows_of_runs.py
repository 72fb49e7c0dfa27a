"""The table `runs` where drivers of several slices commit to it at once: each run has one row."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.data.store.delta import ERASER, OutputTable, RunNumber, write_table_files
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError, SupersededError
from memagent_batch.run import history
from memagent_batch.run.history import begin, finish
from memagent_batch.run.manifest import RunRecord

MANIFEST: Any = {
    "counts": {"ok": 1, "failed": 0, "not_read": 0},
    "changes": {"answers": 0, "documents": {"added": 0, "changed": 0, "removed": 0}},
    "finished_at": datetime.now(UTC).isoformat(),
    "seconds": 1.0,
    "table_versions": {},
    "digest": "",
}


def record_of(run_id: str) -> RunRecord:
    return RunRecord(
        run_id=run_id,
        started_at=datetime.now(UTC).isoformat(),
        documents="docs",
        questions=[],
        asked=1,
        fingerprint="f",
        settings={},
        documents_table={"output": None, "version": 0},
    )


def begin_slice(output: Location, number: int) -> RunNumber:
    return begin(output, record_of, writer=f"memagent/slice-{number}-of-9", after="")


def finish_run(output: Location, run: RunNumber) -> None:
    finish(output, run, record_of(run.run_id), MANIFEST)


def states(output: Location) -> list[tuple[str, str]]:
    rows = OutputTable(output=output, name="runs").dataset().to_table().to_pylist()
    return sorted((row["run_id"], row["state"]) for row in rows)


def all_finished(*runs: RunNumber) -> list[tuple[str, str]]:
    return sorted((run.run_id, "finished") for run in runs)


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """An output in which rows of three files become one file."""
    monkeypatch.setattr(history, "COMPACT_FILES", 3)
    return Location(uri=str(tmp_path / "run"))


def once_before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Does something when the next commit has read the table and has written its file."""
    writing = "memagent_batch.run.history.write_table_files"

    def write_and_act(*args: Any, **settings: Any) -> Any:
        monkeypatch.setattr(writing, write_table_files)
        written = write_table_files(*args, **settings)
        act()
        return written

    monkeypatch.setattr(writing, write_and_act)


def test_run_that_finishes_after_its_row_was_written_with_others_has_one_row(output: Location) -> None:
    first, second, third = (begin_slice(output, number) for number in range(1, 4))
    for run in (first, second, third):
        finish_run(output, run)
    assert states(output) == all_finished(first, second, third)


def test_rows_of_runs_that_go_on_stay_in_files_of_their_own(output: Location) -> None:
    runs = [begin_slice(output, number) for number in range(1, 6)]
    for run in runs[:4]:
        finish_run(output, run)
    files = [path.rpartition("/")[2] for path in OutputTable(output=output, name="runs").files()]
    assert [any(run.run_id in path for path in files) for run in runs] == [False, False, True, True, True]
    finish_run(output, runs[4])
    assert states(output) == all_finished(*runs)


def test_run_in_whose_file_are_rows_of_others_keeps_them_at_each_of_its_commits(
    output: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [begin_slice(output, number) for number in range(1, 4)]
    monkeypatch.setattr(history, "_unfinished", lambda rows: [])  # rows of runs that go on are taken along too
    finish_run(output, runs[0])
    for run in runs[1:]:
        row = history.make_row(run, record_of(run.run_id))
        history.commit_row(output, run, {**row, "state": "committing"})
        assert [run_id for run_id, _ in states(output)] == sorted(each.run_id for each in runs)
        finish_run(output, run)
    assert states(output) == all_finished(*runs)


def test_erasure_that_has_no_row_yet_keeps_the_row_of_the_only_other_run(output: Location) -> None:
    run = begin_slice(output, 1)
    finish_run(output, run)
    erasure = history.next_number(output, writer="memagent/slice-2-of-9", after="")
    row = history.make_row(erasure, record_of(erasure.run_id))
    history.commit_row(output, erasure, {**row, "documents_forgotten": 1, "state": "finished"}, is_first=True)
    assert states(output) == all_finished(run, erasure)


def test_run_that_finishes_while_rows_become_one_file_has_one_row(
    output: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (begin_slice(output, number) for number in range(1, 4))
    once_before_commit(monkeypatch, lambda: finish_run(output, first))
    finish_run(output, second)
    finish_run(output, third)
    assert states(output) == all_finished(first, second, third)


def test_runs_that_finish_or_begin_at_once_have_one_row_each(output: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = begin_slice(output, 1), begin_slice(output, 2)
    others = list[RunNumber]()
    once_before_commit(monkeypatch, lambda: others.append(begin_slice(output, 3)))
    finish_run(output, first)
    once_before_commit(monkeypatch, lambda: finish_run(output, second))
    finish_run(output, others[0])
    with ThreadPoolExecutor(6) as threads:
        more = list(threads.map(lambda number: begin_slice(output, number), range(4, 10)))
        list(threads.map(lambda run: finish_run(output, run), more))
    assert states(output) == all_finished(first, second, *others, *more)


def test_run_that_was_overtaken_while_it_finishes_changes_nothing(
    output: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin_slice(output, 1)
    newer = list[RunNumber]()
    once_before_commit(monkeypatch, lambda: newer.append(begin_slice(output, 1)))
    with pytest.raises(SupersededError):
        finish_run(output, first)
    assert states(output) == sorted([(first.run_id, "superseded"), (newer[0].run_id, "running")])


@pytest.mark.parametrize("is_among_others", [False, True])
def test_run_that_takes_over_marks_the_unfinished_ones_of_its_writer_and_no_other(
    output: Location, monkeypatch: pytest.MonkeyPatch, is_among_others: bool
) -> None:
    killed, other, finished = (begin_slice(output, number) for number in range(1, 4))
    with monkeypatch.context() as patch:
        if is_among_others:  # the row of the killed run is in the file of another one
            patch.setattr(history, "_unfinished", lambda rows: [])
        finish_run(output, finished)
    newer = begin_slice(output, 1)
    expected = {killed: "superseded", other: "running", finished: "finished", newer: "running"}
    assert states(output) == sorted((run.run_id, state) for run, state in expected.items())
    finish_run(output, other)
    finish_run(output, newer)
    assert states(output) == sorted([(killed.run_id, "superseded"), *all_finished(other, finished, newer)])


def test_run_that_begins_to_commit_while_a_newer_one_takes_over_is_not_marked(
    output: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begin_slice(output, 1)
    row: Any = {**history.make_row(first, record_of(first.run_id)), "state": "committing"}
    once_before_commit(monkeypatch, lambda: history.commit_row(output, first, row))
    newer = begin_slice(output, 1)
    assert states(output) == sorted([(first.run_id, "committing"), (newer.run_id, "running")])


def test_erasure_marks_runs_of_all_writers_that_began_before_it(output: Location) -> None:
    before = [begin_slice(output, number) for number in (1, 2)]
    erasure = begin_erasure(output)
    finish(output, erasure, replace(record_of(erasure.run_id), forgotten=1), MANIFEST)
    after = begin_slice(output, 1)
    expected = {**dict.fromkeys(before, "superseded"), erasure: "finished", after: "running"}
    assert states(output) == sorted((run.run_id, state) for run, state in expected.items())


def begin_erasure(output: Location) -> RunNumber:
    return begin(output, lambda run_id: replace(record_of(run_id), forgotten=1), writer=ERASER, after="")


def test_run_begins_only_when_an_erasure_has_ended_and_another_erasure_before(
    output: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_before_commit(monkeypatch, lambda: begin_erasure(output))  # the run has looked for one already
    with pytest.raises(OutputError, match="`memagent forget` is at work"):
        begin_slice(output, 1)
    second = begin_erasure(output)
    with pytest.raises(OutputError, match="`memagent forget` is at work"):
        begin_slice(output, 2)
    finish(output, second, replace(record_of(second.run_id), forgotten=1), MANIFEST)
    begin_slice(output, 2)
