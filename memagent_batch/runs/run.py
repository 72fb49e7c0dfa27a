"""Begins a run: writes `run.json`, by which the output belongs to it."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.errors import StorageError
from memagent_batch.files.errors import storage_errors
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.log.index import last_run_id
from memagent_batch.log.question_list import write_asked
from memagent_batch.log.writer import new_run_id
from memagent_batch.logs import EventKind
from memagent_batch.masking import shown
from memagent_batch.runs.manifest import RUN_FILE, AgainRecord, RunRecord, Sample, public_settings, write_run_record
from memagent_batch.runs.output_place import asked_documents, asked_questions
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.runs.rows.projection import Projection, make_projection
from memagent_batch.wiring import ReaderIdentity

log = logging.getLogger(__name__)

CLAIM_TRIES = 5
"""Other attempts that may claim the output between the look at `run.json` and the writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution over a plan."""

    run_id: str
    """Its id."""
    output: Location
    """Where it writes."""
    job: JobConfig
    """All knobs."""
    reader: ReaderIdentity
    """The reader."""
    asked: int
    """Readings asked for."""
    started_at: datetime
    """When it began, UTC."""
    began_seconds: float
    """When it began on the monotonic clock, which corrections of the wall clock don't move; seconds."""
    projection: Projection
    """How rows are made of the log."""
    sources: SourceConfig
    """The documents at the versions that were indexed."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Version of each table of a lake that it reads."""
    sample: Sample | None = None
    """The sample of a run with a limit."""
    again: AgainRecord | None = None
    """What a second pass reads again."""


def begin_run(output: Location, job: JobConfig, *, reader: ReaderIdentity, plan: Plan) -> Run:
    """Writes `run.json`: from here on the location belongs to this job, and in it to this run."""
    started_at = datetime.now(UTC)
    record = _run_record(job, plan, reader=reader, started_at=started_at)
    run_id = _claim(output, record)
    write_asked(output, plan.asked.hashed, run_id=run_id)
    fields = {"run_id": run_id, "asked": plan.num_readings, "output": shown(job.output)}
    log.info(
        f"run {run_id}: {quantity(plan.num_readings, 'reading')} asked",
        extra={"event": EventKind.RUN_STARTED, **fields},
    )
    projection = make_projection(output, job, run_id=run_id, reader=reader, plan=plan)
    return Run(
        run_id=run_id,
        output=output,
        job=job,
        reader=reader,
        asked=plan.num_readings,
        started_at=started_at,
        began_seconds=time.monotonic(),
        projection=projection,
        sources=plan.pinned(job),
        tables=record.tables,
        sample=record.sample,
        again=record.again,
    )


def _run_record(job: JobConfig, plan: Plan, *, reader: ReaderIdentity, started_at: datetime) -> RunRecord:
    """What `run.json` will say, without the run's id."""
    return RunRecord(
        run_id="",
        started_at=started_at.isoformat(),
        documents=asked_documents(job),
        questions=asked_questions(job),
        asked=plan.num_readings,
        reader_fingerprint=reader.fingerprint,
        settings=public_settings(job),
        closing_turns=plan.asked.closing_turns,
        tables={} if plan.table is None else {**plan.table.versions},
        sample=_sample(job, plan),
        again=plan.again.record if plan.again else None,
    )


def _sample(job: JobConfig, plan: Plan) -> Sample | None:
    if job.limit is None or plan.outside is None:
        return None
    taken = plan.documents.num_rows
    return {"limit": job.limit, "seed": job.limit_seed, "taken": taken, "documents": taken + plan.outside.num_rows}


def _claim(output: Location, record: RunRecord) -> str:
    """Writes `run.json` under an id that sorts behind the run that it replaces and all that wrote to the log.

    `ma.read` writes to a log without `run.json`, maybe on a machine whose clock runs ahead.
    """
    place, logged = output / RUN_FILE, last_run_id(output)
    for _ in range(CLAIM_TRIES):
        with storage_errors(place.uri):
            version, before = place.version(), read_json(place)
        last = max(before["run_id"], logged) if before else logged
        record = replace(record, run_id=new_run_id(after=last))
        if write_run_record(output, record, version=version):
            return record.run_id
    raise StorageError(f"{place.uri} changes whenever it is looked at; see how many attempts are started")
