"""Checks the tables of a finished run: each file is as it was written, and the tables agree with one another."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import file_digest
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE
from memagent_batch.data.store.database import open_database
from memagent_batch.data.store.delta import TableFile, named_hash, shared_tables
from memagent_batch.data.store.errors import FILE_ERRORS, storage_errors, table_errors
from memagent_batch.data.store.location import Location
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.run.commits import digest_of
from memagent_batch.run.history import GONE_REMEDY, PastRun, find_run
from memagent_batch.run.tables import RUNS_TABLE
from memagent_batch.types import Status

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
from evidence
join (select document_id, text_hash as document_hash, text as document_text from documents)
    using (document_id, document_hash)
where text is distinct from substring(document_text, char_start + 1, char_end - char_start)
order by all
"""
CHANGED_TEXTS = "select document_id from documents where sha256(text) <> text_hash order by all"
CHECKS = (
    ("documents", "documents", CHANGED_TEXTS, "its text is not the one whose hash is in text_hash"),
    ("answers", "answers", DUPLICATES, "has several rows"),
    ("memories", "answers", ORPHANS.format(table="memories"), "has no row in answers"),
    ("evidence", "answers", ORPHANS.format(table="evidence"), "has no row in answers"),
    ("evidence", "documents", CHANGED_SPANS, "the document has another text there"),
)
"""A table, the table that it is compared with, the query that finds wrong rows, and what is wrong with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is wrong with an output."""

    where: str
    """A file below the output, or the name of a table."""
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of checking an output."""

    run_id: str
    digest: str
    """SHA-256 over the hashes of all files of the tables, and over the digest of the run before."""
    num_files: int
    problems: list[Problem]


@shared_tables()
def verify(output: Location) -> Verification:
    """Checks the last finished run of an output.

    The rows are compared only if all files are as they were written.

    Raises:
        OutputError: no run has finished here, or a table can't be read.
        StorageError: the store does not answer.
    """
    run = find_run(output)
    files = {name: run.table(name).files(run.version(name)) for name in run.manifest["table_versions"]}
    checked = [
        (run.table(name).place / path, file) for name, of_table in files.items() for path, file in of_table.items()
    ]
    with storage_errors(output.uri, of=FILE_ERRORS), ThreadPoolExecutor(FILE_THREADS) as threads:
        problems = [each for each in threads.map(lambda each: check_file(*each), checked) if each is not None]
    digest = digest_of({name: list(of_table) for name, of_table in files.items()}, before=run.manifest["digest_before"])
    if digest != run.manifest["digest"]:
        problems.append(Problem(where=RUNS_TABLE, what=f"the digest of the files is {digest}, not the recorded one"))
    if not problems:
        counts: Mapping[str, Any] = run.manifest["counts"]
        tables = open_tables(run)
        with table_errors(output.uri, remedy=GONE_REMEDY):
            problems = [*check_tables(tables, counts={status.value: counts[status.value] for status in Status})]
    return Verification(run_id=run.run_id, digest=digest, num_files=len(checked), problems=problems)


def open_tables(run: PastRun) -> dict[str, ds.Dataset]:
    """Opens the tables of a run and its documents."""
    return {name: run.dataset(name) for name in [*run.manifest["table_versions"], DOCUMENTS_TABLE]}


def check_file(place: Location, file: TableFile) -> Problem | None:
    """Compares a table file with the hash in its name, and with the number of rows in the table's log."""
    if not place.exists():
        return Problem(where=str(place), what="the file is missing")
    with place.open() as stream:
        found = file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type] # it has `readinto`
    if not found.startswith(named_hash(file.path)):
        return Problem(where=str(place), what=f"its SHA-256 is {found}, which does not begin as its name says")
    with place.open() as stream:
        num_rows = pq.read_metadata(stream).num_rows
    if num_rows != file.num_rows:
        return Problem(where=str(place), what=f"it has {num_rows:,} rows, and the table's log says {file.num_rows:,}")
    return None


def check_tables(tables: Mapping[str, ds.Dataset], *, counts: Mapping[str, int]) -> Iterator[Problem]:
    """Compares the tables of a run with its counts, and with one another.

    Args:
        tables: `answers` and `documents`, and where the run has them `memories` and `evidence`.
        counts: requested readings of the run by status; a run over a part of the documents leaves other rows as they
            are.
    """
    with open_database(tables) as database:
        found = dict(database.sql("select status, count(*) from answers group by all order by all").fetchall())
        if any(found.get(status, 0) < number for status, number in counts.items()):
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
