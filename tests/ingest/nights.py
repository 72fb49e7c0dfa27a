"""Nights of an ingest: what a job has read, and the rows that it has left."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.config.ingest import IngestConfig
from memagent_batch.config.job import ExecutorKind, IngestJob
from memagent_batch.config.sources import InputConfig
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.run.flows.ingest import IngestReport, ingest_documents

Row = dict[str, Any]
OF_A_RUN = ("run_id", "ingested_at")
"""Columns that say which run wrote a row."""


def job_of(documents: Path | str, output: Path | str, *, ingest: Mapping[str, Any] = {}, **settings: Any) -> IngestJob:
    others = {name: settings.pop(name) for name in IngestJob.model_fields if name in settings}
    others.setdefault("executor", ExecutorKind.LOCAL)
    return IngestJob(
        documents=(str(documents),),
        output=str(output),
        input=InputConfig(**{"format": "auto", **settings}),
        ingest=IngestConfig(**ingest),
        **others,
    )


def night(documents: Path | str, output: Path | str, **settings: Any) -> IngestReport:
    return ingest_documents(job_of(documents, output, **settings))


def changes(report: IngestReport) -> tuple[int, int, int]:
    """Documents added, changed and removed."""
    counts = report["counts"]
    return counts["documents_added"], counts["documents_changed"], counts["documents_removed"]


def rows(output: Path | str | Location, name: str = "documents", version: int | None = None) -> list[Row]:
    place = output if isinstance(output, Location) else Location(uri=str(output))
    table = OutputTable(output=place, name=name).dataset(version).to_table()
    found: list[Row] = table.to_pylist()
    return sorted(found, key=lambda row: str(row.get("document_id", row.get("source"))))


def by_id(output: Path | str | Location) -> dict[str, Row]:
    return {row["document_id"]: row for row in rows(output)}


def texts(output: Path | str | Location) -> dict[str, str | None]:
    return {row["document_id"]: row["text"] for row in rows(output)}


def content(output: Path | str | Location) -> list[Row]:
    """The rows without what differs from run to run."""
    return [{name: value for name, value in row.items() if name not in OF_A_RUN} for row in rows(output)]


def version(output: Path | str, name: str = "documents") -> int | None:
    return OutputTable(output=Location(uri=str(output)), name=name).version()


def put_jsonl(path: Path, items: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(item)}\n" for item in items), encoding="utf-8")


def put_parquet(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
