"""The state of a run by its location alone: no Ray, no server.

A run that stops before its end leaves a note, `runs/RUN_ID/stopped.json`. A killed run leaves none.
"""

from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.files.errors import output_errors
from memagent_batch.files.json_files import read_json, write_json
from memagent_batch.files.location import Location
from memagent_batch.log.index import scan_log, scan_turns
from memagent_batch.masking import printable
from memagent_batch.runs.history import RUNS_FOLDER
from memagent_batch.runs.manifest import MANIFEST_FILE, RUN_FILE

STOPPED_FILE = "stopped.json"
WHY_CHARACTERS = 1000
"""Longest reason that is kept."""


def read_state(output: Location) -> dict[str, Any]:
    """What has been asked, done and failed, and when the log grew last.

    Raises:
        OutputError: there is no run.
    """
    with output_errors(output.uri):
        record = read_json(output / RUN_FILE)
    if record is None:
        raise OutputError(f"output: there is no run at {output.uri} (no {RUN_FILE})")
    manifest = read_json(output / MANIFEST_FILE)
    closed = manifest is not None and manifest["run_id"] == record["run_id"]
    statuses = [
        entry.status for entry in scan_log(output, reader_fingerprint=record["reader_fingerprint"]).outcomes.values()
    ]
    note = None if closed else read_stop_note(output, run_id=record["run_id"])
    turns = _turns(output, reader_fingerprint=record["reader_fingerprint"])
    return {
        "run_id": record["run_id"],
        "state": _state(manifest if closed else None, note),
        "started_at": record["started_at"],
        "finished_at": manifest["finished_at"] if manifest and closed else None,
        "stopped_at": note and note["stopped_at"],
        "stopped_because": note and note["why"],
        **({} if closed or note else _life(record["started_at"], turns["last_turn_at"])),
        "documents": record["documents"],
        "questions": record["questions"],
        "readings_asked": record["asked"],
        "outcomes_ok": statuses.count(Status.OK),
        "outcomes_failed": statuses.count(Status.FAILED),
        **turns,
        "counts": manifest["counts"] if manifest and closed else None,
        "changes": manifest.get("changes") if manifest and closed else None,
    }


def _state(manifest: dict[str, Any] | None, note: dict[str, Any] | None) -> str:
    """`incomplete`: the run is closed, and the same command reads what could not be read."""
    if manifest is not None:
        return "incomplete" if manifest["counts"].get("not_read") else "finished"
    return "stopped" if note else "running or killed"


def _life(started_at: str, last_turn_at: str | None) -> dict[str, Any]:
    """When the run was last seen alive, and how long ago: a run that was killed has no other sign of its death."""
    seen = max(datetime.fromisoformat(text) for text in (started_at, last_turn_at) if text)
    age = datetime.now(UTC) - seen
    return {"last_sign_of_life_at": seen.isoformat(), "last_sign_of_life_seconds_ago": round(age.total_seconds())}


def _turns(output: Location, *, reader_fingerprint: str) -> dict[str, Any]:
    """Counts of the turn log, file by file."""
    num_turns = num_tokens = 0
    last: datetime | None = None
    for table in scan_turns(
        output, columns=["num_prompt_tokens", "finished_at"], reader_fingerprint=reader_fingerprint
    ):
        num_turns += table.num_rows
        num_tokens += pc.sum(table["num_prompt_tokens"]).as_py() or 0
        ended = pc.max(table["finished_at"]).as_py()
        last = max(filter(None, (last, ended)), default=None)
    return {"turns": num_turns, "prompt_tokens": num_tokens, "last_turn_at": None if last is None else last.isoformat()}


def write_stop_note(output: Location, *, run_id: str, why: str) -> None:
    """Notes that the run has stopped just now.

    Raises:
        StorageError: it can't be written.
    """
    note = {"run_id": run_id, "stopped_at": datetime.now(UTC).isoformat(), "why": printable(why)[:WHY_CHARACTERS]}
    write_json(_note_place(output, run_id=run_id), note)


def read_stop_note(output: Location, *, run_id: str) -> dict[str, Any] | None:
    """`stopped_at` and `why` of a run that has stopped; None where it left no note."""
    return read_json(_note_place(output, run_id=run_id))


def _note_place(output: Location, *, run_id: str) -> Location:
    return output / f"{RUNS_FOLDER}/{run_id}/{STOPPED_FILE}"
