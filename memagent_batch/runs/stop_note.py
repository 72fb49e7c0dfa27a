"""The note that a run leaves where it stops before its end: `runs/RUN_ID/stopped.json`. A killed run leaves none."""

from datetime import UTC, datetime
from typing import Any

from memagent_batch.files.json_files import read_json, write_json
from memagent_batch.files.location import Location
from memagent_batch.masking import printable
from memagent_batch.runs.history import RUNS_FOLDER

STOPPED_FILE = "stopped.json"
WHY_CHARACTERS = 1000
"""Longest reason that is kept."""


def write_stop_note(output: Location, *, run_id: str, why: str) -> None:
    """Notes that the run has stopped just now.

    Raises:
        StorageError: it can't be written.
    """
    note = {"run_id": run_id, "stopped_at": datetime.now(UTC).isoformat(), "why": printable(why)[:WHY_CHARACTERS]}
    write_json(_place(output, run_id=run_id), note)


def read_stop_note(output: Location, *, run_id: str) -> dict[str, Any] | None:
    """`stopped_at` and `why` of a run that has stopped; None where it left no note."""
    return read_json(_place(output, run_id=run_id))


def _place(output: Location, *, run_id: str) -> Location:
    return output / f"{RUNS_FOLDER}/{run_id}/{STOPPED_FILE}"
