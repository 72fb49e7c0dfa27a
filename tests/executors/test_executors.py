"""One contract for both executors: the same job writes the same tables, cell for cell."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import ExecutorKind, JobConfig
from memagent_batch.errors import SettingsError
from memagent_batch.run.executors import executor
from memagent_batch.run.executors.executor import LOCAL_BYTES, LOCAL_FILES, choose_executor
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.flows.check import check
from memagent_batch.run.flows.plan import plan_checked
from memagent_batch.run.manifest import Manifest
from tests import prompt_dependent_engine
from tests.jobs import put_documents, small_settings
from tests.tables import comparable, table_rows


def settings(folder: Path, model: str, executor: ExecutorKind, **values: Any) -> JobConfig:
    """A job over four documents, one of them unreadable, whose every word depends on its prompt."""
    return job_of(**settings_of_job(folder, model, executor) | values, allow_code=True)


def settings_of_job(folder: Path, model: str, executor: ExecutorKind) -> dict[str, Any]:
    """What the job file of such a job says."""
    if not (folder / "documents.parquet").exists():
        put_documents(folder, {**{name: f"{name} and some more words. " * 30 for name in "abc"}, "d": None})
    own = {"engine": prompt_dependent_engine.KIND, "executor": executor.value, "window_tokens": 1500}
    places = {"documents": str(folder / "documents.parquet"), "output": str(folder / executor)}
    return small_settings(folder, model, ask=["Who?", "Where?"], **places, **own)


def tables_of(job: JobConfig, manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """Rows of a run's tables without the columns that are of this run alone."""
    names = manifest["table_versions"].keys() & {"answers", "memories", "evidence"}
    return {name: comparable(table_rows(job.output, name)) for name in names}


def read_and_plan(job: JobConfig) -> tuple[Mapping[str, Any], Manifest]:
    """The plan of a job before it is read, and its manifest."""
    plan: Mapping[str, Any] = plan_checked(check(job))
    return plan, answer(job)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize(
    ("values", "replicas"),
    [
        ({"follow_ups": {"evidence": True}}, 2),
        ({"policy": {"kind": "parallel", "chunk_tokens": 50, "question_tokens": 60, "memory_tokens": 40}}, 1),
    ],
    ids=["follow_ups", "parallel"],
)
def test_job_writes_the_same_tables_by_both_executors(
    text_model: str, tmp_path: Path, values: dict[str, Any], replicas: int
) -> None:
    pool = {"replicas": replicas, "cpus_per_replica": 0.2, "readings_in_flight": 1}
    local = settings(tmp_path, text_model, ExecutorKind.LOCAL, **values)
    on_ray = settings(tmp_path, text_model, ExecutorKind.RAY, **values, pool=pool)
    (plan, manifest), (plan_of_ray, manifest_of_ray) = read_and_plan(local), read_and_plan(on_ray)
    assert plan == plan_of_ray
    assert manifest["counts"] == manifest_of_ray["counts"]
    assert manifest["fingerprint"] == manifest_of_ray["fingerprint"]
    assert tables_of(local, manifest) == tables_of(on_ray, manifest_of_ray)


@pytest.mark.parametrize(
    ("num_files", "num_bytes", "needs", "is_local"),
    [
        (LOCAL_FILES, LOCAL_BYTES, None, True),
        (LOCAL_FILES + 1, 1, None, False),
        (1, LOCAL_BYTES + 1, None, False),
        (1, 1, "it has several replicas", False),
    ],
)
def test_auto_takes_this_process_for_small_jobs_of_one_engine(
    monkeypatch: pytest.MonkeyPatch, num_files: int, num_bytes: int, needs: str | None, is_local: bool
) -> None:
    monkeypatch.setattr(executor, "is_on_ray", lambda: False)  # other tests of this process may have started Ray
    chosen = choose_executor(ExecutorKind.AUTO, num_files=num_files, num_bytes=num_bytes, why_ray=needs)
    assert isinstance(chosen, LocalExecutor) is is_local


def test_auto_takes_the_cluster_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert not isinstance(choose_executor(ExecutorKind.AUTO, num_files=1, num_bytes=1), LocalExecutor)


def test_local_is_refused_for_several_replicas(text_model: str, tmp_path: Path) -> None:
    job = settings(tmp_path, text_model, ExecutorKind.LOCAL, pool={"replicas": 2})
    with pytest.raises(SettingsError, match="set executor to ray"):
        check(job)
