"""The tables of an output: their columns and rows, and the files that hold them."""

import io
from collections.abc import Collection, Sequence
from typing import TypedDict

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from memagent_batch.config.job import TableFormat
from memagent_batch.errors import OutputError
from memagent_batch.files.columns import column
from memagent_batch.files.errors import output_errors, table_errors
from memagent_batch.files.location import Location
from memagent_batch.files.options import Options
from memagent_batch.files.parquet import parquet_bytes, read_parquet
from memagent_batch.log.schemas import (
    CLOSING,
    DOCUMENT_HASH,
    KIND,
    PROVENANCE,
    QUESTION_HASH,
    READER_FINGERPRINT,
    RESULT,
    RUN_ID,
    SAMPLE,
    SPAN,
    STATUS,
    ClosingColumns,
    ResultRow,
    TurnRow,
)
from memagent_batch.runs.manifest import require_manifest

ANSWERS_FOLDER = "answers"
MEMORIES_FOLDER = "memories"
REMOVED_FOLDER = "removed"
EVIDENCE_FOLDER = "evidence"
RESULTS_FOLDER = "results"
DOCUMENT_ID = column("document_id", pa.string(), "unique id of the document")
QUESTION_ID = column("question_id", pa.string(), "id of the question")
QUESTION = column("question", pa.string(), "text of the question")
ANSWERS = pa.schema(
    [
        RUN_ID,
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        QUESTION,
        STATUS,
        column("answer", pa.string(), "the answer taken out of the response", nullable=True),
        *RESULT,
        DOCUMENT_HASH.with_nullable(True),
        QUESTION_HASH,
        READER_FINGERPRINT,
        *PROVENANCE,
        column(
            "answer_type",
            pa.string(),
            "type that the question asks for: text, bool, label, labels, number, date, json; null where for none",
            nullable=True,
        ),
        column("value_unit", pa.string(), "unit that `value_number` is asked for in", nullable=True),
        *CLOSING,
        column(
            "votes",
            pa.float64(),
            "share of all samples of this document and question, failed ones included, that have the same value, 0 to "
            "1; null where there is one sample, or no valid value",
            nullable=True,
        ),
        column(
            "num_evidence",
            pa.int32(),
            "rows of `evidence` that are chosen sentences; null where they were not asked for, or the turn failed",
            unit="rows",
            nullable=True,
        ),
    ]
)
"""One row for each reading that was asked for; carried input columns follow."""
LOCATOR = column(
    "locator",
    pa.string(),
    "where the span stood in its source, by `input.locator`: page 3, or page 3 to page 4; null where there is no "
    "locator, or the text could not be fetched",
    nullable=True,
)
EVIDENCE = pa.schema(
    [
        RUN_ID,
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        column(
            "how",
            pa.string(),
            "chosen: a sentence that the model pointed at by its number; aligned: a string of the answer that was "
            "looked for in the text",
        ),
        column("rank", pa.int32(), "position among the rows of the same `how`, from 1; the best first where chosen"),
        column(
            "char_start",
            pa.int64(),
            "first character of the span in the text as stored, in which a CRLF is two; null where an aligned string "
            "is nowhere",
            unit="code points",
            nullable=True,
        ),
        column("char_end", pa.int64(), "character after its last one", unit="code points", nullable=True),
        column("text", pa.string(), "the span's text, character for character", nullable=True),
        column(
            "chunk_index",
            pa.int32(),
            "the first chunk that shows the sentence, from 0; null for policies without chunks, and where aligned",
            nullable=True,
        ),
        LOCATOR,
        column(
            "alignment",
            pa.string(),
            "how the string equals the span: exact, folded (but for case, width, white space), fuzzy, or none; a "
            "chosen sentence is exact",
        ),
        column("quote", pa.string(), "the string as the answer has it; null for a chosen sentence", nullable=True),
        DOCUMENT_HASH,
        QUESTION_HASH,
        READER_FINGERPRINT,
    ]
)
"""One row for each sentence that an answer rests on, and for each string of the answer that was looked for."""
MEMORIES = pa.schema(
    [
        RUN_ID,
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        column("turn", pa.int32(), "position of the turn in its reading, from 0, in the order of reading"),
        KIND,
        *SPAN,
        LOCATOR,
        column(
            "memory",
            pa.string(),
            "the memory after this turn, as the next prompt shows it; for a turn that writes a note, the note",
        ),
        column(
            "changed",
            pa.bool_(),
            "whether this turn changed the memory, or its note has news; a gated policy keeps the memory by a word",
        ),
        column("num_tokens", pa.int32(), "completion of the turn, without thoughts that an API hides", unit="tokens"),
        column("finish_reason", pa.string(), "why the completion ended: stop or length"),
        DOCUMENT_HASH,
        QUESTION_HASH,
        READER_FINGERPRINT,
    ]
)
"""One row for each turn of each reading: which span of the document put what into the memory."""
REMOVED = pa.schema(
    [
        DOCUMENT_ID,
        DOCUMENT_HASH.with_nullable(True),
        column("last_run_id", pa.string(), "the last finished run that found it"),
        column("removed_run_id", pa.string(), "the first finished run that did not"),
    ]
)
"""One row for each document that an earlier run found in the input and the latest did not."""
RUN_PLAN = pa.schema(
    [
        DOCUMENT_ID,
        DOCUMENT_HASH.with_nullable(True),
        column("error", pa.string(), "why its text can't be read", nullable=True),
        column("error_type", pa.string(), "kind of that error; null for a `DocumentError`", nullable=True),
        column(
            "readings",
            pa.list_(
                pa.struct(
                    [
                        pa.field("question", pa.int32(), nullable=False),
                        pa.field("sample", pa.int32(), nullable=False),
                        pa.field("run_id", pa.string()),
                    ]
                )
            ),
            "what was asked of it: row of the question list, sample, and the run that read it, if one did",
        ),
    ]
)
"""One row for each document of a run; carried input columns follow, named `carry:<name>`."""
MOVED_TABLES_REMEDY = "a later run of the output replaces the tables: repeat the command on the latest run"
"""What to do about a table file that is gone."""


class AnswerRow(ResultRow, ClosingColumns):
    """A row of `ANSWERS`."""

    run_id: str
    document_id: str
    question_id: str
    sample: int
    question: str
    answer: str | None
    document_hash: str | None
    question_hash: str
    reader_fingerprint: str
    answer_type: str | None
    value_unit: str | None
    votes: float | None
    num_evidence: int | None


class EvidenceRow(TypedDict):
    """A row of `EVIDENCE`."""

    run_id: str
    document_id: str
    question_id: str
    sample: int
    how: str
    rank: int
    char_start: int | None
    char_end: int | None
    text: str | None
    chunk_index: int | None
    locator: str | None
    alignment: str
    quote: str | None
    document_hash: str
    question_hash: str
    reader_fingerprint: str


class MemoryRow(TurnRow):
    """A row of `MEMORIES`, with what else its turn has in the log."""

    document_id: str
    question_id: str
    locator: str | None
    memory: str
    changed: bool


def table_files(output: str, table: str, *, storage_options: Options | None = None) -> list[str]:
    """The files that hold a table of the last finished run: paths, or URIs where the output is one.

    Read these rather than all files of the folder: while a run writes, the next night's files lie there as well. They
    stay until the next run has finished; a reader that then finds one gone asks again.

    Args:
        output: the folder or URI that was `--output`.
        table: `answers`, `memories` or `removed`; also `evidence` and `results`, where the run has them.
        storage_options: arguments of the output's file system.

    Raises:
        OutputError: the output can't be reached, no run has finished there, or there is no such table.
    """
    place = Location(uri=output, storage_options=storage_options or {})
    with output_errors(place.uri):
        return [location.uri for location in table_locations(place, table)]


def table_locations(output: Location, table: str) -> list[Location]:
    """The files that hold a table of the last finished run, as its manifest names them.

    Raises:
        OutputError: there is no manifest, or no such table.
    """
    manifest = require_manifest(output)
    if table not in manifest["files"]:
        raise OutputError(f"output: {output.uri} has no table {table!r}; it has {', '.join(sorted(manifest['files']))}")
    return [output / name for name in manifest["files"][table]]


def read_table_columns(place: Location, names: Collection[str]) -> pa.Table:
    """A table file, with those of the columns that it has.

    Raises:
        OutputError: it is gone or can't be read.
    """
    with table_errors(place.uri, remedy=MOVED_TABLES_REMEDY), place.open() as stream:
        if not place.path.endswith(".parquet"):
            table = pa.ipc.open_file(stream).read_all()
            return table.select([name for name in table.schema.names if name in names])
        with pq.ParquetFile(stream, pre_buffer=False) as file:
            return file.read(columns=[name for name in file.schema_arrow.names if name in names], use_threads=False)


def read_tables(output: Location, names: Sequence[str], *, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of table files of one run, by their names in its manifest; all columns by default.

    Raises:
        OutputError: a file is gone or can't be read.
    """
    return pa.concat_tables([_rows_of_file(output / name, columns=columns) for name in names])


def _rows_of_file(place: Location, *, columns: Sequence[str] | None) -> pa.Table:
    with table_errors(place.uri, remedy=MOVED_TABLES_REMEDY):
        if place.path.endswith(".parquet"):
            return read_parquet(place, columns=columns)
        with place.open() as stream:
            table = pa.ipc.open_file(stream).read_all()
            return table if columns is None else table.select(list(columns))


def table_bytes(table: pa.Table, *, table_format: TableFormat) -> bytes:
    """The table as one file, zstd."""
    if table_format == TableFormat.PARQUET:
        return parquet_bytes(table)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def count_rows(place: Location) -> int | None:
    """Rows that a table file really holds, by its own footer; None where it is gone."""
    try:
        with place.open() as stream:
            if place.path.endswith(".parquet"):
                return int(pq.ParquetFile(stream).metadata.num_rows)
            reader = pa.ipc.open_file(stream)
            return sum(int(reader.get_batch(number).num_rows) for number in range(reader.num_record_batches))
    except FileNotFoundError:
        return None
