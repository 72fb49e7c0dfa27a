"""Checks that the numbers of the last run add up, and that its files hold as many rows as it says."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.files.errors import FILE_ERRORS
from memagent_batch.files.location import Location
from memagent_batch.runs.history.history import PLAN_FILE, RUNS_FOLDER
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.tables.part_report import AnswerSums, rows_of_files
from memagent_batch.runs.tables.tables import (
    ANSWERS_FOLDER,
    EVIDENCE_FOLDER,
    MEMORIES_FOLDER,
    RESULTS_FOLDER,
    count_rows,
)
from memagent_batch.verification.findings import Finding, Kind, Report
from memagent_batch.verification.links import record_name

_FILES = {
    ANSWERS_FOLDER: "answers_file",
    MEMORIES_FOLDER: "memories_file",
    EVIDENCE_FOLDER: "evidence_file",
    RESULTS_FOLDER: "results_file",
}


def check_counts(output: Location, manifest: Manifest, *, plan: pa.Table) -> Iterator[Report]:
    """What does not add up.

    Args:
        output: The output.
        manifest: That of the last run.
        plan: Its plan, `RUN_PLAN`.
    """
    run_id, counts = manifest["run_id"], manifest["counts"]
    planned = pc.sum(pc.list_value_length(plan["readings"])).as_py() or 0
    ended = counts["ok"] + counts["failed"] + counts["not_read"]
    if not planned == counts["asked"] == ended == counts["answers_rows"]:
        where = f"{RUNS_FOLDER}/{run_id}/{PLAN_FILE}"
        what = f"the counts do not close: {planned:,} readings are planned, and the manifest has {dict(counts)}"
        yield Finding(kind=Kind.COUNTS, where=where, what=what, since=run_id)
    yield from (
        Finding(kind=Kind.COUNTS, where=record_name(run_id), what=what, since=run_id) for what in _sums(manifest)
    )
    for part in manifest["parts"]:
        for name, num_rows in rows_of_files(part).items():
            found = _num_rows(output / name)
            if found not in (num_rows, None):
                what = f"it has {found:,} rows, and the manifest says {num_rows:,}"
                yield Finding(kind=Kind.COUNTS, where=name, what=what, since=run_id)


def _sums(manifest: Manifest) -> Iterator[str]:
    """What the parts of the tables do not add up to."""
    counts, parts = manifest["counts"], manifest["parts"]
    sums = {
        "ok": (counts["ok"], sum(part["num_ok"] for part in parts)),
        "not_read": (counts["not_read"], sum(part["num_not_read"] for part in parts)),
        "answers_rows": (counts["answers_rows"], sum(part["num_answers"] for part in parts)),
        "memories_rows": (counts["memories_rows"], sum(part["num_memories"] for part in parts)),
    }
    for name in AnswerSums.__annotations__:
        added = sum(part[name] for part in parts)  # type: ignore[literal-required]
        sums[name] = (manifest["totals"][name], added)  # type: ignore[literal-required]
    if markers := manifest.get("markers"):
        sums["num_markers"] = (markers["num_markers"], sum(part["num_markers"] or 0 for part in parts))
        added = sum(part["num_marked_documents"] or 0 for part in parts)
        sums["num_marked_documents"] = (markers["num_documents"], added)
    for name, (said, added) in sums.items():
        if said != added:
            yield f"{name} is {said:,}, and the parts of the tables add up to {added:,}"
    for table, column in _FILES.items():
        files = [part[column] for part in parts if part[column]]  # type: ignore[literal-required]
        if files != manifest["files"].get(table, []):
            yield f"the parts of the table {table!r} have other files than the manifest lists"


def _num_rows(place: Location) -> int | None:
    """Rows of a table file; none of one that is gone or damaged, which its hash shows."""
    try:
        return count_rows(place)
    except FILE_ERRORS:
        return None
