from pathlib import Path

import pytest

from memagent_batch.config.job import ExecutorKind
from memagent_batch.data.store.turn_log import index, merge
from memagent_batch.data.store.turn_log.index import scan_log
from memagent_batch.run.executors.executor import choose_executor
from tests.store.turn_log.logs import held, rows_of, small_files, written


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_tasks_of_ray_scan_and_merge_a_log_as_threads_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "MERGE_FROM", 2)
    output, executor = written(tmp_path), choose_executor(ExecutorKind.RAY, num_files=0, num_bytes=0)
    before, here = held(output), scan_log(output, fingerprint="f")
    monkeypatch.setattr(index, "TASK_FILES", 2)
    there = scan_log(output, fingerprint="f", mapped=executor.map)
    assert rows_of(there) == rows_of(here)
    assert len(merge.merge_log(output, require_claim=lambda: None, mapped=executor.map)) == 2
    assert held(output) == before
    assert small_files(output) == []
