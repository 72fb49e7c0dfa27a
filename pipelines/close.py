"""Begins and closes a run: `run.json` at the start, its manifest and its place in history when the counts close."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pyarrow as pa

from memagent_batch.errors import CountsError
from memagent_batch.events import Event, EventKind, tell
from memagent_batch.masking import shown
from memagent_batch.ray_data.write import SUMS
from memagent_batch.settings import Settings
from memagent_batch.storage.asked import read_asked, write_asked
from memagent_batch.storage.changes import find_changes, removed_documents
from memagent_batch.storage.claim import publish_manifest, require_claim
from memagent_batch.storage.history import PastRun, write_plan, write_record_manifest
from memagent_batch.storage.location import Location, storage_errors
from memagent_batch.storage.manifest import (
    FORMAT,
    RUN_FILE,
    RunRecord,
    asked_questions,
    canonical,
    package_versions,
    public_settings,
    read_json,
    write_run_record,
)
from memagent_batch.storage.plan import Plan
from memagent_batch.storage.tables import (
    ANSWERS_FOLDER,
    MEMORIES_FOLDER,
    REMOVED_FOLDER,
    Projection,
    count_rows,
    table_bytes,
)
from memagent_batch.storage.turn_index import TurnIndex
from memagent_batch.storage.turn_log import new_run_id
from memagent_batch.wiring import ReaderIdentity, make_prompt_set

SHOWN_MISSING = 20
"""Missing readings that an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution over a plan."""

    run_id: str
    """Its id."""
    output: Location
    """Where it writes."""
    settings: Settings
    """All knobs."""
    reader: ReaderIdentity
    """The reader."""
    asked: int
    """Readings asked for."""
    started_at: datetime
    """When it began, UTC."""
    began_seconds: float
    """The same on the monotonic clock of this process, which no correction of the wall clock moves."""
    projection: Projection
    """How rows are made of the log."""

    def parts(self, plan: Plan, index: TurnIndex) -> list[pa.Table]:
        """The plan in numbered parts, one for each file of the tables."""
        return [
            part.append_column("part", pa.array([number] * part.num_rows, pa.int64()))
            for number, part in enumerate(plan.parts(index))
        ]


def begin_run(output: Location, settings: Settings, *, reader: ReaderIdentity, plan: Plan) -> Run:
    """Writes `run.json`: from here on the location belongs to this job, and in it to this run."""
    with storage_errors(output.uri):
        before = read_json(output / RUN_FILE)
    run_id, started_at = new_run_id(after=before["run_id"] if before else ""), datetime.now(UTC)
    record = RunRecord(
        run_id=run_id,
        started_at=started_at.isoformat(),
        documents=canonical(settings.documents, settings),
        questions=asked_questions(settings),
        asked=plan.num_readings,
        reader_fingerprint=reader.fingerprint,
        settings=public_settings(settings),
    )
    write_run_record(output, record)
    write_asked(output, plan.hashed_questions(), run_id=run_id)
    fields = {"run_id": run_id, "asked": plan.num_readings, "output": shown(settings.output)}
    tell(Event(kind=EventKind.RUN_STARTED, message=f"run {run_id}: {plan.num_readings} readings asked", fields=fields))
    prompts = make_prompt_set(settings)
    projection = Projection(
        output=output,
        run_id=run_id,
        reader_fingerprint=reader.fingerprint,
        model=settings.model,
        first_memory=prompts.first_memory,
        keep_word=prompts.keep_word,
        extraction=settings.extraction,
        table_format=settings.table_format,
    )
    return Run(
        run_id=run_id,
        output=output,
        settings=settings,
        reader=reader,
        asked=plan.num_readings,
        started_at=started_at,
        began_seconds=time.monotonic(),
        projection=projection,
    )


def close_run(
    run: Run, *, reports: Sequence[dict[str, Any]], recorded: pa.Table, before: PastRun | None
) -> dict[str, Any]:
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
    counts = _require_closed(run, reports)
    questions = read_asked(run.output, run_id=run.run_id)
    removed = removed_documents(recorded, run_id=run.run_id, before=before)
    removed_file = _write_removed(run, removed)
    files = {**_files(reports), REMOVED_FOLDER: [removed_file]}
    manifest = {
        **_manifest(run, reports, counts=counts),
        "files": files,
        "changes": asdict(find_changes(recorded, questions, before=before)),
    }
    past = PastRun(
        output=run.output, run_id=run.run_id, manifest=manifest, plan=recorded, questions=questions, removed=removed
    )
    write_plan(past)
    publish_manifest(run.output, manifest, run_id=run.run_id, files=list(chain.from_iterable(files.values())))
    write_record_manifest(past)
    message = f"run {run.run_id} closed: {counts['ok']} ok, {counts['failed']} failed"
    fields = {"run_id": run.run_id, **counts, "seconds": manifest["seconds"]}
    tell(Event(kind=EventKind.RUN_CLOSED, message=message, fields=fields))
    return manifest


def _require_closed(run: Run, reports: Sequence[dict[str, Any]]) -> dict[str, int]:
    """The counts, if they close."""
    counts = _counts(run, reports)
    missing = [reading for report in reports for reading in report["missing"]]
    if missing or counts["asked"] != counts["ok"] + counts["failed"] or counts["asked"] != counts["answers_rows"]:
        require_claim(run.output, run_id=run.run_id)  # else a newer attempt may have removed this one's files
        shown = "; ".join(missing[:SHOWN_MISSING])
        raise CountsError(
            f"the counts do not close: {counts}. {len(missing)} readings have no outcome in the log: {shown}. "
            "Run the same command again to read them"
        )
    return counts


def _manifest(run: Run, reports: Sequence[dict[str, Any]], *, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "run_id": run.run_id,
        "counts": counts,
        "totals": {name: sum(report[name] for report in reports) for name in SUMS},
        "reader_fingerprint": run.reader.fingerprint,
        "reader": run.reader.parts,
        "settings": public_settings(run.settings),
        "versions": package_versions(),
        "started_at": run.started_at.isoformat(),
        "finished_at": datetime.now(UTC).isoformat(),
        "seconds": round(time.monotonic() - run.began_seconds, 3),
    }


def _files(reports: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    return {name: [report[f"{name}_file"] for report in reports] for name in (ANSWERS_FOLDER, MEMORIES_FOLDER)}


def _write_removed(run: Run, removed: pa.Table) -> str:
    """Writes the table of removed documents; returns the name of its file, which no other run's has."""
    name = f"{REMOVED_FOLDER}/part-00000-{run.run_id}.{run.settings.table_format.value}"
    (run.output / name).write_bytes(table_bytes(removed, table_format=run.settings.table_format))
    return name


def _counts(run: Run, reports: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Readings asked, ok and failed, beside the rows that the files themselves hold."""
    ok = sum(report["num_ok"] for report in reports)
    return {
        "asked": run.asked,
        "ok": ok,
        "failed": sum(report["num_answers"] for report in reports) - ok,
        "answers_rows": _rows(run, [report["answers_file"] for report in reports]),
        "memories_rows": _rows(run, [report["memories_file"] for report in reports]),
    }


def _rows(run: Run, files: Sequence[str]) -> int:
    """Rows of the run's own files: what an older attempt left among them is removed with the manifest's writing."""
    with storage_errors(run.output.uri):
        return count_rows(run.output, [(run.output / file).path for file in files])
