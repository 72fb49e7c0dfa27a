"""What each finished run leaves for good, in `runs/RUN_ID/`: with the log, its answers can be had again at any time.

`plan.parquet` (`RUN_PLAN`) says which documents it found, what it asked of them, and which run had read that;
`removed.parquet` (`REMOVED`) which documents were gone by then; `index.parquet` and `files.parquet` in which versions
of which files it found what, if that is not as an earlier run has it; `manifest.json` is a copy of the
one that it closed with, and is written last. The question list is in `log/questions/`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypedDict, cast

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.documents.document_index import CARRY_PREFIX, KeptIndex, is_document
from memagent_batch.errors import OutputError
from memagent_batch.runs.manifest import MANIFEST_FILE, Manifest, read_manifest
from memagent_batch.runs.plan import Plan, ReadingLists
from memagent_batch.runs.tables import REMOVED_TABLE, RUN_PLAN
from memagent_batch.store.database import run_query
from memagent_batch.store.errors import output_errors, table_errors
from memagent_batch.store.json_files import write_json
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes, read_parquet
from memagent_batch.store.turn_log.index import RunTurns, TurnIndex
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
LOOKED_BACK = 64
"""Runs before the last one in which the last version of a document that it did not read is looked for, and as many runs
that were stopped after it."""
_COMPARED = ["name", "place", "hash"]
_CHANGES = """
select count(*) filter (before.name is null) as added,
       count(*) filter (before.name = after.name and before.hash is distinct from after.hash) as changed,
       count(*) filter (after.name is null) as removed,
       count(*) filter (before.name = after.name and before.hash is not distinct from after.hash) as unchanged
from before full join after on before.name = after.name and before.place is not distinct from after.place
"""
SHOWN_RUNS = 10
"""Runs that an error names, the latest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A finished run, as its location remembers it."""

    output: Location
    run_id: str
    manifest: Manifest
    """The manifest that it closed with."""
    plan: pa.Table
    questions: pa.Table
    """Its question list, as `PlannedQuestions.hashed`; `readings` of the plan name its rows."""
    removed: pa.Table


def recorded_plan(plan: Plan, index: TurnIndex) -> pa.Table:
    """The plan of a run as `RUN_PLAN`: its documents with their readings, and those that a limit leaves out with none.

    The latter are known by it, so that a later run can tell which of them are gone. A reading that was answered and not
    closed has no run yet, as one that was not read.
    """
    readings = ReadingLists()
    run_ids: list[str | None] = []
    for document in plan.texts():
        for row, sample in plan.readings_of(document):
            key = plan.key_of(document, row, sample)
            outcome = None if plan.is_open(row, key, index) else index.outcomes.get(key)
            readings.add(row, sample)
            run_ids.append(outcome.run_id if outcome else None)
        readings.end_document()
    documents = plan.documents if plan.outside is None else pa.concat_tables([plan.documents, plan.outside])
    for _ in range(documents.num_rows - plan.documents.num_rows):
        readings.end_document()
    column = readings.column(RUN_PLAN.field("readings").type, run_ids)
    carried = [name for name in documents.schema.names if name.startswith(CARRY_PREFIX)]
    documents = documents.select(["document_id", "document_hash", "error", "error_type", *carried])
    return _with_schema(documents.add_column(4, "readings", column))


def finished_runs(output: Location) -> list[str]:
    """Ids of the runs that have finished, in order of time."""
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
    """Writes the plan of a run that begins to read, as `recorded_plan`: what it has so far can then be shown."""
    (output / f"{RUNS_FOLDER}/{run_id}/{PLAN_FILE}").write_bytes(parquet_bytes(plan))


def last_hashes(
    output: Location, past: PastRun | None, documents: pa.Table, *, index: TurnIndex
) -> dict[str, list[str]]:
    """Hashes that documents had when they were last read, where these have changed since, by document_id.

    Runs that were stopped after the last finished one come first, the latest of them before the others: each may have
    read a part. A finished run that did not read a document, as one with a limit or without its endpoint, leaves this
    to the runs before it.
    """
    held = frozenset(document_hash for document_hash, _ in index.turn_files)
    if not held:
        return {}
    names = (documents[name].to_pylist() for name in ("document_id", "document_hash"))
    wanted = {name: hash_ for name, hash_ in zip(*names, strict=True) if hash_ is not None}
    found: dict[str, list[str]] = defaultdict(list)
    for name, hash_ in _begun_versions(output, wanted, after=past.run_id if past else "", held=held):
        found[name].append(hash_)
    finished = _finished_versions(past, wanted, held=held) if past else {}
    for name, hash_ in finished.items():
        found[name].append(hash_)
    return {name: list(dict.fromkeys(versions)) for name, versions in found.items()}


def _begun_versions(
    output: Location, wanted: Mapping[str, str], *, after: str, held: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Ids of documents and versions with turns in the log that runs after this one began to read, the latest first."""
    earlier = pa.array(held.difference(wanted.values()), pa.string())
    if not len(earlier):  # as where a run goes on that was stopped: its plan need not be read
        return
    suffix = f"/{PLAN_FILE}"
    plans = [path for path in (output / RUNS_FOLDER).files() if path.endswith(suffix)]
    begun = {path.removesuffix(suffix).rsplit("/", 1)[-1] for path in plans} - {*finished_runs(output)}
    for run_id in sorted((each for each in begun if each > after), reverse=True)[:LOOKED_BACK]:
        plan = _read_table(output / f"{RUNS_FOLDER}/{run_id}/{PLAN_FILE}").select(["document_id", "document_hash"])
        rows = plan.filter(pc.is_in(plan["document_hash"], earlier)).to_pylist()
        yield from ((row["document_id"], row["document_hash"]) for row in rows if row["document_id"] in wanted)


def _finished_versions(past: PastRun, wanted: dict[str, str], *, held: frozenset[str]) -> dict[str, str]:
    """The versions that the last finished run which read these documents found, by document_id."""
    found: dict[str, str] = {}
    for plan in _plans_back(past):
        if not wanted:
            break
        rows = plan.select(["document_id", "document_hash", "readings"])
        rows = rows.filter(pc.is_in(rows["document_id"], pa.array(wanted, pa.string())))
        read = _rows_read(rows)
        left: dict[str, str] = {}
        hashes = zip(rows["document_id"].to_pylist(), rows["document_hash"].to_pylist(), strict=True)
        for row, (name, hash_) in enumerate(hashes):
            is_other = hash_ not in (None, wanted[name])
            if is_other and (row in read or hash_ in held):
                found[name] = hash_
            elif row not in read:
                left[name] = wanted[name]
        wanted = left
    return found


def _plans_back(past: PastRun) -> Iterator[pa.Table]:
    """The plans of a run and of those before it, the latest first."""
    yield past.plan
    before = [run_id for run_id in finished_runs(past.output) if run_id < past.run_id]
    for run_id in before[: -LOOKED_BACK - 1 : -1]:
        place = past.output / f"{RUNS_FOLDER}/{run_id}/{PLAN_FILE}"
        if not place.exists():
            return
        yield _read_table(place)


def _rows_read(plan: pa.Table) -> frozenset[int]:
    readings = plan["readings"].combine_chunks()
    has_run = pc.is_valid(pc.struct_field(pc.list_flatten(readings), "run_id"))
    return frozenset(pc.list_parent_indices(readings).filter(has_run).to_pylist())


def write_plan(past: PastRun) -> None:
    """Writes the record of a run except its manifest, without which it does not count."""
    folder = past.output / f"{RUNS_FOLDER}/{past.run_id}"
    (folder / REMOVED_FILE).write_bytes(parquet_bytes(past.removed))
    (folder / PLAN_FILE).write_bytes(parquet_bytes(past.plan))


def write_record_manifest(past: PastRun) -> None:
    """Writes the copy of the manifest: the record is whole."""
    write_json(past.output / f"{RUNS_FOLDER}/{past.run_id}/{MANIFEST_FILE}", past.manifest)


def write_kept_index(output: Location, plan: Plan, *, run_id: str) -> None:
    """Keeps the index for the next run, unless an earlier run keeps the same."""
    if plan.indexed is None or plan.indexed.is_kept:
        return
    index = plan.documents if plan.outside is None else pa.concat_tables([plan.documents, plan.outside])
    kept, folder = KeptIndex.of(index, plan.indexed), output / f"{RUNS_FOLDER}/{run_id}"
    if kept.files.num_rows:
        (folder / INDEX_FILE).write_bytes(parquet_bytes(kept.documents))
        (folder / FILES_FILE).write_bytes(parquet_bytes(kept.files))


def read_kept_index(output: Location) -> KeptIndex | None:
    """The index that the last of the finished runs which kept one has; None if there is none."""
    with output_errors(output.uri):
        paths = (output / RUNS_FOLDER).files()
        kept = {path.rsplit("/", 2)[1] for path in paths if path.endswith(f"/{FILES_FILE}")}
        runs = [run_id for run_id in finished_runs(output) if run_id in kept] if kept else []
    if not runs:
        return None
    folder = output / f"{RUNS_FOLDER}/{runs[-1]}"
    with table_errors(folder.uri, remedy=f"delete {FILES_FILE} there, and the documents are indexed again"):
        return KeptIndex(documents=read_parquet(folder / INDEX_FILE), files=read_parquet(folder / FILES_FILE))


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
    """That run; None for the first."""
    documents: ChangeCounts
    questions: ChangeCounts
    """By question_id and the document that they are bound to, if any."""
    readings: ReadingCounts
    tables: dict[str, TableVersions]
    """Versions of the tables of a lake that were read, by table."""
    turns: dict[str, int]
    """What the readings that were read since cost, follow-up questions included; see `RunTurns`."""


def find_changes(
    plan: pa.Table,
    questions: pa.Table,
    *,
    before: PastRun | None,
    tables: Mapping[str, str] | None = None,
    run_turns: Mapping[str, RunTurns] = MappingProxyType({}),
) -> Changes:
    """Compares a run that is about to finish with the last one that did."""
    versions = before.manifest["tables"] if before else {}
    since = before.run_id if before else ""
    new = [turns for run_id, turns in run_turns.items() if run_id > since]
    return {
        "since": before.run_id if before else None,
        "documents": _count(_documents(before.plan) if before else None, _documents(plan)),
        "questions": _count(_questions(before.questions) if before else None, _questions(questions)),
        "readings": _count_readings(plan, since=since),
        "tables": {uri: {"before": versions.get(uri), "now": now} for uri, now in (tables or {}).items()},
        "turns": {"asked": sum(each.asked for each in new), "reused": sum(each.held for each in new)},
    }


def removed_documents(plan: pa.Table, *, run_id: str, before: PastRun | None) -> pa.Table:
    """The documents that are gone at the run `run_id`, as `REMOVED`; one that came back is not among them."""
    if before is None:
        return REMOVED_TABLE.empty_table()
    there = plan.filter(is_document(plan))["document_id"].combine_chunks()
    gone = before.plan.filter(is_document(before.plan)).select(["document_id", "document_hash"])
    gone = gone.filter(pc.invert(pc.is_in(gone["document_id"], there)))
    for name, value in (("last_run_id", before.run_id), ("removed_run_id", run_id)):
        gone = gone.append_column(name, pa.array([value] * gone.num_rows, pa.string()))
    still = before.removed.filter(pc.invert(pc.is_in(before.removed["document_id"], there)))
    return pa.concat_tables([still.cast(REMOVED_TABLE), gone.cast(REMOVED_TABLE)]).combine_chunks()


def _count(before: pa.Table | None, after: pa.Table) -> ChangeCounts:
    """Compares rows of name, place and hash; a name may be there once for each place."""
    tables = {"before": after.slice(0, 0) if before is None else before, "after": after}
    (counts,) = run_query(_CHANGES, tables).to_pylist()
    return cast(ChangeCounts, counts)


def _count_readings(plan: pa.Table, *, since: str) -> ReadingCounts:
    """Run ids sort by time."""
    run_ids = pc.struct_field(pc.list_flatten(plan["readings"]), "run_id")
    unreadable = len(pc.list_flatten(plan.filter(pc.is_valid(plan["error"]))["readings"]))
    read = pc.sum(pc.greater(run_ids, since)).as_py() or 0
    return {
        "read": read,
        "kept": len(run_ids) - run_ids.null_count - read,
        "unreadable": unreadable,
        "not_read": run_ids.null_count - unreadable,
    }


def _documents(plan: pa.Table) -> pa.Table:
    hashes = plan.filter(is_document(plan)).select(["document_id", "document_hash"])
    return hashes.add_column(1, "place", pa.nulls(hashes.num_rows, pa.string())).rename_columns(_COMPARED)


def _questions(questions: pa.Table) -> pa.Table:
    return questions.select(["question_id", "document_id", "question_hash"]).rename_columns(_COMPARED)
