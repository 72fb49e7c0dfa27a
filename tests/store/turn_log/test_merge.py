import asyncio
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ray.exceptions import RayError

from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log import files, index, merge
from memagent_batch.data.store.turn_log.files import (
    KEYS_FOLDER,
    LOG_SCHEMAS,
    OUTCOMES_FOLDER,
    TURNS_FOLDER,
    read_log_file,
)
from memagent_batch.data.store.turn_log.index import scan_log
from memagent_batch.data.store.turn_log.turns import read_turns
from memagent_batch.errors import StorageError, SupersededError
from tests.store.turn_log.logs import FLUSHES, RUNS, held, num_turns, rows_of, small_files, write, written

FEW = 2
"""Small files from which a log is merged here."""


@pytest.fixture(autouse=True)
def _merges_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MERGE_FROM", FEW)


def merged(output: Location, **arguments: Any) -> list[str]:
    settings: dict[str, Any] = {"require_claim": lambda: None}
    return merge.merge_log(output, **(settings | arguments))


def test_scan_opens_key_files_alone(tmp_path: Path) -> None:
    output = written(tmp_path)
    before = scan_log(output, fingerprint="f")
    for folder in LOG_SCHEMAS:
        for path in (output / folder).files():
            Path(path).write_bytes(b"not read")
    assert rows_of(scan_log(output, fingerprint="f")) == rows_of(before)


def test_missing_key_file_is_made_of_its_log_files_and_none_promises_a_turn_whose_file_is_gone(tmp_path: Path) -> None:
    output = written(tmp_path)
    before = held(output)
    for path in (output / KEYS_FOLDER).files()[::2]:
        Path(path).unlink()
    assert held(output) == before
    gone = (output / TURNS_FOLDER).files()[1]
    Path(gone).unlink()
    index = scan_log(output, fingerprint="f")
    assert gone not in index.turns["file"].to_pylist()
    assert (index.turns.num_rows, index.outcomes.num_rows) == (2 * FLUSHES - 1, 2 * FLUSHES)


def test_scan_of_a_run_reads_no_file_of_the_runs_before_it(tmp_path: Path) -> None:
    output = written(tmp_path)
    before = scan_log(output, fingerprint="f")
    for path in output.files():
        Path(path).write_bytes(b"not read")
    written(tmp_path, run_ids=RUNS[1:2])
    index = scan_log(output, fingerprint="f", begins=f"{RUNS[1]}-", before=before)
    assert index.outcomes.num_rows == index.turns.num_rows == 4 * FLUSHES
    assert num_turns(index) == dict.fromkeys(RUNS[:2], 2 * FLUSHES)
    assert before.outcomes.num_rows == 2 * FLUSHES


def test_merged_log_says_the_same_in_a_file_for_each_writer(tmp_path: Path) -> None:
    output = written(tmp_path)
    before = held(output)
    assert len(merged(output)) == 2
    assert held(output) == before
    assert small_files(output) == []
    assert len(output.files()) == 2 * 3
    assert merged(output) == []


def test_merge_makes_several_files_of_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = written(tmp_path, writers="a")
    before = held(output)
    monkeypatch.setattr(merge, "MERGED_BYTES", 1)
    names = [name.rpartition("-")[2] for name in merged(output)]
    assert names == ["000001to000002.parquet", "000003to000004.parquet"]
    assert held(output) == before


def test_row_groups_without_a_wanted_document_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GROUP_ROWS", 1)
    output = written(tmp_path, writers="a")
    merged(output)
    (file,) = (output / TURNS_FOLDER).files()
    wanted = [f"{RUNS[0]} a 1", f"{RUNS[0]} a 3"]
    table = read_log_file(output, file, columns=["document_hash"], document_hashes=wanted)
    assert table["document_hash"].to_pylist() == wanted
    assert read_log_file(output, file, columns=["document_hash"], document_hashes=["0", "9"]).num_rows == 0
    of_id = read_log_file(
        output, file, columns=["document_hash"], document_hashes=["0"], document_id=f"id of {RUNS[0]} a 2"
    )
    assert of_id["document_hash"].to_pylist() == [f"{RUNS[0]} a 2"]


@pytest.mark.parametrize(
    ("without_keys", "merged_names"),
    [(1, ["000003to000004.parquet"]), (FLUSHES - 1, ["000001to000003.parquet"])],
    ids=["removed", "of a flush that its writer has not ended"],
)
def test_flush_without_keys_stays_and_divides_the_merged_ones(
    tmp_path: Path, without_keys: int, merged_names: list[str]
) -> None:
    output = written(tmp_path, writers="a")
    before = held(output)
    Path((output / KEYS_FOLDER).files()[without_keys]).unlink()
    assert [name.rpartition("-")[2] for name in merged(output)] == merged_names
    assert held(output) == before


def test_turns_of_a_file_that_was_listed_before_it_was_merged_are_read(tmp_path: Path) -> None:
    output = written(tmp_path)
    listed = (output / TURNS_FOLDER).files()
    merged(output)
    name = f"{RUNS[0]} a 0"
    (rows,) = read_turns(output, listed, fingerprints=["f"], document_hashes=[name])["f"].values()
    assert rows.by_path()["update/0"]["text"] == f"turn of {name}"


def test_log_that_is_merged_while_tasks_of_a_cluster_scan_it_is_scanned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = written(tmp_path)
    before = held(output)
    monkeypatch.setattr(index, "TASK_FILES", 1)

    def as_ray(task: files.LogTask, tasks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        merged(output)
        try:
            yield from files.run_tasks(task, tasks)
        except StorageError as error:
            raise StorageError(str(error)) from RayError()

    assert rows_of(scan_log(output, fingerprint="f", mapped=as_ray)) == rows_of(scan_log(output, fingerprint="f"))
    assert held(output) == before


def test_superseded_attempt_removes_nothing(tmp_path: Path) -> None:
    output = written(tmp_path)
    files, before = set(output.files()), held(output)

    def superseded() -> None:
        raise SupersededError("a newer attempt owns the output")

    with pytest.raises(SupersededError):
        merged(output, require_claim=superseded)
    assert files < set(output.files())
    assert held(output) == before


def _merge_and_die(output: Location, steps: int) -> None:
    """Merges, and is killed before the next change of the store after so many."""
    left = iter(range(steps))
    lock = threading.Lock()

    def dies(change: Any) -> Any:
        def changed(*arguments: Any) -> Any:
            with lock:
                if next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return change(*arguments)

        return changed

    merge.MERGE_FROM = FEW
    Location.write_bytes = dies(Location.write_bytes)  # type: ignore[method-assign]
    Location._delete_file = dies(Location._delete_file)  # type: ignore[method-assign]
    merged(output)


def exit_codes(output: Location, *steps: int) -> list[int | None]:
    """Exit codes of processes that merge at once, each killed after its own number of steps."""
    context = multiprocessing.get_context("forkserver")  # a copy of this process may hang: it has threads
    context.set_forkserver_preload([__name__])
    processes = [context.Process(target=_merge_and_die, args=(output, each)) for each in steps]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


def killed_merges(folder: Path) -> Iterator[Location]:
    """Logs whose merge was killed after each of its steps; none after the last one."""
    for steps in range(100):
        output = written(folder / str(steps), writers="a")
        (code,) = exit_codes(output, steps)
        if code == 0:
            return
        assert code == -signal.SIGKILL
        yield output
    raise AssertionError("the merge does not end")


def test_merge_killed_at_every_step_loses_and_doubles_nothing_and_the_next_one_ends_it(tmp_path: Path) -> None:
    before = held(written(tmp_path / "whole", writers="a"))
    num_kills = 0
    for output in killed_merges(tmp_path):
        assert held(output) == before
        merged(output)
        assert held(output) == before
        assert small_files(output) == []
        num_kills += 1
    assert num_kills == 3 + 3 * FLUSHES


def test_three_merges_at_once_that_are_all_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    before = held(written(tmp_path / "whole", writers="ab"))
    for number in range(8):
        output = written(tmp_path / str(number), writers="ab")
        codes = exit_codes(output, *random.sample(range(2 + 4 * FLUSHES), 3))
        assert {*codes} <= {0, 1, -signal.SIGKILL}, "1: another one has merged and removed what it was to read"
        assert held(output) == before
        merged(output)
        assert held(output) == before
        assert small_files(output) == []


def test_three_attempts_that_merge_at_once_take_no_file_from_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "MERGED_BYTES", 1)

    def slowed(place: Location, change: Any, *arguments: Any) -> Any:
        time.sleep(random.uniform(0, 0.003))
        return change(place, *arguments)

    for name in ("write_bytes", "_delete_file"):
        monkeypatch.setattr(Location, name, partialmethod(slowed, getattr(Location, name)))
    for number in range(5):
        output = written(tmp_path / str(number), writers="ab")
        owner = [-1]
        with ThreadPoolExecutor(3) as threads:
            attempts = [threads.submit(attempt, output, owner, number) for number in range(3)]
            outcomes = [each.result() for each in attempts]
        assert outcomes[-1]
        answers = held(output)["answers"]
        assert len(answers) == (2 + 3) * FLUSHES
        assert set(held(output)["num_turns"].values()) <= {FLUSHES, 3 * FLUSHES}


def attempt(output: Location, owner: list[int], number: int) -> bool:
    """Claims, lists, reads, merges; whether it was not superseded. What the newest one has listed stays for it."""
    time.sleep(random.uniform(0, 0.05) * number)

    def require_claim() -> None:
        if owner[0] != number:
            raise SupersededError("a newer attempt owns the output")

    owner[0] = max(owner[0], number)
    index = scan_log(output, fingerprint="f")
    asyncio.run(write(output, run_id=RUNS[number], writer_id=f"own{number}"))
    time.sleep(random.uniform(0, 0.05))
    try:
        for file in index.outcomes["file"].to_pylist():
            require_claim()
            read_log_file(output, file, columns=LOG_SCHEMAS[OUTCOMES_FOLDER].names)
        merged(output, require_claim=require_claim)
    except SupersededError:
        return False
    except StorageError:  # a newer attempt has merged the file away
        return owner[0] == number
    return True
