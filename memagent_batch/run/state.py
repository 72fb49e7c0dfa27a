"""The state of a run by its location alone: no Ray, no server.

A run that stops before its end leaves a note, `log/notes/RUN_ID/stopped.json`. A killed run leaves none.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NotRequired, TypedDict, cast

from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.json_files import read_json, write_json
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError
from memagent_batch.masking import printable
from memagent_batch.run.history import has_pending_erasure, read_manifest, read_run_record
from memagent_batch.run.manifest import AgainRecord, Manifest, RunCounts, Sample, Spent

log = logging.getLogger(__name__)

NOTES_FOLDER = "log/notes"
"""Where a run notes how far it is, and why it stopped, in a folder by its id."""
STOPPED_FILE = "stopped.json"
PROGRESS_FILE = "progress.json"
WHY_CHARACTERS = 1000


class ProgressNote(TypedDict):
    """How far a run was at a moment, which it notes while it reads."""

    readings_done: int
    readings_failed: int
    """Of those that this run has read."""
    readings_asked: int
    share_read: float
    """Share of what is to be read that is read, 0 to 1."""
    turns: int
    """New turns, as `tokens`: those from the log are not counted."""
    tokens: int
    tokens_per_second: float
    expected_end_at: str | None
    """None before the first turns, and at the end."""
    last_turn_at: str | None
    at: str


class RunState(TypedDict):
    """What `memagent status` shows. Times are ISO 8601, UTC."""

    run_id: str
    state: str
    """`running or killed`, `stopped`, `incomplete` (closed; the same command reads what could not be read), or
    `finished`."""
    started_at: str
    finished_at: str | None
    stopped_at: str | None
    stopped_because: str | None
    documents: str | list[str]
    tables: Mapping[str, str]
    """Version of each table of a lake that it reads; `changes` has those of both runs."""
    questions: list[str]
    sample: Sample | None
    """The part of the documents that a run with a limit takes."""
    again: AgainRecord | None
    readings_asked: int
    progress: ProgressNote | None
    """The last note of a run that has not finished; None where it left none."""
    spent: Spent | None
    """What the turns of a finished run took; the totals of its manifest are what they had taken without the log."""
    cost: float | None
    """What that has cost, by the prices of the job; None without them."""
    counts: RunCounts | None
    """Counts of the manifest; None before it is written, as `changes`."""
    changes: Mapping[str, Any] | None
    documents_forgotten: NotRequired[int]
    """Of a `memagent forget`: the documents that it erases."""
    erasure_pending: NotRequired[bool]
    """Of a `memagent forget`: whether something of them may still be there."""
    shown_run: NotRequired[str]
    """Of a run that has not finished: the last finished one, whose answers are shown, and when it finished."""
    last_sign_of_life_at: NotRequired[str]
    """When a run that has neither finished nor stopped was last seen alive: one that was killed has no other sign."""
    last_sign_of_life_seconds_ago: NotRequired[int]


def read_state(output: Location) -> RunState:
    """What has been asked, done and failed, by what the run has noted: the log is not looked at.

    Raises:
        OutputError: there is no run.
    """
    with output_errors(output.uri):
        record = read_run_record(output)
    if record is None:
        raise OutputError(f"output: there is no run at {output} yet")
    manifest = shown = read_manifest(output)
    if manifest is not None and manifest["run_id"] != record["run_id"]:
        manifest = None
    note = None if manifest else read_json(output / f"{NOTES_FOLDER}/{record['run_id']}/{STOPPED_FILE}")
    progress = None if manifest else read_progress(output, run_id=record["run_id"])
    state: dict[str, Any] = {
        "run_id": record["run_id"],
        "state": _state(manifest, note),
        "started_at": record["started_at"],
        "finished_at": manifest["finished_at"] if manifest else None,
        "stopped_at": note["stopped_at"] if note else None,
        "stopped_because": note["why"] if note else None,
        "documents": record["documents"],
        "tables": record["tables"],
        "questions": record["questions"],
        "sample": record["sample"],
        "again": record["again"],
        "readings_asked": record["asked"],
        "progress": progress,
        "spent": manifest.get("spent") if manifest else None,
        "cost": manifest.get("cost") if manifest else None,
        "counts": manifest["counts"] if manifest else None,
        "changes": manifest["changes"] if manifest else None,
    }
    if record.get("forgotten") is not None:
        state |= {"documents_forgotten": record["forgotten"], "erasure_pending": has_pending_erasure(output)}
    if manifest is None and shown is not None:
        state["shown_run"] = f"{shown['run_id']}, finished at {minute_of(shown['finished_at'])}"
    if manifest is None and note is None:
        seen = datetime.fromisoformat(progress["at"] if progress else record["started_at"])
        state["last_sign_of_life_at"] = seen.isoformat()
        state["last_sign_of_life_seconds_ago"] = round((datetime.now(UTC) - seen).total_seconds())
    return cast("RunState", state)


def _state(manifest: Manifest | None, note: Mapping[str, Any] | None) -> str:
    if manifest is not None:
        return "incomplete" if manifest["counts"]["not_read"] else "finished"
    return "stopped" if note else "running or killed"


def later_run_words(output: Location, manifest: Manifest) -> str | None:
    """Says that a later run than that of a manifest has begun and not finished, when and why; None if none has."""
    record = read_run_record(output)
    if record is None or record["run_id"] <= manifest["run_id"]:
        return None
    note = read_json(output / f"{NOTES_FOLDER}/{record['run_id']}/{STOPPED_FILE}")
    end = f"it stopped at {minute_of(note['stopped_at'])}: {note['why']}" if note else "it is running, or was killed"
    return (
        f"a later run, begun at {minute_of(record['started_at'])}, has not finished ({end}); what is shown is of run "
        f"{manifest['run_id']}, finished at {minute_of(manifest['finished_at'])}"
    )


def warn_of_later_run(output: Location, manifest: Manifest) -> str | None:
    """Logs and returns `later_run_words`."""
    if words := later_run_words(output, manifest):
        log.warning(words)
    return words


def minute_of(moment: str | None) -> str:
    """Returns the minute of a time in ISO 8601, UTC."""
    return f"{(moment or '')[:16].replace('T', ' ')} UTC"


def write_stop_note(output: Location, *, run_id: str, why: str) -> None:
    """Notes that the run has stopped just now."""
    note = {
        "run_id": run_id,
        "stopped_at": datetime.now(UTC).isoformat(),
        "why": printable(why)[:WHY_CHARACTERS],
    }
    write_json(output / f"{NOTES_FOLDER}/{run_id}/{STOPPED_FILE}", note)


def write_progress(note: ProgressNote, *, output: Location, run_id: str) -> None:
    """Notes how far the run is."""
    write_json(output / f"{NOTES_FOLDER}/{run_id}/{PROGRESS_FILE}", note)


def read_progress(output: Location, *, run_id: str) -> ProgressNote | None:
    """The last note of how far a run is; None where it left none."""
    return cast("ProgressNote | None", read_json(output / f"{NOTES_FOLDER}/{run_id}/{PROGRESS_FILE}"))
