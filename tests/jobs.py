"""A job that reads short texts in this process, without a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig

BUDGETS = {"chunk_tokens": 50, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40}
"""Of a policy, for texts of some sentences."""


def put_texts(folder: Path, texts: Mapping[str, str]) -> Path:
    """A folder of files with these texts, made if it is not there."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def put_documents(folder: Path, texts: Mapping[str, str | None]) -> str:
    """The path of a Parquet file with a row for each text."""
    table = pa.table({"document_id": [*texts], "text": pa.array([*texts.values()], pa.string())})
    pq.write_table(table, folder / "documents.parquet")
    return str(folder / "documents.parquet")


def small_settings(folder: Path | str, model: str, **settings: Any) -> dict[str, Any]:
    """Settings of a job over `in` into `run`, both in the folder; those that are passed take precedence."""
    given: dict[str, Any] = {
        "executor": "local",
        "documents": f"{folder}/in",
        "output": f"{folder}/run",
        "engine": "simulated",
        "model": model,
        "window_tokens": 1000,
        "log": {"flush_seconds": 0.1},
    }
    return {**given, **settings, "policy": BUDGETS | settings.get("policy", {})}


def small_job(folder: Path | str, model: str, **settings: Any) -> JobConfig:
    return job_of(**small_settings(folder, model, **settings))


def small_arguments(folder: Path, model: str, **settings: Any) -> list[str]:
    """The same settings on a command line, in a job file."""
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(small_settings(folder, model, **settings)))
    return ["--config", str(file)]
