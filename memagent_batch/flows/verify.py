"""Checks the tables of a finished run: each file is as it was written, and the tables agree with one another."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import file_digest, sha256
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from memagent_batch.domain.readings import Status
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.runs.document_texts import DocumentTexts
from memagent_batch.runs.history import PastRun, read_run
from memagent_batch.runs.manifest import PART_TABLES, Manifest, require_manifest, rows_of_files
from memagent_batch.runs.tables import EVIDENCE_FOLDER, MOVED_TABLES_REMEDY, count_rows, table_dataset
from memagent_batch.store.database import on_disk, open_database
from memagent_batch.store.errors import FILE_ERRORS, output_errors, storage_errors, table_errors
from memagent_batch.store.json_files import json_bytes
from memagent_batch.store.location import Location

FILE_THREADS = 16
"""Files read at once: enough to keep a core busy where a store answers in 50 ms."""
SHOWN_ROWS = 5
"""Wrong rows of a table that are named; the others are counted."""

DUPLICATES = "select document_id, question_id, sample from answers group by all having count(*) > 1 order by all"
ORPHANS = """
select distinct document_id, question_id, sample from {table}
anti join answers using (document_id, question_id, sample) order by all
"""
CHANGED_SPANS = """
select document_id, question_id, sample, char_start, char_end
from evidence join documents using (document_id, document_hash)
where evidence.text is distinct from substring(documents.text, char_start + 1, char_end - char_start)
order by all
"""
CHECKS = (
    ("answers", "answers", DUPLICATES, "has several rows"),
    ("memories", "answers", ORPHANS.format(table="memories"), "has no row in answers"),
    ("evidence", "answers", ORPHANS.format(table="evidence"), "has no row in answers"),
    ("evidence", "documents", CHANGED_SPANS, "the document has another text there"),
)
"""A table, the table that it is compared with, the query that finds wrong rows, and what is wrong with them."""
DOCUMENTS = pa.schema([(name, pa.large_string()) for name in ("document_id", "document_hash", "text")])
"""Columns of the table `documents` that spans are compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is wrong with an output."""

    where: str
    """A file below the output, or the name of a table."""
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFile:
    """A table file, as its run recorded it."""

    name: str
    num_rows: int | None
    sha256: str | None
    """None if the run recorded no hash; the same holds of the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of checking an output."""

    run_id: str
    digest: str
    """SHA-256 of the record. The record has the hashes of all table files, so that this one value stands for all."""
    num_files: int
    problems: list[Problem]


def verify(output: Location, *, with_text: bool = True) -> Verification:
    """Checks the last finished run of an output; compares evidence with the documents if `with_text`.

    The rows are compared only if all files are as recorded.

    Raises:
        InputError: the documents can't be read.
        OutputError: no run has finished here, or a table can't be read.
        StorageError: the store does not answer.
    """
    with output_errors(output.uri):
        manifest = require_manifest(output)
    files = recorded_files(manifest)
    with storage_errors(output.uri, of=FILE_ERRORS), ThreadPoolExecutor(FILE_THREADS) as threads:
        problems = [each for each in threads.map(lambda file: check_file(output, file), files) if each is not None]
    if not problems:
        counts: Mapping[str, Any] = manifest["counts"]
        tables = open_tables(output, manifest, with_text=with_text)
        with table_errors(output.uri, remedy=MOVED_TABLES_REMEDY):
            problems = [*check_tables(tables, counts={status.value: counts[status.value] for status in Status})]
    record = {name: value for name, value in manifest.items() if name != "claimed_by"}  # a later run adds that field
    digest = sha256(json_bytes(record)).hexdigest()
    return Verification(run_id=manifest["run_id"], digest=digest, num_files=len(files), problems=problems)


def recorded_files(manifest: Manifest) -> list[RecordedFile]:
    """Returns the table files that a run recorded."""
    hashes = {each["file"]: each["sha256"] for part in manifest["parts"] for each in part.get("hashes") or ()}
    num_rows = {name: number for part in manifest["parts"] for name, number in rows_of_files(part).items()}
    names = [name for table in PART_TABLES for name in manifest["files"].get(table, ())]
    return [RecordedFile(name=name, num_rows=num_rows.get(name), sha256=hashes.get(name)) for name in names]


def open_tables(output: Location, manifest: Manifest, *, with_text: bool) -> dict[str, ds.Dataset]:
    """Opens the tables of a run, and with `evidence` also its documents."""
    named = {table: names for table in PART_TABLES if (names := manifest["files"].get(table))}
    tables = {table: table_dataset([output / name for name in names]) for table, names in named.items()}
    if with_text and EVIDENCE_FOLDER in tables:
        tables["documents"] = ds.dataset(_documents(read_run(output, manifest)))
    return tables


def _documents(past: PastRun) -> pa.Table:
    """Reads the texts of the run's documents, except for those that are missing or have changed."""
    columns = past.plan.select(["document_id", "document_hash"]).drop_null().to_pydict()
    hashes = dict(zip(*columns.values(), strict=True))
    texts = DocumentTexts(past.output, past.manifest, wanted=hashes, without="--without-text")
    rows = ([text.document_id, hashes[text.document_id], text.text] for text in texts.fetch([*hashes]))
    return on_disk((pa.record_batch([[value] for value in row], schema=DOCUMENTS) for row in rows), schema=DOCUMENTS)


def check_file(output: Location, file: RecordedFile) -> Problem | None:
    """Compares hash and number of rows of a table file with its record."""
    place = output / file.name
    if not place.exists():
        return Problem(where=file.name, what="the file is missing")
    with place.open() as stream:
        found = file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type] # it has `readinto`
    if file.num_rows is None:
        return Problem(where=file.name, what="the run did not record it as a file of its own")
    if file.sha256 not in (None, found):
        return Problem(where=file.name, what=f"its SHA-256 is {found}, and the run recorded {file.sha256}")
    num_rows = count_rows(place)
    if num_rows != file.num_rows:
        has = "it can't be read" if num_rows is None else f"it has {quantity(num_rows, 'row')}"
        return Problem(where=file.name, what=f"{has}, and the run recorded {quantity(file.num_rows, 'row')}")
    return None


def check_tables(tables: Mapping[str, ds.Dataset], *, counts: Mapping[str, int]) -> Iterator[Problem]:
    """Compares the tables of a run with its counts, and with one another.

    Args:
        tables: `answers`, and where the run has them `memories`, `evidence` and `documents`.
        counts: requested readings by status.
    """
    with open_database(tables) as database:
        found = dict(database.sql("select status, count(*) from answers group by all order by all").fetchall())
        if found != {status: number for status, number in counts.items() if number}:
            yield Problem(where="answers", what=f"its rows by status are {found}, and the run recorded {dict(counts)}")
        for table, other, query, what in CHECKS:
            if not {table, other} <= tables.keys():
                continue
            rows = database.sql(query).to_arrow_table()
            for row in rows.slice(0, SHOWN_ROWS).to_pylist():
                columns = ", ".join(f"{name} {value!r}" for name, value in row.items())
                yield Problem(where=table, what=f"{columns}: {what}")
            if rows.num_rows > SHOWN_ROWS:
                yield Problem(where=table, what=f"{what}: {quantity(rows.num_rows - SHOWN_ROWS, 'further row')}")
