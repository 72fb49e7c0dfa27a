"""Begins a run, by `run.json`; closes it when its counts close, by its record and manifest."""

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, cast

import pyarrow as pa

from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.domain.readings import Status
from memagent_batch.domain.reasons import Reason, most_frequent, sum_up
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.errors import CountsError
from memagent_batch.logs import EventKind
from memagent_batch.masking import mask_url
from memagent_batch.runs.claim import (
    ANSWER_TABLES,
    asked_documents,
    asked_questions,
    named_files,
    publish,
    removed_on_failure,
    require_claim,
)
from memagent_batch.runs.history import (
    REMOVED_FILE,
    RUNS_FOLDER,
    Changes,
    PastRun,
    find_changes,
    removed_documents,
    write_plan,
    write_record_manifest,
)
from memagent_batch.runs.manifest import (
    FOLLOW_UP_FAILED,
    FORMAT,
    PART_TABLES,
    RUN_FILE,
    AnswerSums,
    Manifest,
    PartReport,
    ReasonRow,
    ReplacedFiles,
    RunCounts,
    RunRecord,
    Sample,
    Spent,
    UnreadCounts,
    package_versions,
    public_settings,
    reason_rows,
    rows_of_files,
    unread_line,
)
from memagent_batch.runs.plan import Plan
from memagent_batch.runs.projection import Projection, make_projection
from memagent_batch.runs.tables import REMOVED, count_rows
from memagent_batch.store.claims import claim_folder
from memagent_batch.store.errors import storage_errors
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import last_run_id
from memagent_batch.store.turn_log.question_list import read_asked, write_asked
from memagent_batch.wiring import ReaderIdentity

log = logging.getLogger(__name__)

SHOWN_MISSING = 20
SHOWN_REASONS = 3
"""Reasons of failed readings, and of those that were not read, that the manifest and the last lines name."""
COUNT_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRun:
    """One execution over a plan."""

    record: RunRecord
    output: Location
    job: JobConfig
    reader: ReaderIdentity
    began_seconds: float
    """When it began on the monotonic clock, which corrections of the wall clock don't move; seconds."""
    projection: Projection
    sources: SourceConfig
    """The documents at the versions that were indexed."""

    @property
    def run_id(self) -> str:
        """Names the run."""
        return self.record.run_id

    def bound_met(self, spent: Spent) -> str | None:
        """The setting of the first bound that the run has met; None while its turns may start."""
        hours = (time.monotonic() - self.began_seconds) / 3600
        taken = {"max_tokens": _num_tokens(spent), "max_hours": hours}
        bounds = ((name, getattr(self.job, name)) for name in taken)
        return next((name for name, most in bounds if most is not None and taken[name] >= most), None)

    def stopping_line(self, bound: str, spent: Spent) -> str:
        """Says which bound the run has met, and what it had taken when its last turn ended."""
        return (
            f"the run has met its bound {bound} {getattr(self.job, bound):,} after {spent['num_turns']:,} turns of "
            f"{_num_tokens(spent):,} tokens, those that were in flight included; the tables stay as they are, and the "
            "same command goes on"
        )


def _num_tokens(spent: Spent) -> int:
    return spent["num_prompt_tokens"] + spent["num_completion_tokens"]


def begin_run(output: Location, job: JobConfig, *, reader: ReaderIdentity, plan: Plan) -> ActiveRun:
    """Writes `run.json`: from here on the location belongs to this job, and in it to this run."""
    record = RunRecord(
        run_id="",
        started_at=datetime.now(UTC).isoformat(),
        documents=asked_documents(job),
        questions=asked_questions(job),
        asked=plan.num_readings,
        fingerprint=reader.fingerprint,
        settings=public_settings(job),
        tables={} if plan.indexed is None else {**plan.indexed.versions},
        sample=_sample(job, plan),
        again=plan.again.record if plan.again else None,
    )
    logged = last_run_id(output)  # `ma.read` writes to a log without `run.json`, maybe by a clock that runs ahead
    run_id = claim_folder(output / RUN_FILE, asdict(record), after=logged)
    write_asked(output, plan.asked.hashed, run_id=run_id)
    fields = {"run_id": run_id, "asked": record.asked, "output": mask_url(job.output)}
    log.info(
        f"run {run_id}: {quantity(record.asked, 'reading')} asked", extra={"event": EventKind.RUN_STARTED, **fields}
    )
    return ActiveRun(
        record=replace(record, run_id=run_id),
        output=output,
        job=job,
        reader=reader,
        began_seconds=time.monotonic(),
        projection=make_projection(output, job, run_id=run_id, reader=reader, plan=plan),
        sources=plan.pinned(job),
    )


def _sample(job: JobConfig, plan: Plan) -> Sample | None:
    if job.limit is None or plan.outside is None:
        return None
    taken = plan.documents.num_rows
    return {"limit": job.limit, "seed": job.limit_seed, "taken": taken, "documents": taken + plan.outside.num_rows}


def close_run(
    run: ActiveRun,
    *,
    reports: Sequence[PartReport],
    recorded: pa.Table,
    before: PastRun | None,
    spent: Spent | None = None,
    turns: pa.Table | None = None,
    replicas_given_up: int = 0,
) -> Manifest:
    """Checks that the counts close, and writes what is left: the record of the run and the manifest.

    Raises:
        CountsError: the files do not hold one row for each reading asked for; names the missing ones.
        SupersededError: a newer attempt holds the claim; no manifest was written.
    """
    questions = read_asked(run.output, run_id=run.run_id)
    removed = removed_documents(recorded, run_id=run.run_id, before=before)
    with removed_on_failure(run.output, tables=ANSWER_TABLES, run_id=run.run_id):
        counts = _require_closed(run, reports)
    manifest = _manifest(
        run,
        reports,
        counts=counts,
        changes=find_changes(recorded, questions, before=before, tables=run.record.tables, turns=turns),
        spent=spent,
    )
    if replicas_given_up:
        manifest["replicas_given_up"] = replicas_given_up
    manifest["replaced"] = _replaced_files(manifest, before, nights=run.job.record.keep_nights)
    past = PastRun(
        output=run.output, run_id=run.run_id, manifest=manifest, plan=recorded, questions=questions, removed=removed
    )
    write_plan(past)
    publish(run.output, manifest, tables=ANSWER_TABLES, run_id=run.run_id)
    write_record_manifest(past)
    _log_closed(manifest)
    return manifest


def _require_closed(run: ActiveRun, reports: Sequence[PartReport]) -> RunCounts:
    expected: dict[str, int | None] = {}
    for report in reports:
        expected |= rows_of_files(report)
    written = [name for name in expected if run.run_id in name]
    with storage_errors(run.output.uri), ThreadPoolExecutor(COUNT_THREADS) as threads:
        counted = dict(zip(written, threads.map(lambda name: count_rows(run.output / name), written), strict=True))
    rows = {**expected, **counted}  # those that are kept were looked at when they were taken over
    counts = _counts(run, reports, rows=rows)
    missing = [reading for report in reports for reading in report.get("missing", ())]
    ended = counts["ok"] + counts["failed"] + counts["not_read"]
    if missing or rows != expected or not counts["asked"] == ended == counts["answers_rows"]:
        require_claim(run.output, run_id=run.run_id)  # else a newer attempt may have removed this one's files
        named = "; ".join(missing[:SHOWN_MISSING])
        wrong = [name for name in expected if rows[name] != expected[name]]
        files = f" {len(wrong)} table files are gone or changed: {'; '.join(wrong[:SHOWN_MISSING])}." if wrong else ""
        raise CountsError(
            f"the counts do not close: {counts}. {len(missing)} readings have no outcome in the log: {named}.{files} "
            "Run the same command again to read them"
        )
    return counts


def _manifest(
    run: ActiveRun, reports: Sequence[PartReport], *, counts: RunCounts, changes: Changes, spent: Spent | None
) -> Manifest:
    return {
        "format": FORMAT,
        "run_id": run.run_id,
        "counts": counts,
        "reasons": {
            Status.FAILED.value: _run_reasons(reports, "failed_reasons"),
            Status.NOT_READ.value: _run_reasons(reports, "not_read_reasons"),
            FOLLOW_UP_FAILED: _run_reasons(reports, "follow_up_reasons"),
        },
        "num_follow_ups_failed": sum(report["num_follow_ups_failed"] for report in reports),
        "unread": cast("UnreadCounts", _sums(reports, UnreadCounts)),
        "totals": cast("AnswerSums", _sums(reports, AnswerSums)),
        "fingerprint": run.reader.fingerprint,
        "reader": run.reader.parts,
        "settings": public_settings(run.job),
        "versions": package_versions(),
        "started_at": run.record.started_at,
        "finished_at": datetime.now(UTC).isoformat(),
        "seconds": round(time.monotonic() - run.began_seconds, 3),
        "files": {
            **_part_files(reports),
            REMOVED: [f"{RUNS_FOLDER}/{run.run_id}/{REMOVED_FILE}"],
        },
        "replaced": [],
        "changes": changes,
        "tables": {**run.record.tables},
        "parts": [
            cast("PartReport", {name: value for name, value in report.items() if name != "missing"})
            for report in reports
        ],
        "spent": spent,
        "sample": run.record.sample,
        "again": run.record.again,
    }


def _sums(reports: Sequence[PartReport], columns: type) -> dict[str, int]:
    rows = cast("Sequence[Mapping[str, int]]", reports)
    return {name: sum(report[name] for report in rows) for name in columns.__annotations__}


def _replaced_files(manifest: Manifest, before: PastRun | None, *, nights: int) -> list[ReplacedFiles]:
    """Table files of the last runs that stay beside those of this one."""
    if before is None:
        return []
    stay, earlier = {*named_files(manifest), *before.manifest["files"][REMOVED]}, before.manifest.get("replaced", [])
    last: ReplacedFiles = {
        "run_id": before.run_id,
        "files": [name for name in named_files(before.manifest) if name not in stay],
    }
    return [last, *earlier][:nights]


def _part_files(reports: Sequence[PartReport]) -> dict[str, list[str]]:
    """Files by table; only runs with follow-up questions have `evidence` and `results`."""
    parts = cast("Sequence[Mapping[str, Any]]", reports)
    files = {table: [part[f"{table}_file"] for part in parts if part[f"{table}_file"]] for table in PART_TABLES}
    return {"answers": [], "memories": []} | {table: names for table, names in files.items() if names}


def _run_reasons(
    reports: Sequence[PartReport], column: Literal["failed_reasons", "not_read_reasons", "follow_up_reasons"]
) -> list[ReasonRow]:
    reasons = (Reason(**row) for report in reports for row in report[column])
    return reason_rows(most_frequent(reasons, limit=SHOWN_REASONS))


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


def _counts(run: ActiveRun, reports: Sequence[PartReport], *, rows: Mapping[str, int | None]) -> RunCounts:
    """Readings asked, ok, failed and not read, beside the rows that the files themselves hold."""
    ok = sum(report["num_ok"] for report in reports)
    not_read = sum(report["num_not_read"] for report in reports)
    return {
        "asked": run.record.asked,
        "ok": ok,
        "failed": sum(report["num_answers"] for report in reports) - ok - not_read,
        "not_read": not_read,
        "answers_rows": sum(rows[report["answers_file"]] or 0 for report in reports),
        "memories_rows": sum(rows[report["memories_file"]] or 0 for report in reports),
    }
