"""Begins a run, by its number in the table `runs`; closes it when its counts close, by one commit for each table."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from memagent_batch.config.job import JobConfig
from memagent_batch.data.documents.document_index import is_there
from memagent_batch.data.store.delta import RunNumber
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import last_run_id
from memagent_batch.data.store.turn_log.question_list import write_asked
from memagent_batch.errors import CountsError
from memagent_batch.logs import EventKind
from memagent_batch.loop.reasons import Reason, sum_up
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.masking import mask_url
from memagent_batch.run.claim import asked_questions, recorded_documents
from memagent_batch.run.commits import TableUpdate, commit_run, digest_of
from memagent_batch.run.document_texts import documents_record
from memagent_batch.run.history import PastRun, begin, finish, next_number, require_newest
from memagent_batch.run.manifest import (
    FORMAT,
    Manifest,
    RunRecord,
    Sample,
    Spent,
    package_versions,
    public_settings,
    unread_line,
)
from memagent_batch.run.plan import Plan
from memagent_batch.run.projection import Projection, make_projection
from memagent_batch.run.row_changes import RowChanges
from memagent_batch.run.sums import ReadingSums, changed_questions
from memagent_batch.run.tables import MEMORIES_TABLE
from memagent_batch.run.wiring import ReaderIdentity
from memagent_batch.types import Status

log = logging.getLogger(__name__)

SHOWN_MISSING = 20
NOTHING_SPENT: Spent = {
    "num_turns": 0,
    "num_prompt_tokens": 0,
    "num_cached_prompt_tokens": 0,
    "num_completion_tokens": 0,
}
WRITER = "memagent"
"""Name of the application transaction of runs; a slice adds its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRun:
    """One execution over a plan."""

    number: RunNumber
    record: RunRecord
    output: Location
    job: JobConfig
    reader: ReaderIdentity
    began_seconds: float
    """When it began on the monotonic clock, which corrections of the wall clock don't move; seconds."""
    projection: Projection

    @property
    def run_id(self) -> str:
        """Names the run."""
        return self.number.run_id

    def bound_met(self, spent: Spent) -> str | None:
        """The setting of the first bound that the run has met; None while its turns may start."""
        hours = (time.monotonic() - self.began_seconds) / 3600
        taken = {"max_tokens": _num_tokens(spent), "max_hours": hours, "max_cost": cost_of(spent, self.job) or 0.0}
        bounds = ((name, getattr(self.job, name)) for name in taken)
        return next((name for name, most in bounds if most is not None and taken[name] >= most), None)

    def stopping_line(self, bound: str, spent: Spent) -> str:
        """Says which bound the run has met, and what it had taken when its last turn ended."""
        turns, tokens = quantity(spent["num_turns"], "turn"), quantity(_num_tokens(spent), "token")
        return (
            f"the run has met its bound {bound} {getattr(self.job, bound):,} after {turns} of "
            f"{tokens}{_cost_text(spent, self.job)}, those that were in flight included; the "
            "tables stay as they are, and the same command goes on"
        )


def _num_tokens(spent: Spent) -> int:
    return spent["num_prompt_tokens"] + spent["num_completion_tokens"]


def cost_of(spent: Spent, job: JobConfig) -> float | None:
    """What tokens have cost by the prices of a job; None if it has none."""
    return job.cost(
        prompt_tokens=spent["num_prompt_tokens"],
        cached_tokens=spent["num_cached_prompt_tokens"],
        completion_tokens=spent["num_completion_tokens"],
    )


def _cost_text(spent: Spent, job: JobConfig) -> str:
    cost = cost_of(spent, job)
    return "" if cost is None else f" that cost {cost:,.2f}"


def begin_run(
    output: Location,
    job: JobConfig,
    *,
    reader: ReaderIdentity,
    plan: Plan,
    latest: RunNumber | None = None,
    endpoint: Mapping[str, JsonValue] | None = None,
) -> ActiveRun:
    """Takes the next run number of the output: an older run can't commit to its tables any more.

    `endpoint` is what the server says of itself through which it reads, if it does.

    Raises:
        SupersededError: another run has begun since `latest`.
        OutputError: the output can't be written.
        StorageError: other runs begin again and again.
    """
    record = replace(_make_record(output, job, reader=reader, plan=plan), endpoint=endpoint)
    logged = last_run_id(output)  # `ma.read` writes to a log without a run, maybe by a clock that runs ahead
    number = begin(
        output, lambda run_id: replace(record, run_id=run_id), writer=writer_of(job), after=logged, latest=latest
    )
    run = _active_run(output, job, number, record, reader=reader, plan=plan)
    _log_begun(run)
    return run


def quiet_run(
    output: Location, job: JobConfig, *, reader: ReaderIdentity, plan: Plan, latest: RunNumber | None = None
) -> ActiveRun:
    """A run that has nothing to read and nothing to write: its one commit is the one that closes it.

    Raises:
        SupersededError: another run has begun since `latest`.
    """
    record = _make_record(output, job, reader=reader, plan=plan)
    number = next_number(output, writer=writer_of(job), after=last_run_id(output))
    if latest is not None:
        require_newest(output, latest)
    return _active_run(output, job, number, record, reader=reader, plan=plan)


def writer_of(job: JobConfig) -> str:
    """Name of the application transaction of a job: drivers of different slices don't stop each other."""
    return WRITER if job.input.slice is None else f"{WRITER}/slice-{job.input.slice.replace('/', '-of-')}"


def _make_record(output: Location, job: JobConfig, *, reader: ReaderIdentity, plan: Plan) -> RunRecord:
    """The record of a run, without its id; writes the question list that it names."""
    with output_errors(output.uri):
        asked_id = write_asked(output, plan.asked.hashed)
    return RunRecord(
        run_id="",
        started_at=datetime.now(UTC).isoformat(),
        documents=recorded_documents(output, job),
        questions=asked_questions(job),
        asked=plan.num_readings,
        fingerprint=reader.fingerprint,
        settings=public_settings(job),
        tables={**plan.lake_versions},
        documents_table=documents_record(plan.stored, output=output),
        sample=_sample(job, plan),
        again=plan.again.record if plan.again else None,
        asked_id=asked_id,
    )


def _active_run(
    output: Location, job: JobConfig, number: RunNumber, record: RunRecord, *, reader: ReaderIdentity, plan: Plan
) -> ActiveRun:
    """The run with this number."""
    return ActiveRun(
        number=number,
        record=replace(record, run_id=number.run_id),
        output=output,
        job=job,
        reader=reader,
        began_seconds=time.monotonic(),
        projection=make_projection(output, job, run_id=number.run_id, reader=reader, plan=plan),
    )


def _log_begun(run: ActiveRun) -> None:
    fields = {"run_id": run.run_id, "asked": run.record.asked, "output": mask_url(run.job.output)}
    message = f"run {run.run_id}: {quantity(run.record.asked, 'reading')} asked"
    log.info(message, extra={"event": EventKind.RUN_STARTED, **fields})


def _sample(job: JobConfig, plan: Plan) -> Sample | None:
    if job.limit is None or plan.outside is None:
        return None
    taken, num_outside = plan.documents.num_rows, int(pc.sum(is_there(plan.outside), min_count=0).as_py())
    return {"limit": job.limit, "seed": job.limit_seed, "taken": taken, "documents": taken + num_outside}


def close_quiet_run(run: ActiveRun, *, before: PastRun, changes: RowChanges, questions: pa.Table) -> Manifest:
    """Closes a run in which no row changed, by one commit.

    Raises:
        SupersededError: a newer run has begun; nothing was changed.
    """
    last = before.manifest
    readings = last["changes"]["readings"]
    manifest = {
        **last,
        "run_id": run.run_id,
        **_run_fields(run),
        "changes": {
            "since": before.run_id,
            "documents": changes.documents,
            "questions": changed_questions(before.questions, questions),
            "readings": {**readings, "read": 0, "kept": readings["read"] + readings["kept"]},
            "turns": {"asked": 0, "reused": 0},
            "answers": 0,
            "tables": _lake_versions(run, before),
        },
        "digest_before": last["digest"],
        "digest": _digest_again(before),
        "spent": NOTHING_SPENT,
    }
    for name in ("replicas_given_up", "forgotten", "cost"):
        manifest.pop(name, None)
    closed = cast("Manifest", manifest)
    finish(run.output, run.number, run.record, closed, has_begun=False)
    _log_begun(run)  # only now: a run whose rows turn out to change is given up for one that begins
    _log_closed(closed)
    return closed


def close_run(
    run: ActiveRun,
    *,
    updates: Mapping[str, TableUpdate],
    changes: RowChanges,
    sums: ReadingSums,
    missing: Sequence[str],
    questions: pa.Table,
    before: PastRun | None,
    turns: Mapping[str, int],
    spent: Spent | None = None,
    replicas_given_up: int = 0,
) -> Manifest:
    """Checks that the counts close, commits the tables, and last the row of the run.

    Raises:
        CountsError: the files do not hold one row for each reading asked for; names the missing ones. Nothing was
            committed.
        FilesChangedError: another run has replaced files that this run replaces too. Nothing was committed.
        SupersededError: a newer run has begun.
    """
    _require_closed(run, sums, missing)
    manifest = {
        "format": FORMAT,
        "run_id": run.run_id,
        "counts": {
            **sums.counts,
            "asked": run.record.asked,
            "memories_rows": sum(file.num_rows for file in updates[MEMORIES_TABLE].files),
        },
        "reasons": sums.reasons,
        "num_follow_ups_failed": sums.num_follow_ups_failed,
        "unread": sums.unread,
        "totals": sums.totals,
        "changes": {
            "since": before.run_id if before else None,
            "documents": changes.documents,
            "questions": changed_questions(before.questions if before else None, questions),
            "readings": sums.readings,
            "turns": turns,
            "answers": sums.num_changed,
            "tables": _lake_versions(run, before),
        },
        "digest_before": before.manifest["digest"] if before else "",
        "spent": spent,
        **({} if spent is None or (cost := cost_of(spent, run.job)) is None else {"cost": cost}),
        **_run_fields(run),
        **({"replicas_given_up": replicas_given_up} if replicas_given_up else {}),
    }
    closed = commit_run(run.output, run.number, run.record, updates, manifest)
    _log_closed(closed)
    return closed


def _run_fields(run: ActiveRun) -> dict[str, Any]:
    """What a manifest says of the run itself, whatever it changed."""
    return {
        "fingerprint": run.reader.fingerprint,
        "reader": run.reader.parts,
        "settings": public_settings(run.job),
        "versions": package_versions(),
        "started_at": run.record.started_at,
        "finished_at": datetime.now(UTC).isoformat(),
        "seconds": round(time.monotonic() - run.began_seconds, 3),
        "tables": {**run.record.tables},
        "sample": run.record.sample,
        "again": run.record.again,
        "asked_id": run.record.asked_id,
        "documents_table": run.record.documents_table,
    }


def _digest_again(before: PastRun) -> str:
    """The digest of a run that leaves all tables as they were."""
    versions = before.manifest["table_versions"]
    files = {name: list(before.table(name).files(version)) for name, version in versions.items()}
    return digest_of(files, before=before.manifest["digest"])


def partition_columns(job: JobConfig, schema: pa.Schema) -> list[str]:
    """The columns by which a table is partitioned: those of `record.partition_by` that it has."""
    return [name for name in job.record.partition_by if name in schema.names]


def _lake_versions(run: ActiveRun, before: PastRun | None) -> dict[str, dict[str, str | None]]:
    earlier = before.manifest["tables"] if before else {}
    return {uri: {"before": earlier.get(uri), "now": now} for uri, now in run.record.tables.items()}


def _require_closed(run: ActiveRun, sums: ReadingSums, missing: Sequence[str]) -> None:
    counts = {"asked": run.record.asked, **sums.counts}
    ended = counts["ok"] + counts["failed"] + counts["not_read"]
    if missing or not counts["asked"] == ended == counts["answers_rows"] == sums.num_readings:
        named = "; ".join(missing[:SHOWN_MISSING])
        raise CountsError(
            f"the counts do not close: {counts}, {quantity(sums.num_readings, 'different reading')}. Without an "
            f"outcome in the log: {len(missing)} ({named}). Run the same command again to read them"
        )


def _log_closed(manifest: Manifest) -> None:
    run_id, counts = manifest["run_id"], manifest["counts"]
    parts = [f"{counts['ok']} ok"]
    for status, name, count in (
        (Status.FAILED, "failed", counts["failed"]),
        (Status.NOT_READ, "not read", counts["not_read"]),
    ):
        why = sum_up(Reason(**reason) for reason in manifest["reasons"][status.value])
        if why or status == Status.FAILED:
            parts.append(f"{count} {name}" + (f" ({why})" if why else ""))
    line = f"run {run_id} closed: {', '.join(parts)}"
    if unread := unread_line(manifest["unread"]):
        line += f"; {unread}"
    if cut := manifest["totals"]["memory_truncations"]:
        line += f"; {quantity(cut, 'turn')} wrote a memory that was cut at policy.memory_tokens"
    if counts["failed"] > manifest["unread"]["num_unread_failed"]:
        line += "; fix the cause and run it again with retry_failed, or failed readings stay as they are"
    if given_up := manifest.get("replicas_given_up", 0):
        line += f"; replicas given up since their engine could not start: {given_up}"
    fields = {"run_id": run_id, **counts, "seconds": manifest["seconds"], "replicas_given_up": given_up}
    log.info(line, extra={"event": EventKind.RUN_CLOSED, **fields})
