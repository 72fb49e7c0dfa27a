"""What each finished run leaves for good, in `runs/RUN_ID/`: with the log, its answers can be had again at any time.

`plan.parquet` (`RUN_PLAN`) says which documents it found, what it asked of them, and which run had read that;
`removed.parquet` (`REMOVED`) which documents were gone by then; `manifest.json` is a copy of the one that it closed
with, and is written last. The question list is in `log/questions/`.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import pyarrow as pa

from memagent_batch.errors import OutputError
from memagent_batch.files.errors import output_errors, table_errors
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes, read_parquet
from memagent_batch.inputs.documents import CARRY_PREFIX
from memagent_batch.log.index import LoggedOutcome, TurnIndex
from memagent_batch.log.question_list import ASKED_FOLDER
from memagent_batch.runs.manifest import MANIFEST_FILE, Manifest, read_manifest
from memagent_batch.runs.plan import Plan, Work
from memagent_batch.runs.schemas import RUN_PLAN

RUNS_FOLDER = "runs"
PLAN_FILE = "plan.parquet"
REMOVED_FILE = "removed.parquet"

LATEST = "latest"
"""Names the last finished run."""
PREVIOUS = "previous"
"""Names the finished run before it."""
_CAST_ROWS = 1024
"""Rows whose large strings become strings at once: a chunk of these holds at most 2 GiB."""
SHOWN_RUNS = 10
"""Runs that an error names, the latest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A finished run, as its location remembers it."""

    output: Location
    """Where it wrote."""
    run_id: str
    """Its id."""
    manifest: Manifest
    """The manifest that it closed with."""
    plan: pa.Table
    """`RUN_PLAN`."""
    questions: pa.Table
    """Its question list, as `Plan.hashed_questions`; `readings` of the plan name its rows."""
    removed: pa.Table
    """`REMOVED`."""


def recorded_plan(plan: Plan, index: TurnIndex, *, again: Mapping[Work, LoggedOutcome] | None = None) -> pa.Table:
    """The plan of a run whose readings have ended, as `RUN_PLAN`.

    `again`: how the readings ended that the second reader answered; None where there is none.
    """
    hashes = plan.hashed_questions()["question_hash"].to_pylist()
    offsets, questions, samples = array("i", [0]), array("i"), array("i")
    run_ids: list[str | None] = []
    tiers: list[int | None] = []
    for document in plan.documents.select(["document_id", "document_hash"]).to_pylist():
        for row, sample in product(plan.question_rows(document["document_id"]), range(plan.samples)):
            second = again.get((document["document_hash"], row, sample)) if again else None
            outcome = second or index.outcomes.get((document["document_hash"], hashes[row], sample))
            questions.append(row)
            samples.append(sample)
            run_ids.append(outcome.run_id if outcome else None)
            tiers.append(None if again is None else 2 if second else 1)
        offsets.append(len(run_ids))
    kind = RUN_PLAN.field("readings").type
    columns = [
        pa.array(questions, pa.int32()),
        pa.array(samples, pa.int32()),
        pa.array(run_ids, pa.string()),
        pa.array(tiers, pa.int32()),
    ]
    readings = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.StructArray.from_arrays(columns, fields=list(kind.value_type)), type=kind
    )
    carried = [name for name in plan.documents.schema.names if name.startswith(CARRY_PREFIX)]
    documents = plan.documents.select(["document_id", "document_hash", "error", "error_type", *carried])
    return _with_schema(documents.add_column(4, "readings", readings))


def finished_runs(output: Location) -> list[str]:
    """Ids of the runs that have finished, in order of time.

    Raises:
        OutputError: the manifest is no JSON.
    """
    suffix = f"/{MANIFEST_FILE}"
    files = (output / RUNS_FOLDER).files()
    kept = {path.removesuffix(suffix).rsplit("/", 1)[-1] for path in files if path.endswith(suffix)}
    manifest = read_manifest(output)
    return sorted(kept | ({manifest["run_id"]} if manifest else set()))


def find_run(output: Location, name: str) -> PastRun:
    """The run that a user names: by its id, as `latest`, or as `previous`.

    Raises:
        OutputError: there is no such run, or the output can't be reached; names the runs that there are.
    """
    with output_errors(output.uri):
        runs = finished_runs(output)
    named = {LATEST: runs[-1:], PREVIOUS: runs[-2:-1]}.get(name, [run_id for run_id in runs if run_id == name])
    if named:
        return open_run(output, named[0])
    if not runs:
        raise OutputError(f"output: there is no finished run at {output.uri}")
    earlier = f"{len(runs) - SHOWN_RUNS} earlier ones, " if len(runs) > SHOWN_RUNS else ""
    raise OutputError(
        f"output: there is no finished run {name!r} at {output.uri}; there are {earlier}{', '.join(runs[-SHOWN_RUNS:])}"
    )


def open_run(output: Location, run_id: str) -> PastRun:
    """A finished run, from its record; the manifest of the last one also from where it was published.

    Raises:
        OutputError: a file of it is gone or can't be read; names it.
    """
    folder = output / f"{RUNS_FOLDER}/{run_id}"
    manifest = read_manifest(folder) or read_manifest(output)
    if manifest is None or manifest["run_id"] != run_id:
        raise OutputError(f"{folder.uri} holds no {MANIFEST_FILE}; restore it, or delete the folder")
    questions = _read_table(output / f"{ASKED_FOLDER}/{run_id}.parquet")
    plan, removed = _read_table(folder / PLAN_FILE), _read_table(folder / REMOVED_FILE)
    return PastRun(output=output, run_id=run_id, manifest=manifest, plan=plan, questions=questions, removed=removed)


def keep_last_run(output: Location) -> PastRun | None:
    """The last finished run, its record made whole before its tables are replaced: a kill may have cut it short."""
    runs = finished_runs(output)
    if not runs:
        return None
    past = open_run(output, runs[-1])
    if not (output / f"{RUNS_FOLDER}/{past.run_id}/{MANIFEST_FILE}").exists():
        write_record_manifest(past)
    return past


def write_plan(past: PastRun) -> None:
    """Writes the record of a run except its manifest, without which it does not count."""
    folder = past.output / f"{RUNS_FOLDER}/{past.run_id}"
    (folder / REMOVED_FILE).write_bytes(parquet_bytes(past.removed))
    (folder / PLAN_FILE).write_bytes(parquet_bytes(past.plan))


def write_record_manifest(past: PastRun) -> None:
    """Writes the copy of the manifest: the record is whole."""
    write_json(past.output / f"{RUNS_FOLDER}/{past.run_id}/{MANIFEST_FILE}", past.manifest)


def _read_table(place: Location) -> pa.Table:
    with table_errors(place.uri, remedy="restore it, or choose another output to begin a new history"):
        return read_parquet(place)


def _with_schema(table: pa.Table) -> pa.Table:
    """The table with the descriptions of `RUN_PLAN` in its schema."""
    carried = [pa.field(field.name, pa.string()) for field in table.schema if field.name.startswith(CARRY_PREFIX)]
    schema = pa.schema([*RUN_PLAN, *carried])
    starts = range(0, table.num_rows, _CAST_ROWS)
    rows = (pa.array(range(start, min(start + _CAST_ROWS, table.num_rows)), pa.int64()) for start in starts)
    return pa.concat_tables([schema.empty_table(), *(table.take(piece).cast(schema) for piece in rows)])
