"""Begins and closes a run: `run.json` at the start, its manifest and its place in history when the counts close."""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from memagent_batch.config import JobConfig
from memagent_batch.domain.readings import Status
from memagent_batch.domain.reasons import Reason, most_frequent, sum_up
from memagent_batch.errors import CountsError, StorageError
from memagent_batch.files.errors import storage_errors
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.log.index import last_run_id
from memagent_batch.log.question_list import read_asked, write_asked
from memagent_batch.log.writer import new_run_id
from memagent_batch.logs import EventKind
from memagent_batch.masking import shown
from memagent_batch.reading.escalation import Escalation
from memagent_batch.runs.changes import Changes, find_changes, removed_documents
from memagent_batch.runs.claim import ANSWER_TABLES, publish, removed_on_failure, require_claim
from memagent_batch.runs.history import PastRun, write_plan, write_record_manifest
from memagent_batch.runs.manifest import (
    FORMAT,
    RUN_FILE,
    Manifest,
    RunCounts,
    RunRecord,
    SecondLook,
    asked_documents,
    asked_questions,
    package_versions,
    public_settings,
    write_run_record,
)
from memagent_batch.runs.plan import Plan
from memagent_batch.runs.results import result_questions
from memagent_batch.runs.schemas import PartReport, ReasonRow, reason_rows, rows_of_files
from memagent_batch.runs.tables import (
    ANSWERS_FOLDER,
    EVIDENCE_FOLDER,
    MEMORIES_FOLDER,
    REMOVED_FOLDER,
    RESULTS_FOLDER,
    Projection,
    count_rows,
    table_bytes,
)
from memagent_batch.wiring import ReaderIdentity, make_documents, make_prompt_set, make_prompt_tokens

log = logging.getLogger(__name__)

SHOWN_MISSING = 20
"""Missing readings that an error names."""
SHOWN_REASONS = 3
"""Reasons of failed readings, and of those that were not read, that the manifest and the last lines name."""

COUNT_THREADS = 16
"""Footers of table files read at once."""

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
    escalation: Escalation | None = None
    """What reads doubtful readings again."""


def begin_run(
    output: Location,
    job: JobConfig,
    *,
    reader: ReaderIdentity,
    plan: Plan,
    escalation: Escalation | None = None,
    second: Plan | None = None,
) -> Run:
    """Writes `run.json`: from here on the location belongs to this job, and in it to this run.

    `escalation` and `second` are the second reader and its plan, where there is one.
    """
    started_at = datetime.now(UTC)
    record = RunRecord(
        run_id="",
        started_at=started_at.isoformat(),
        documents=asked_documents(job),
        questions=asked_questions(job),
        asked=plan.num_readings,
        reader_fingerprint=reader.fingerprint,
        settings=public_settings(job),
        closing_turns=plan.closing_turns,
        second_reader_fingerprint=escalation.reader.fingerprint if escalation else None,
    )
    run_id = _claim(output, record)
    write_asked(output, plan.hashed_questions(), run_id=run_id)
    fields = {"run_id": run_id, "asked": plan.num_readings, "output": shown(job.output)}
    log.info(f"run {run_id}: {plan.num_readings} readings asked", extra={"event": EventKind.RUN_STARTED, **fields})
    projection = _projection(output, job, run_id=run_id, reader=reader, plan=plan)
    if escalation is not None and second is not None:
        again = job.with_agent(escalation.agent)
        projection = replace(
            projection,
            doubts=escalation.doubts,
            second=_projection(output, again, run_id=run_id, reader=escalation.reader, plan=second),
            second_closings=second.closings_of(plan),
        )
    return Run(
        run_id=run_id,
        output=output,
        job=job,
        reader=reader,
        asked=plan.num_readings,
        started_at=started_at,
        began_seconds=time.monotonic(),
        projection=projection,
        escalation=escalation,
    )


def _projection(output: Location, job: JobConfig, *, run_id: str, reader: ReaderIdentity, plan: Plan) -> Projection:
    """How rows are made of what one reader logged."""
    prompts = make_prompt_set(job.agent)
    return Projection(
        output=output,
        run_id=run_id,
        reader_fingerprint=reader.fingerprint,
        model=job.agent.model,
        first_memory=prompts.first_memory,
        keep_word=prompts.keep_word,
        extraction=job.agent.extraction,
        table_format=job.table_format,
        opens_thought=make_prompt_tokens(job.agent).opens_thought,
        closings=plan.turns_of_closings(),
        has_evidence=plan.closing is not None and plan.closing.turns.plan.evidence,
        results=result_questions(plan.questions) if plan.closing is not None else {},
        documents=make_documents(job)[0],
        input=job.input,
    )


def _claim(output: Location, record: RunRecord) -> str:
    """Writes `run.json` under an id that sorts behind the run that it replaces, or the log that it takes over."""
    place = output / RUN_FILE
    for _ in range(CLAIM_TRIES):
        with storage_errors(place.uri):
            version, before = place.version(), read_json(place)
            last = before["run_id"] if before else last_run_id(output)
        record = replace(record, run_id=new_run_id(after=last))
        if write_run_record(output, record, version=version):
            return record.run_id
    raise StorageError(f"{place.uri} changes whenever it is looked at; see how many attempts are started")


def close_run(run: Run, *, reports: Sequence[PartReport], recorded: pa.Table, before: PastRun | None) -> Manifest:
    """Checks that the counts close, and writes what is left: `removed`, the record of the run, and the manifest.

    Args:
        run: The run, whose answers and memories are written.
        reports: What the parts of the tables reported.
        recorded: The plan as the run's record keeps it (`history.recorded_plan`).
        before: The last finished run, if there was one.

    Raises:
        CountsError: the files do not hold one row for each reading asked for; names the missing ones.
        SupersededError: a newer attempt holds the claim; no manifest was written.
    """
    questions = read_asked(run.output, run_id=run.run_id)
    removed = removed_documents(recorded, run_id=run.run_id, before=before)
    with removed_on_failure(run.output, tables=ANSWER_TABLES, run_id=run.run_id):
        counts = _require_closed(run, reports)
        removed_file = _kept_removed(run, removed, before=before) or _write_removed(run, removed)
    manifest = _manifest(
        run,
        reports,
        counts=counts,
        removed_file=removed_file,
        changes=find_changes(recorded, questions, before=before),
    )
    past = PastRun(
        output=run.output, run_id=run.run_id, manifest=manifest, plan=recorded, questions=questions, removed=removed
    )
    write_plan(past)
    publish(run.output, manifest, tables=ANSWER_TABLES, run_id=run.run_id)
    write_record_manifest(past)
    fields = {"run_id": run.run_id, **counts, "seconds": manifest["seconds"]}
    line = _closing_line(run.run_id, counts, manifest["reasons"])
    log.info(line, extra={"event": EventKind.RUN_CLOSED, **fields})
    return manifest


def _require_closed(run: Run, reports: Sequence[PartReport]) -> RunCounts:
    """The counts, if they close."""
    expected = _expected_rows(reports)
    rows = _rows_of_files(run, list(expected))
    counts = _counts(run, reports, rows=rows)
    missing = [reading for report in reports for reading in report.get("missing", ())]
    ended = counts["ok"] + counts["failed"] + counts["not_read"]
    if missing or rows != expected or not counts["asked"] == ended == counts["answers_rows"]:
        require_claim(run.output, run_id=run.run_id)  # else a newer attempt may have removed this one's files
        shown = "; ".join(missing[:SHOWN_MISSING])
        wrong = [name for name in expected if rows[name] != expected[name]]
        files = f" {len(wrong)} table files are gone or changed: {'; '.join(wrong[:SHOWN_MISSING])}." if wrong else ""
        raise CountsError(
            f"the counts do not close: {counts}. {len(missing)} readings have no outcome in the log: {shown}.{files} "
            "Run the same command again to read them"
        )
    return counts


def _manifest(
    run: Run, reports: Sequence[PartReport], *, counts: RunCounts, removed_file: str, changes: Changes
) -> Manifest:
    manifest: Manifest = {
        "format": FORMAT,
        "run_id": run.run_id,
        "counts": counts,
        "reasons": {
            Status.FAILED.value: _run_reasons(report["failed_reasons"] for report in reports),
            Status.NOT_READ.value: _run_reasons(report["not_read_reasons"] for report in reports),
        },
        "totals": {
            "num_document_tokens": sum(report["num_document_tokens"] for report in reports),
            "num_turns": sum(report["num_turns"] for report in reports),
            "num_prompt_tokens": sum(report["num_prompt_tokens"] for report in reports),
            "num_cached_prompt_tokens": sum(report["num_cached_prompt_tokens"] for report in reports),
            "num_completion_tokens": sum(report["num_completion_tokens"] for report in reports),
        },
        "reader_fingerprint": run.reader.fingerprint,
        "reader": run.reader.parts,
        "settings": public_settings(run.job),
        "versions": package_versions(),
        "started_at": run.started_at.isoformat(),
        "finished_at": datetime.now(UTC).isoformat(),
        "seconds": round(time.monotonic() - run.began_seconds, 3),
        "files": {
            ANSWERS_FOLDER: [report["answers_file"] for report in reports],
            MEMORIES_FOLDER: [report["memories_file"] for report in reports],
            REMOVED_FOLDER: [removed_file],
            **_closing_files(reports),
        },
        "changes": asdict(changes),
        "parts": [_recorded_part(report) for report in reports],
    }
    if run.escalation is not None:
        manifest["second_look"] = _second_look(run.escalation, reports, asked=run.asked)
    return manifest


def _second_look(escalation: Escalation, reports: Sequence[PartReport], *, asked: int) -> SecondLook:
    """How many readings were doubtful, why, and what became of them."""
    because: Counter[str] = Counter()
    answered = not_read = 0
    for report in reports:
        because.update({row["because"]: row["num_readings"] for row in report["escalated"]})
        answered += sum(row["num_answered"] for row in report["escalated"])
        not_read += report["num_second_not_read"]
    num = because.total()
    return {
        "reader_fingerprint": escalation.reader.fingerprint,
        "reader": escalation.reader.parts,
        "extraction": escalation.agent.extraction.value,
        "counts": {
            "escalated": num,
            "answered": answered,
            "failed": num - answered - not_read,
            "not_read": not_read,
        },
        "share": round(num / asked, 6) if asked else 0.0,
        "because": dict(sorted(because.items())),
    }


def _closing_files(reports: Sequence[PartReport]) -> dict[str, list[str]]:
    """Files of the tables that only runs with closing turns have."""
    files = {
        EVIDENCE_FOLDER: [report["evidence_file"] for report in reports if report["evidence_file"]],
        RESULTS_FOLDER: [report["results_file"] for report in reports if report["results_file"]],
    }
    return {folder: names for folder, names in files.items() if names}


def _recorded_part(report: PartReport) -> PartReport:
    part = report.copy()
    part.pop("missing", None)
    return part


def _run_reasons(rows_of_parts: Iterable[list[ReasonRow]]) -> list[ReasonRow]:
    """The most frequent reasons of one status."""
    reasons = (Reason(**row) for rows in rows_of_parts for row in rows)
    return reason_rows(most_frequent(reasons, limit=SHOWN_REASONS))


def _closing_line(run_id: str, counts: RunCounts, reasons: Mapping[str, list[ReasonRow]]) -> str:
    """The counts, and behind them why readings have no answer."""
    parts = [f"{counts['ok']} ok"]
    for status, name, count in (
        (Status.FAILED, "failed", counts["failed"]),
        (Status.NOT_READ, "not read", counts["not_read"]),
    ):
        why = sum_up(Reason(**reason) for reason in reasons[status.value])
        if why or status == Status.FAILED:
            parts.append(f"{count} {name}" + (f" ({why})" if why else ""))
    return f"run {run_id} closed: {', '.join(parts)}"


def _kept_removed(run: Run, removed: pa.Table, *, before: PastRun | None) -> str | None:
    """The file of the last run, where it is there and would hold the same rows."""
    if before is None or not before.removed.equals(removed):
        return None
    names = before.manifest["files"].get(REMOVED_FOLDER, [])
    if len(names) != 1 or not names[0].endswith(f".{run.job.table_format.value}"):
        return None
    return names[0] if _rows_of_files(run, names) == {names[0]: removed.num_rows} else None


def _write_removed(run: Run, removed: pa.Table) -> str:
    """Writes the table of removed documents; returns the name of its file, which no other run's has."""
    name = f"{REMOVED_FOLDER}/part-00000-{run.run_id}.{run.job.table_format.value}"
    (run.output / name).write_bytes(table_bytes(removed, table_format=run.job.table_format))
    return name


def _counts(run: Run, reports: Sequence[PartReport], *, rows: Mapping[str, int | None]) -> RunCounts:
    """Readings asked, ok, failed and not read, beside the rows that the files themselves hold."""
    ok = sum(report["num_ok"] for report in reports)
    not_read = sum(report["num_not_read"] for report in reports)
    return {
        "asked": run.asked,
        "ok": ok,
        "failed": sum(report["num_answers"] for report in reports) - ok - not_read,
        "not_read": not_read,
        "answers_rows": sum(rows[report["answers_file"]] or 0 for report in reports),
        "memories_rows": sum(rows[report["memories_file"]] or 0 for report in reports),
    }


def _expected_rows(reports: Sequence[PartReport]) -> dict[str, int | None]:
    """Rows of each file, as its task reported them."""
    rows: dict[str, int | None] = {}
    for report in reports:
        rows |= rows_of_files(report)
    return rows


def _rows_of_files(run: Run, files: Sequence[str]) -> dict[str, int | None]:
    """Rows of files by their own footers; None where a file is gone."""
    with storage_errors(run.output.uri), ThreadPoolExecutor(COUNT_THREADS) as threads:
        counts = threads.map(lambda name: count_rows(run.output / name), files)
        return dict(zip(files, counts, strict=True))
