"""What each finished run leaves for good, in `runs/RUN_ID/`.

`plan.parquet` (`RUN_PLAN`) says which documents it found, what it asked of them, and which run had read that;
`removed.parquet` (`REMOVED`) which documents were gone by then; `index.parquet` and `files.parquet` what it found in
each version of each file, if an earlier run does not say the same; `manifest.json` is a copy of the one that it closed
with, and is written last. The question list is in `log/questions/`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, cast

import numpy as np
import pyarrow as pa

from memagent_batch.documents.document_index import CARRY_PREFIX, KeptIndex, in_order, is_document
from memagent_batch.errors import OutputError
from memagent_batch.runs.manifest import MANIFEST_FILE, Manifest, read_manifest
from memagent_batch.runs.plan import Plan
from memagent_batch.runs.reading_state import Rows, in_blocks, struct_column
from memagent_batch.runs.tables import REMOVED_TABLE, RUN_PLAN
from memagent_batch.store.database import on_disk, open_database, query_to_disk, run_query
from memagent_batch.store.errors import output_errors, table_errors
from memagent_batch.store.json_files import write_json
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import map_parquet, write_parquet
from memagent_batch.store.turn_log.index import LogIndex
from memagent_batch.store.turn_log.keys import LOG_KEYS
from memagent_batch.store.turn_log.question_list import ASKED_FOLDER

RUNS_FOLDER = "runs"
PLAN_FILE = "plan.parquet"
REMOVED_FILE = "removed.parquet"
INDEX_FILE, FILES_FILE = "index.parquet", "files.parquet"
"""Index of the documents, and the versions of its files, for the next run."""
LATEST = "latest"
"""Names the last finished run."""
PREVIOUS = "previous"
"""Names the finished run before it."""
_CAST_ROWS = 1024
"""Rows whose large strings become strings at once: a chunk of these holds at most 2 GiB."""
_COMPARED = ["name", "place", "hash"]
_CHANGES = """
select count(*) filter (before.name is null) as added,
       count(*) filter (before.name = after.name and before.hash is distinct from after.hash) as changed,
       count(*) filter (after.name is null) as removed,
       count(*) filter (before.name = after.name and before.hash is not distinct from after.hash) as unchanged
from (from before where is_document) before full join (from after where is_document) after
    on before.name = after.name and before.place is not distinct from after.place
"""
_READINGS = """
select count(*) filter (run_id > $since) as read, count(*) filter (run_id <= $since) as kept,
       count(*) filter (error is not null) as unreadable,
       count(*) filter (run_id is null and error is null) as not_read
from (select error, unnest(readings).run_id as run_id from plan)
"""
"""Run ids sort by time."""
_TURNS = """
select coalesce(sum(num_turns - num_copies), 0)::bigint as asked, coalesce(sum(num_copies), 0)::bigint as reused
from turns where run_id > $since
"""
_REMOVED = """
with there as (from after where is_document)
select removed.* from removed anti join there on name = document_id
union all
select before.name, before.hash, $last_run_id, $run_id from before anti join there using (name) where is_document
order by removed_run_id, document_id
"""
_RECORDED = """
select document, question, sample, if(is_open, null, run_id) as run_id
from state left join log_files on state.file = log_files.number order by document, place, sample
"""
SHOWN_RUNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A finished run, as its location remembers it."""

    output: Location
    run_id: str
    manifest: Manifest
    plan: pa.Table
    questions: pa.Table
    """Its question list, as `PlannedQuestions.hashed`; `readings` of the plan name its rows."""
    removed: pa.Table


def recorded_plan(plan: Plan, index: LogIndex) -> pa.Table:
    """The plan of a run as `RUN_PLAN`: its documents with their readings, and those that a limit leaves out with none.

    The latter are known by it, so that a later run can tell which of them are gone. A reading that was answered and not
    closed has no run yet, as one that was not read.
    """
    documents = plan.documents if plan.outside is None else pa.concat_tables([plan.documents, plan.outside])
    with plan.state(index) as database:
        readings = query_to_disk(database, _RECORDED)
    carried = [name for name in documents.schema.names if name.startswith(CARRY_PREFIX)]
    documents = documents.select(["document_id", "document_hash", "error", "error_type", *carried])
    blocks = in_blocks(np.arange(documents.num_rows), readings)
    schema = pa.schema([*RUN_PLAN, *(pa.field(name, pa.string()) for name in carried)])
    return on_disk((_planned(documents, *block, schema=schema) for block in blocks), schema=schema)


def _planned(documents: pa.Table, rows: Rows, found: Sequence[pa.Table], *, schema: pa.Schema) -> pa.Table:
    column = struct_column(found[0], RUN_PLAN.field("readings").type, documents=rows)
    planned = documents.slice(rows[0], len(rows)).add_column(4, "readings", column)
    numbers = pa.array(range(planned.num_rows))
    pieces = [
        batch.take(numbers.slice(start, min(_CAST_ROWS, batch.num_rows - start)))
        for batch in planned.to_batches()
        for start in range(0, batch.num_rows, _CAST_ROWS)
    ]
    return pa.concat_tables([pa.Table.from_batches([piece]).cast(schema) for piece in pieces])


def finished_runs(output: Location) -> list[str]:
    """Ids of the runs that have finished, in order of time."""
    return _finished(output, (output / RUNS_FOLDER).files())


def _finished(output: Location, files: Sequence[str]) -> list[str]:
    manifest = read_manifest(output)
    return sorted(_runs_with(MANIFEST_FILE, files) | ({manifest["run_id"]} if manifest else set()))


def _runs_with(name: str, files: Sequence[str]) -> set[str]:
    """Ids of the runs whose record has a file of this name."""
    return {path.rsplit("/", 2)[-2] for path in files if path.endswith(f"/{name}")}


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
    if name == PREVIOUS:
        raise OutputError(f"output: {runs[0]} is the only finished run at {output.uri} yet; run it again first")
    earlier = f"{len(runs) - SHOWN_RUNS} earlier ones, " if len(runs) > SHOWN_RUNS else ""
    raise OutputError(
        f"output: there is no finished run {name!r} at {output.uri}; there are {earlier}{', '.join(runs[-SHOWN_RUNS:])}"
    )


def open_run(output: Location, run_id: str) -> PastRun:
    """A finished run, from its record; the manifest of the last one also from where it was published."""
    folder = output / f"{RUNS_FOLDER}/{run_id}"
    manifest = read_manifest(folder) or read_manifest(output)
    if manifest is None or manifest["run_id"] != run_id:
        raise OutputError(f"{folder.uri} holds no {MANIFEST_FILE}; restore it, or delete the folder")
    return read_run(output, manifest)


def read_run(output: Location, manifest: Manifest) -> PastRun:
    """The run of a manifest, from the other files of its record."""
    run_id = manifest["run_id"]
    folder = output / f"{RUNS_FOLDER}/{run_id}"
    questions = _read_table(output / f"{ASKED_FOLDER}/{run_id}.parquet")
    plan, removed = _read_table(folder / PLAN_FILE), _read_table(folder / REMOVED_FILE)
    return PastRun(output=output, run_id=run_id, manifest=manifest, plan=plan, questions=questions, removed=removed)


def last_run(output: Location) -> PastRun | None:
    """The last finished run; None if there is none."""
    runs = finished_runs(output)
    return open_run(output, runs[-1]) if runs else None


def repair_last_run_record(output: Location) -> PastRun | None:
    """The last finished run, its record made whole before its tables are replaced: a kill may have cut it short."""
    past = last_run(output)
    if past is None:
        return None
    if not (output / f"{RUNS_FOLDER}/{past.run_id}/{MANIFEST_FILE}").exists():
        write_record_manifest(past)
    return past


def write_begun_plan(output: Location, plan: pa.Table, *, run_id: str) -> None:
    """Writes the plan of a run that begins to read, as `recorded_plan`: what it has so far can then be queried."""
    write_parquet(output / f"{RUNS_FOLDER}/{run_id}/{PLAN_FILE}", plan)


def write_plan(past: PastRun) -> None:
    """Writes the record of a run except its manifest, without which it does not count."""
    folder = past.output / f"{RUNS_FOLDER}/{past.run_id}"
    write_parquet(folder / REMOVED_FILE, past.removed)
    write_parquet(folder / PLAN_FILE, past.plan)


def write_record_manifest(past: PastRun) -> None:
    """Writes the copy of the manifest: the record is whole."""
    write_json(past.output / f"{RUNS_FOLDER}/{past.run_id}/{MANIFEST_FILE}", past.manifest)


def write_kept_index(output: Location, plan: Plan, *, run_id: str) -> None:
    """Keeps the index for the next run, unless an earlier run keeps the same."""
    if plan.indexed is None or plan.indexed.is_kept:
        return
    index = plan.documents if plan.outside is None else in_order(pa.concat_tables([plan.documents, plan.outside]))
    kept, folder = KeptIndex.of(index, plan.indexed), output / f"{RUNS_FOLDER}/{run_id}"
    if kept.files.num_rows:
        write_parquet(folder / INDEX_FILE, kept.documents)
        write_parquet(folder / FILES_FILE, kept.files)


def read_kept_index(output: Location) -> KeptIndex | None:
    """The index that the last of the finished runs which kept one has; None if there is none."""
    with output_errors(output.uri):
        files = (output / RUNS_FOLDER).files()
        kept = _runs_with(FILES_FILE, files)
        runs = [run_id for run_id in _finished(output, files) if run_id in kept] if kept else []
    if not runs:
        return None
    folder = output / f"{RUNS_FOLDER}/{runs[-1]}"
    with table_errors(folder.uri, remedy=f"delete {FILES_FILE} there, and the documents are indexed again"):
        return KeptIndex(documents=map_parquet(folder / INDEX_FILE), files=map_parquet(folder / FILES_FILE))


def _read_table(place: Location) -> pa.Table:
    with table_errors(place.uri, remedy="restore it, or choose another output to begin a new history"):
        return map_parquet(place)


class ChangeCounts(TypedDict):
    """How many ids are new, have another text, are gone, and have the same text."""

    added: int
    changed: int
    removed: int
    unchanged: int


class ReadingCounts(TypedDict):
    """Where the rows of `answers` come from; the four add up to all readings asked for."""

    read: int
    """Read since the last finished run, by this run or by one that was stopped."""
    kept: int
    """Read before it."""
    unreadable: int
    """Readings of documents whose text can't be read, or that are not there."""
    not_read: int
    """Not read for a cause that passes; the next run reads them."""


class TableVersions(TypedDict):
    """Which versions of a table two runs read."""

    before: str | None
    """None where the last finished run read another input."""
    now: str


class Changes(TypedDict):
    """What changed since the last finished run; in the first run everything is added."""

    since: str | None
    documents: ChangeCounts
    questions: ChangeCounts
    """By question_id and the document that they are bound to, if any."""
    readings: ReadingCounts
    tables: dict[str, TableVersions]
    turns: dict[str, int]
    """Turns that were asked since, follow-up questions included, and those that were taken from other versions."""


def find_changes(
    plan: pa.Table,
    questions: pa.Table,
    *,
    before: PastRun | None,
    tables: Mapping[str, str] | None = None,
    turns: pa.Table | None = None,
) -> Changes:
    """Compares a run that is about to finish with the last one that did; `turns` are those of its `LogIndex`."""
    versions = before.manifest["tables"] if before else {}
    since = before.run_id if before else ""
    turns = LOG_KEYS.empty_table() if turns is None else turns
    (new_turns,) = run_query(_TURNS, {"turns": turns}, since=since).to_pylist()
    (readings,) = run_query(_READINGS, {"plan": plan.select(["error", "readings"])}, since=since).to_pylist()
    return {
        "since": before.run_id if before else None,
        "documents": _count(_documents(before.plan) if before else None, _documents(plan)),
        "questions": _count(_questions(before.questions) if before else None, _questions(questions)),
        "readings": cast(ReadingCounts, readings),
        "tables": {uri: {"before": versions.get(uri), "now": now} for uri, now in (tables or {}).items()},
        "turns": new_turns,
    }


def removed_documents(plan: pa.Table, *, run_id: str, before: PastRun | None) -> pa.Table:
    """The documents that are gone at the run `run_id`, as `REMOVED`; one that came back is not among them."""
    if before is None:
        return REMOVED_TABLE.empty_table()
    tables = {"before": _documents(before.plan), "after": _documents(plan), "removed": before.removed}
    with open_database(tables) as database:
        return query_to_disk(database, _REMOVED, schema=REMOVED_TABLE, last_run_id=before.run_id, run_id=run_id)


def _count(before: pa.Table | None, after: pa.Table) -> ChangeCounts:
    """Compares rows of name, place and hash; a name may be there once for each place."""
    tables = {"before": after.slice(0, 0) if before is None else before, "after": after}
    (counts,) = run_query(_CHANGES, tables).to_pylist()
    return cast(ChangeCounts, counts)


def _documents(plan: pa.Table) -> pa.Table:
    hashes = plan.select(["document_id", "document_hash"]).add_column(1, "place", pa.nulls(plan.num_rows))
    return hashes.rename_columns(_COMPARED).append_column("is_document", is_document(plan))


def _questions(questions: pa.Table) -> pa.Table:
    questions = questions.select(["question_id", "document_id", "question_hash"]).rename_columns(_COMPARED)
    return questions.append_column("is_document", pa.repeat(True, questions.num_rows))
