"""The state of a run by its location alone: no Ray, no server."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.storage.location import Location
from memagent_batch.storage.manifest import MANIFEST_FILE, RUN_FILE, reaching, read_json
from memagent_batch.storage.turn_index import scan_log
from memagent_batch.storage.turn_log import TURNS_FOLDER

TURN_COLUMNS = ["reader_fingerprint", "num_prompt_tokens", "finished_at"]


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
    turns = _turns(output, reader_fingerprint=record["reader_fingerprint"])
    return {
        "run_id": record["run_id"],
        "state": "finished" if closed else "running or stopped",
        "started_at": record["started_at"],
        "finished_at": manifest["finished_at"] if manifest and closed else None,
        "documents": record["documents"],
        "questions": record["questions"],
        "readings_asked": record["asked"],
        "outcomes_ok": statuses.count(Status.OK),
        "outcomes_failed": statuses.count(Status.FAILED),
        "turns": turns.num_rows,
        "prompt_tokens": pc.sum(turns["num_prompt_tokens"]).as_py() or 0,
        "last_turn_at": str(pc.max(turns["finished_at"]).as_py()) if turns.num_rows else None,
        "counts": manifest["counts"] if manifest and closed else None,
        "changes": manifest.get("changes") if manifest and closed else None,
    }


def _turns(output: Location, *, reader_fingerprint: str) -> pa.Table:
    folder = output / TURNS_FOLDER
    tables = [
        pq.read_table(path, filesystem=folder.fs, columns=TURN_COLUMNS)
        for path in folder.files()
        if path.endswith(".parquet")
    ]
    if not tables:
        return pa.table({name: [] for name in TURN_COLUMNS})
    table = pa.concat_tables(tables)
    return table.filter(pc.equal(table["reader_fingerprint"], reader_fingerprint))
