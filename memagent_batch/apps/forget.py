"""`memagent forget`: deletes documents from an output, so that no file of it holds their text, memories or answers.

The log and what people wrote come first, then the tables, then the row of the run, and last the files of earlier
versions. The same command goes on if the process is killed: documents that are still in a table are found again, and
the table `runs` says what is left to remove.
"""

import logging
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import chain
from typing import Any, TypedDict, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from memagent_batch.apps.pages.site import EXPORT_FOLDER, PAGES_FOLDER, SITE_RECORD_FILE
from memagent_batch.apps.review.labels import FORGOTTEN_ID, LABELS_FOLDER, REVIEWS_FOLDER
from memagent_batch.apps.review.record import RECORD_FILE, SAMPLE_FILE
from memagent_batch.apps.review.sheet import without_documents
from memagent_batch.apps.review.sign_offs import SIGNED_FOLDER
from memagent_batch.data.documents.where import Condition, matching_rows, parse_where
from memagent_batch.data.ingest.document_files import DocumentWriter, read_row_groups
from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE, SOURCES_TABLE
from memagent_batch.data.store.database import BATCH_ROWS, open_database
from memagent_batch.data.store.delta import ERASER, OutputTable, TableFile
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.json_files import read_json, write_json
from memagent_batch.data.store.location import TEMPORARY, Location
from memagent_batch.data.store.parquet import parquet_bytes, read_parquet
from memagent_batch.data.store.turn_log.files import TURNS_FOLDER, read_log_file
from memagent_batch.data.store.turn_log.index import last_run_id
from memagent_batch.data.store.turn_log.merge import rewrite_log
from memagent_batch.data.store.turn_log.question_list import ASKED_FOLDER, write_asked
from memagent_batch.errors import InputError
from memagent_batch.run.claim import INPUT_FOLDER
from memagent_batch.run.commits import TableUpdate, commit_run, end_commits
from memagent_batch.run.executors.leaving import LEAVE_SECONDS
from memagent_batch.run.history import (
    ERASING,
    PastRun,
    begin,
    find_run,
    finish,
    has_pending_erasure,
    is_erasing,
    read_run_record,
    unfinished_runs,
)
from memagent_batch.run.manifest import RunCounts, RunRecord
from memagent_batch.run.retention import data_tables, vacuum_tables
from memagent_batch.run.run import NOTHING_SPENT
from memagent_batch.run.state import NOTES_FOLDER, read_progress
from memagent_batch.run.sums import changed_questions, sum_readings
from memagent_batch.run.tables import ANSWERS_TABLE, DOCUMENT_ID, MEMORIES_TABLE, READING_TABLES

ALIVE_SECONDS = 120
"""A run that has noted something since then may still be running."""
_ORPHANED_SOURCES = """
with used as (
    select document_id, unnest(list_append(list_transform(parts, lambda part: part.source), source)) as source
    from documents)
select source from used group by source having bool_and(document_id in (from forgotten))
"""
"""Sources of which no other document has a part."""
_HASH_COLUMNS = ((ANSWERS_TABLE, "document_hash"), (DOCUMENTS_TABLE, "text_hash"))
"""Tables that hold the hashes of texts by `document_id`, with the column."""
_CLEARED = {
    "document_id": FORGOTTEN_ID,
    **dict.fromkeys(("comment", "correction", "source", "source_unread")),
}
"""Columns of labels, sign-offs and samples that lose their values, and what they have in place of them."""
_SHEET = re.compile(r"/labels[^/]*\.csv$")
"""A sheet of a review."""
_HASHES = pa.schema({"document_id": pa.string(), "hash": pa.string()})
_IDS = pa.schema({"document_id": pa.string()})

log = logging.getLogger(__name__)


class ForgetReport(TypedDict):
    """What `memagent forget` has done."""

    run_id: str
    documents: int
    rows: dict[str, int]
    """Deleted rows by table."""
    log_rows: int
    files: int
    """Files of earlier versions that were deleted."""


def find_documents(output: Location, *, document_ids: Sequence[str] = (), where: str | None = None) -> list[str]:
    """Finds the documents to forget; none if a `memagent forget` was killed before its end and all are gone already.

    Args:
        output: The output.
        document_ids: Their ids; also of documents that only earlier versions or the log have.
        where: A condition over the columns of `documents` or `answers`, in place of ids.

    Raises:
        InputError: there are none, or the condition can't be read.
        OutputError: no run has finished here.
    """
    run, is_pending = find_run(output), has_pending_erasure(output)
    if where is None:
        known = {*read_hashes(output, document_ids)}
        if not known.issuperset(document_ids):
            known |= _ids_elsewhere(output, document_ids)
        found = [document_id for document_id in document_ids if document_id in known]
    else:
        found = _matching_documents(run, parse_where(where, option="--where"), is_pending=is_pending)
    if not found and not is_pending:
        raise InputError(_nothing_words(output, document_ids=document_ids, where=where))
    if not found and where is not None and not is_erasing(output):
        raise InputError(
            f"--where: no document matches: {where}; a `memagent forget` was killed here before it had deleted all "
            "rows: give its own condition again, or name its documents with --document"
        )
    return found


def _nothing_words(output: Location, *, document_ids: Sequence[str], where: str | None) -> str:
    """Says that there is nothing to forget, and where something may be that can't be found by an id."""
    if where is not None:
        return (
            f"no document of {output} matches now: {where}; --document also finds ids that only earlier versions, the "
            "log or reviews have"
        )
    folders = [name for name in (PAGES_FOLDER, EXPORT_FOLDER) if (output / name).files()]
    written = " and ".join(f"{name}/" for name in folders)
    older = f"; {written} may show it if written before it left: delete and write them again" if folders else ""
    return (
        f"no document of {output} matches: {', '.join(document_ids)}; nothing of it is left in any version of the "
        f"tables, the log or reviews{older}. `memagent show {output}` names documents"
    )


def _ids_elsewhere(output: Location, document_ids: Collection[str]) -> set[str]:
    """Which of these documents tables other than those of `read_hashes`, question lists and reviews still have."""
    names = [table.name for table in data_tables(output) if table.name != SOURCES_TABLE]
    paths = [path for folder in [*names, ASKED_FOLDER] for path in (output / folder).files()]
    ids, found = pa.array(document_ids, pa.string()), set[str]()
    for path in [*paths, *_people_files(output)]:
        if path.endswith(".parquet") and "/_delta_log/" not in path:
            with table_errors(output.at(path).uri, remedy="restore the file"):
                rows = read_parquet(output.at(path), columns=["document_id"])
            found |= {*rows.cast(_IDS).filter(pc.field("document_id").isin(ids))["document_id"].to_pylist()}
    return found


def _matching_documents(run: PastRun, condition: Condition, *, is_pending: bool) -> list[str]:
    """Ids of the documents that a condition takes, by the table that has its columns.

    If an erasure is pending, rows that it has deleted from this table count too, as the last finished run left them in
    either table: other tables may still have these documents.
    """
    tables = [table for table in data_tables(run.output) if table.name in (DOCUMENTS_TABLE, ANSWERS_TABLE)]
    datasets = [table.dataset() for table in tables]
    columns = [condition.columns_among(dataset.schema.names) for dataset in datasets]
    dataset, names = max(zip(datasets, columns, strict=True), key=lambda each: len(each[1]))
    if missing := sorted({name for of_table in columns for name in of_table} - {*names}):
        raise InputError(f"--where: {condition.text!r}: no table has {missing[0]!r} and {names[0]!r}; use one of them")
    found = _matches(dataset, names, condition)
    if is_pending:
        left = dataset.to_table(columns=["document_id"])["document_id"]
        for table, of_table in zip(tables, columns, strict=True):
            if len(of_table) == len(names) and _is_of_output(run, table.name):
                with table_errors(table.place.uri, remedy="name the documents with --document"):
                    before = pa.array(_matches(run.dataset(table.name), names, condition), left.type)
                found |= dict.fromkeys(before.filter(pc.invert(pc.is_in(before, value_set=left))).to_pylist())
    return [*found]


def _is_of_output(run: PastRun, name: str) -> bool:
    """Whether a run has read or written a table of its output, and not one of another output."""
    return name != DOCUMENTS_TABLE or run.manifest["documents_table"]["output"] is None


def _matches(dataset: ds.Dataset, names: Sequence[str], condition: Condition) -> dict[str, None]:
    """Ids of the documents of which a condition takes a row; `names` are its columns."""
    found: dict[str, None] = {}
    for batch in dataset.scanner([*{"document_id": None, **dict.fromkeys(names)}], batch_size=BATCH_ROWS).to_batches():
        rows = pa.Table.from_batches([batch])
        matches = matching_rows(rows.select(names), condition, there=dataset.schema.names)
        found |= dict.fromkeys(rows["document_id"].take(pa.array(matches)).to_pylist())
    return found


def read_hashes(output: Location, document_ids: Collection[str]) -> dict[str, set[str]]:
    """Text hashes of documents by id, in all table files that are there, of whatever version, and in the log."""
    found: dict[str, set[str]] = defaultdict(set)
    ids = pa.array(document_ids, pa.string())
    for rows in _document_hashes(output):
        rows = rows.rename_columns(["document_id", "hash"]).cast(_HASHES)
        for row in rows.filter(pc.field("document_id").isin(ids)).to_pylist():
            found[row["document_id"]] |= {row["hash"]} - {None}
    return found


def _document_hashes(output: Location) -> Iterator[pa.Table]:
    for table, column in _HASH_COLUMNS:
        for path in (output / table).files():
            place = output.at(path)
            if path.endswith(".parquet") and "/_delta_log/" not in path:
                with table_errors(place.uri, remedy="restore the file"):
                    yield read_parquet(place, columns=["document_id", column])
    for path in (output / TURNS_FOLDER).files():
        yield read_log_file(output, path, columns=["document_id", "document_hash"])


def forget(output: Location, document_ids: Sequence[str]) -> ForgetReport:
    """Deletes documents from the tables, the log, reviews and pages, and all earlier versions of the tables.

    Args:
        output: The output.
        document_ids: The documents, as `find_documents` returns them.

    Raises:
        OutputError: no run has finished here.
        SupersededError: a newer run has begun; the same command goes on.
    """
    began, last = time.monotonic(), find_run(output)
    started_at, leaving = datetime.now(UTC).isoformat(), unfinished_runs(output)
    record = RunRecord(**{**(read_run_record(output) or {}), "started_at": started_at, "forgotten": len(document_ids)})
    run = begin(output, lambda run_id: replace(record, run_id=run_id), writer=ERASER, after=last_run_id(output))
    record = replace(record, run_id=run.run_id)
    end_commits(output, run)
    tables = data_tables(output)
    alone = [table for table in tables if table.name not in READING_TABLES]
    for table in alone:
        table.commit(run=run, schema=table.schema())  # ingests that have begun before can't commit any more
    _wait_for_readers(output, [row["run_id"] for row in leaving])
    erasure = Erasure(output=output, document_ids=pa.array(document_ids, pa.string()))
    log_rows = erasure.rewrite_log()
    erasure.rewrite_reviews()
    bound_to = last.questions["document_id"]  # questions that only these documents were asked go
    asked = last.questions.filter(pc.invert(pc.is_in(bound_to, value_set=pa.array(document_ids, bound_to.type))))
    record = replace(record, asked_id=write_asked(output, asked))
    updates = {table.name: erasure.delete_rows(table) for table in tables}
    for table in alone:
        update = updates[table.name]
        if update.removed:
            table.commit(run=run, schema=update.schema, add=update.added, remove=update.removed)
    reading = {name: update for name, update in updates.items() if name in READING_TABLES}
    erased = _manifest(last, record, reading, asked=asked, seconds=time.monotonic() - began)
    record = replace(record, asked=erased["counts"]["asked"])
    manifest = commit_run(output, run, record, reading, erased, state=ERASING)
    num_files = _remove_files(output, asked_id=record.asked_id)
    finish(output, run, record, manifest)
    rows = {name: _num_rows(update.removed) - _num_rows(update.added) for name, update in updates.items()}
    return {
        "run_id": run.run_id,
        "documents": len(document_ids),
        "rows": {name: number for name, number in rows.items() if number},
        "log_rows": log_rows,
        "files": num_files,
    }


def _wait_for_readers(output: Location, run_ids: Sequence[str]) -> None:
    """Returns when the readers of runs that were just taken over have left: they write to the log until then."""
    now = datetime.now(UTC)
    notes = [note for run_id in run_ids if (note := read_progress(output, run_id=run_id)) is not None]
    if any(now - datetime.fromisoformat(note["at"]) < timedelta(seconds=ALIVE_SECONDS) for note in notes):
        log.info(f"waiting {LEAVE_SECONDS:g} s for the readers of run {', '.join(run_ids)} to leave")
        time.sleep(LEAVE_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """Deletes documents from one part of an output after another."""

    output: Location
    document_ids: pa.Array

    def rewrite_log(self) -> int:
        """Removes the documents' turns, outcomes, follow-ups and keys; returns the number of rows.

        Those of a text that another document has too stay.
        """
        hashes = set[str]().union(*read_hashes(self.output, self.document_ids.to_pylist()).values())
        for table, column in _HASH_COLUMNS:
            stored = OutputTable(output=self.output, name=table)
            for batch in stored.dataset().to_batches(columns=["document_id", column]) if stored.exists() else ():
                others = batch.filter(pc.invert(self._is_forgotten(batch["document_id"])))[column]
                is_kept = pc.is_in(others, value_set=pa.array(hashes, others.type))
                hashes.difference_update(others.filter(is_kept).to_pylist())
        gone = pa.array(sorted(hashes), pa.string())
        return rewrite_log(self.output, lambda rows: pc.invert(pc.is_in(rows["document_hash"], value_set=gone)))

    def rewrite_reviews(self) -> None:
        """Removes ids of the documents, and what people wrote of them; who labelled or signed what, and when, stays."""
        for path in _people_files(self.output):
            place = self.output.at(path)
            rows = read_parquet(place)
            is_forgotten = self._is_forgotten(rows["document_id"])
            if not pc.any(is_forgotten, min_count=0).as_py():
                continue
            for name, value in _CLEARED.items():
                if name in rows.schema.names:
                    values = pc.if_else(is_forgotten, pa.scalar(value, rows[name].type), rows[name])
                    rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
            data = parquet_bytes(rows)
            if path.endswith(f"/{SAMPLE_FILE}"):
                _record_sample(self.output.at(path.removesuffix(SAMPLE_FILE) + RECORD_FILE), data)
            place.write_bytes(data)
        self._rewrite_sheets()

    def _rewrite_sheets(self) -> None:
        """Removes rows of the documents from sheets, which may hold labels that nobody has imported yet."""
        names = {document_id.strip() for document_id in self.document_ids.to_pylist()}
        for path in (self.output / REVIEWS_FOLDER).files():
            if not _SHEET.search(path):
                continue
            place = self.output.at(path)
            data = place.read_bytes()
            left = without_documents(data, names, name=place.uri)
            if left != data:
                place.write_bytes(left)

    def delete_rows(self, table: OutputTable) -> TableUpdate:
        """Writes files of a table again without the documents' rows.

        Of `sources`, rows of sources go that no other document is from.
        """
        key, values = "document_id", self.document_ids
        if table.name == SOURCES_TABLE:
            key, values = "source", self._orphaned_sources()
        added, kept, removed = list[TableFile](), list[TableFile](), list[TableFile]()
        for file in table.files().values():
            place, stem = table.place / file.path, file.path.rpartition("-")[0]
            if not _is_in(read_parquet(place, columns=[key]), key, values).true_count:
                kept.append(file)
                continue
            removed.append(file)
            groups = read_row_groups(place)
            first = next(groups)
            with DocumentWriter(table.place, schema=first.schema, stem=stem) as writer:
                for rows in chain([first], groups):
                    if (left := rows.filter(pc.invert(_is_in(rows, key, values)))).num_rows:
                        writer.copy(left)
            added += [replace(new, partition=file.partition) for new in writer.files]
        partition_by = table.open().metadata().partition_columns
        return TableUpdate(schema=table.schema(), partition_by=partition_by, kept=kept, added=added, removed=removed)

    def _orphaned_sources(self) -> pa.Array:
        documents = OutputTable(output=self.output, name=DOCUMENTS_TABLE)
        if not documents.exists():
            return pa.array([], pa.string())
        columns = documents.dataset().scanner(["document_id", "source", "parts"], batch_size=BATCH_ROWS).to_reader()
        forgotten = pa.table({"document_id": self.document_ids})
        with open_database({"documents": columns, "forgotten": forgotten}) as database:
            return database.sql(_ORPHANED_SOURCES).to_arrow_table()["source"].combine_chunks()

    def _is_forgotten(self, names: Any) -> Any:
        return pc.is_in(names, value_set=self.document_ids.cast(names.type))


def _people_files(output: Location) -> list[str]:
    """The files of labels, of sign-offs, and of the samples of reviews."""
    samples = [path for path in (output / REVIEWS_FOLDER).files() if path.endswith(f"/{SAMPLE_FILE}")]
    return [*(output / LABELS_FOLDER).files(), *(output / SIGNED_FOLDER).files(), *samples]


def _record_sample(record: Location, data: bytes) -> None:
    """Makes the record of a review name another sample; before that is written, so that a killed erasure goes on."""
    values = read_json(record)
    if values is not None:
        write_json(record, {**values, "sample_sha256": sha256(data).hexdigest()})


def _is_in(rows: pa.Table, key: str, values: pa.Array) -> pa.BooleanArray:
    """Which rows have one of the values."""
    return pc.is_in(rows[key].combine_chunks(), value_set=values.cast(rows[key].type))


def _manifest(
    last: PastRun, record: RunRecord, updates: Mapping[str, TableUpdate], *, asked: pa.Table, seconds: float
) -> dict[str, Any]:
    """The manifest of the last run as the tables will be. Earlier runs can't be compared with: there is no `since`."""
    answers, update = last.table(ANSWERS_TABLE), updates[ANSWERS_TABLE]
    sums = sum_readings(answers, update, documents=None, since=last.run_id)
    left = answers.dataset_of(update.files, pa.schema([DOCUMENT_ID]))
    with open_database({"answers": left.scanner(["document_id"], batch_size=BATCH_ROWS).to_reader()}) as database:
        ((num_documents,),) = database.sql("select count(distinct document_id) from answers").fetchall()
    documents = last.manifest["documents_table"]
    if documents["output"] is None and last.table(DOCUMENTS_TABLE).exists():
        documents = {"output": None, "version": last.table(DOCUMENTS_TABLE).version()}
    return {
        **last.manifest,
        "run_id": record.run_id,
        "counts": {
            **last.manifest["counts"],
            **cast("RunCounts", sums.counts),
            "asked": sums.num_readings,
            "memories_rows": _num_rows(updates[MEMORIES_TABLE].files),
        },
        "reasons": sums.reasons,
        "num_follow_ups_failed": sums.num_follow_ups_failed,
        "unread": sums.unread,
        "totals": sums.totals,
        "changes": {
            "since": None,
            "documents": {"added": 0, "changed": 0, "removed": record.forgotten, "unchanged": num_documents},
            "questions": changed_questions(asked, asked),
            "readings": sums.readings,
            "turns": {"asked": 0, "reused": 0},
            "answers": sums.num_changed,
            "tables": {},
        },
        "digest_before": last.manifest["digest"],
        "spent": NOTHING_SPENT,
        "started_at": record.started_at,
        "finished_at": datetime.now(UTC).isoformat(),
        "seconds": round(seconds, 3),
        "asked_id": record.asked_id,
        "documents_table": documents,
        "forgotten": {"documents": record.forgotten or 0},
    }


def _num_rows(files: Sequence[TableFile]) -> int:
    return sum(file.num_rows for file in files)


def _remove_files(output: Location, *, asked_id: str) -> int:
    """Removes all files that may hold something of a forgotten document, except for the log; returns their number.

    These are earlier versions of the tables, question lists and notes of earlier runs, input that a program passed,
    pages, exports, half-written files, and what an ingest or a plan left that was killed.
    """
    paths = [path for path in (output / ASKED_FOLDER).files() if path.rpartition("/")[2] != f"{asked_id}.parquet"]
    paths += (output / NOTES_FOLDER).files() + (output / INPUT_FOLDER).files()
    paths += [path for path in (output / REVIEWS_FOLDER).files() if path.endswith(".html")]
    pages = output / PAGES_FOLDER
    paths += pages.files() if (pages / SITE_RECORD_FILE).exists() else []
    paths += (output / EXPORT_FOLDER).files()
    paths += [path for path in output.files(temporary=True) if path.rpartition("/")[2].startswith(TEMPORARY)]
    output.delete_files(paths)
    return len(paths) + vacuum_tables(output, keep_days=0, uncommitted_days=0)
