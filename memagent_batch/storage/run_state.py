"""The state of a run by its location alone: no Ray, no server."""

from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.storage.location import Location
from memagent_batch.storage.manifest import MANIFEST_FILE, RUN_FILE, reaching, read_json
from memagent_batch.storage.turn_index import scan_log, scan_turns


def read_state(output: Location) -> dict[str, Any]:
    """What has been asked, done and failed, and when the log grew last.

    Raises:
        OutputError: there is no run.
    """
    with reaching(output):
        record = read_json(output / RUN_FILE)
    if record is None:
        raise OutputError(f"output: there is no run at {output.uri} (no {RUN_FILE})")
    manifest = read_json(output / MANIFEST_FILE)
    closed = manifest is not None and manifest["run_id"] == record["run_id"]
    statuses = [
        entry.status for entry in scan_log(output, reader_fingerprint=record["reader_fingerprint"]).outcomes.values()
    ]
    return {
        "run_id": record["run_id"],
        "state": _state(manifest if closed else None),
        "started_at": record["started_at"],
        "finished_at": manifest["finished_at"] if manifest and closed else None,
        "documents": record["documents"],
        "questions": record["questions"],
        "readings_asked": record["asked"],
        "outcomes_ok": statuses.count(Status.OK),
        "outcomes_failed": statuses.count(Status.FAILED),
        **_turns(output, reader_fingerprint=record["reader_fingerprint"]),
        "counts": manifest["counts"] if manifest and closed else None,
        "changes": manifest.get("changes") if manifest and closed else None,
    }


def _state(manifest: dict[str, Any] | None) -> str:
    """`incomplete`: the run is closed, and the same command reads what could not be read."""
    if manifest is None:
        return "running or stopped"
    return "incomplete" if manifest["counts"].get("not_read") else "finished"


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
