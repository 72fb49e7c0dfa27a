"""The tables of an output: their columns and rows, and the files that hold them."""

import io
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, TypedDict

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.ipc
import pyarrow.parquet as pq

from memagent_batch.config.job import TableFormat
from memagent_batch.config.storage import Options
from memagent_batch.documents.listing import CONVERTED_FORMAT
from memagent_batch.errors import OutputError
from memagent_batch.runs.manifest import FORMAT, PART_TABLES, RUN_FILE, require_manifest
from memagent_batch.store.columns import Column, arrow_schema
from memagent_batch.store.errors import FILE_ERRORS, is_of_content, output_errors, table_errors
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes
from memagent_batch.store.turn_log.rows import (
    TEXT_HASH,
    CharEnd,
    CharStart,
    ChunkIndex,
    DocumentHash,
    EndedStatus,
    Fingerprint,
    FollowUpColumns,
    ProvenanceColumns,
    QuestionHash,
    ResultColumns,
    RunId,
    SampleNumber,
    TokenEnd,
    TokenStart,
    TurnKind,
)

ANSWERS_FOLDER, MEMORIES_FOLDER, EVIDENCE_FOLDER, RESULTS_FOLDER = PART_TABLES
REMOVED = "removed"
"""The table of documents that are gone, a file of the record of its run."""
MOVED_TABLES_REMEDY = "a later run of the output replaces the tables: repeat the command on the latest run"
READING_COLUMNS = ("document_id", "question_id", "sample")
ReadingIds = tuple[str, str, int]

DocumentId = Annotated[str, Column("unique id of the document")]
QuestionId = Annotated[str, Column("id of the question")]
QuestionText = Annotated[str, Column("text of the question")]
Locator = Annotated[
    str | None,
    Column(
        "place of the span in its source, by `input.locator`: page 3, or page 3 to page 4; null if there is no "
        "locator, or the text could not be fetched"
    ),
]


class _ReadingColumns(TypedDict):
    run_id: RunId
    document_id: DocumentId
    question_id: QuestionId
    sample: SampleNumber


class _AskedColumns(_ReadingColumns):
    question: QuestionText
    status: EndedStatus
    answer: Annotated[str | None, Column("the answer taken out of the response")]


class _AnswerAddress(TypedDict):
    document_hash: Annotated[str | None, TEXT_HASH]
    question_hash: QuestionHash
    fingerprint: Fingerprint


class _AskedType(TypedDict):
    answer_type: Annotated[
        str | None,
        Column(
            "type that the question asks for: text, bool, label, labels, number, date, json; null if it asks for none"
        ),
    ]
    value_unit: Annotated[str | None, Column("unit that `value_number` is asked for in")]


class AnswerRow(_AskedColumns, ResultColumns, _AnswerAddress, ProvenanceColumns, _AskedType, FollowUpColumns):
    """One row for each reading that was asked for; carried input columns follow."""

    votes: Annotated[
        float | None,
        Column(
            "share of all samples of this document and question, failed ones included, that have the same value, 0 to "
            "1; null if there is one sample, or no valid value"
        ),
    ]
    value_doubt: Annotated[
        str | None,
        Column(
            "why the value, or an answer that is none, needs a look: the model refused to answer, the value does not "
            "follow from the answer, or the evidence does not have the value; null if nothing speaks against it"
        ),
    ]
    num_evidence: Annotated[
        int | None,
        pa.int32(),
        Column(
            "rows of `evidence` that are chosen sentences; null if they were not asked for, or the turn failed",
            "rows",
        ),
    ]


class EvidenceRow(_ReadingColumns):
    """One row for each sentence that an answer rests on, and for each string of the answer that was looked for."""

    how: Annotated[
        str,
        Column(
            "chosen: a sentence that the model pointed at by its number; aligned: a string of the answer that was "
            "looked for in the text"
        ),
    ]
    rank: Annotated[
        int, pa.int32(), Column("position among the rows of the same `how`, from 1; the best first if chosen")
    ]
    char_start: Annotated[
        int | None,
        Column(
            "first character of the span in the text as stored, in which a CRLF is two; null if an aligned string "
            "is nowhere",
            "code points",
        ),
    ]
    char_end: CharEnd
    text: Annotated[str | None, Column("the span's text, character for character")]
    chunk_index: Annotated[
        int | None,
        pa.int32(),
        Column("the first chunk that shows the sentence, from 0; null for policies without chunks, and if aligned"),
    ]
    locator: Locator
    alignment: Annotated[
        str,
        Column(
            "how the string equals the span: exact, folded (except for case, width, white space), or none; a chosen "
            "sentence is exact"
        ),
    ]
    quote: Annotated[str | None, Column("the string as the answer has it; null for a chosen sentence")]
    document_hash: DocumentHash
    question_hash: QuestionHash
    fingerprint: Fingerprint


class MemoryRow(_ReadingColumns):
    """One row for each turn of each reading: which span of the document put what into the memory."""

    turn: Annotated[int, pa.int32(), Column("position of the turn in its reading, from 0, in the order of reading")]
    kind: TurnKind
    chunk_index: ChunkIndex
    token_start: TokenStart
    token_end: TokenEnd
    char_start: CharStart
    char_end: CharEnd
    locator: Locator
    memory: Annotated[
        str, Column("the memory after this turn, as the next prompt shows it; for a turn that writes a note, the note")
    ]
    changed: Annotated[
        bool,
        Column(
            "whether this turn changed the memory, or its note has news; a gated policy keeps the memory by a word, "
            "and `num_tokens` says where more than this word was written"
        ),
    ]
    num_tokens: Annotated[
        int, pa.int32(), Column("completion of the turn, without thoughts that an API hides", "tokens")
    ]
    finish_reason: Annotated[str, Column("why the completion ended: stop or length")]
    document_hash: DocumentHash
    question_hash: QuestionHash
    fingerprint: Fingerprint


class RemovedRow(TypedDict):
    """One row for each document that an earlier run found in the input and the latest did not."""

    document_id: DocumentId
    document_hash: Annotated[str | None, TEXT_HASH]
    last_run_id: Annotated[str, Column("the last finished run that found it")]
    removed_run_id: Annotated[str, Column("the first finished run that did not")]


class PlannedReadingRow(TypedDict):
    """A reading of a document in the plan of a run."""

    question: Annotated[int, pa.int32()]
    sample: Annotated[int, pa.int32()]
    run_id: str | None


class PlannedDocumentRow(TypedDict):
    """One row for each document of a run; carried input columns follow, named `carry:<name>`."""

    document_id: DocumentId
    document_hash: Annotated[str | None, TEXT_HASH]
    error: Annotated[str | None, Column("why its text can't be read")]
    error_type: Annotated[str | None, Column("kind of that error; null for a `DocumentError`")]
    readings: Annotated[
        list[PlannedReadingRow],
        Column("what was asked of it: row of the question list, sample, and the run that read it, if one did"),
    ]


ANSWERS = arrow_schema(AnswerRow)
EVIDENCE = arrow_schema(EvidenceRow)
MEMORIES = arrow_schema(MemoryRow)
REMOVED_TABLE = arrow_schema(RemovedRow)
RUN_PLAN = arrow_schema(PlannedDocumentRow)
DOCUMENT_ID, QUESTION_ID, QUESTION = (ANSWERS.field(name) for name in ("document_id", "question_id", "question"))


def run_output(place: Location) -> Location:
    """Where runs write; of the folder of `memagent scan` its answers."""
    answers = place / ANSWERS_FOLDER
    return answers if not (place / RUN_FILE).exists() and (answers / RUN_FILE).exists() else place


def table_files(output: str | Sequence[str], table: str, *, storage_options: Options | None = None) -> list[str]:
    """The files that hold a table of the last finished run: paths, or URIs where the output is one.

    Read these rather than all files of the folder: while a run writes, the next night's files lie there as well. They
    stay for `record.keep_nights` runs, though later ones replace them.

    Args:
        output: the folder or URI that was `--output`, of a scan too; of several, as those of slices, the files of all.
        table: `answers`, `memories` or `removed`; also `evidence` and `results`, where the run has them.
        storage_options: arguments of the output's file system; no variable of the environment is read for them.

    Raises:
        OutputError: the output can't be reached, no run has finished there, or there is no such table.
    """
    files: list[str] = []
    for uri in [output] if isinstance(output, str) else output:
        place = Location(uri=uri, storage_options=storage_options or {})
        with output_errors(place.uri):
            files += [location.uri for location in table_locations(run_output(place), table)]
    return files


def table_locations(output: Location, table: str) -> list[Location]:
    """The files that hold a table of the last finished run, as its manifest names them."""
    manifest = require_manifest(output, formats=(FORMAT, CONVERTED_FORMAT))
    if table not in manifest["files"]:
        raise OutputError(f"output: {output.uri} has no table {table!r}; it has {', '.join(sorted(manifest['files']))}")
    return [output / name for name in manifest["files"][table]]


def reading_ids(row: Mapping[str, Any]) -> ReadingIds:
    """The reading that a row belongs to."""
    return row["document_id"], row["question_id"], row["sample"]


def table_dataset(places: Sequence[Location]) -> ds.Dataset:
    """Files of a table of one run; some rows at a time are read of it."""
    first = places[0]
    with table_errors(first.uri, remedy=MOVED_TABLES_REMEDY):
        kind = "parquet" if first.path.endswith(".parquet") else "ipc"
        return ds.dataset([place.path for place in places], filesystem=first.fs, format=kind)


def read_table_columns(place: Location, names: Collection[str] | None) -> pa.Table:
    """A table file, with those of the columns that it has; with None all."""
    with table_errors(place.uri, remedy=MOVED_TABLES_REMEDY), place.open() as stream:
        if not place.path.endswith(".parquet"):
            table = pa.ipc.open_file(stream).read_all()
            return table.select([name for name in table.schema.names if names is None or name in names])
        with pq.ParquetFile(stream, pre_buffer=False) as file:
            wanted = [name for name in file.schema_arrow.names if names is None or name in names]
            return file.read(columns=wanted, use_threads=False)


def read_tables(output: Location, names: Sequence[str], *, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of table files of one run, by their names in its manifest; all columns by default."""
    tables = [read_table_columns(output / name, columns) for name in names]
    with table_errors(output.uri, remedy=MOVED_TABLES_REMEDY):
        return pa.concat_tables(table if columns is None else table.select(list(columns)) for table in tables)


def table_bytes(table: pa.Table, *, table_format: TableFormat) -> bytes:
    """The table as one file, zstd."""
    if table_format == TableFormat.PARQUET:
        return parquet_bytes(table)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def count_rows(place: Location) -> int | None:
    """Rows that a table file really holds, by its own footer; None where it is gone or damaged."""
    try:
        with place.open() as stream:
            if place.path.endswith(".parquet"):
                return int(pq.ParquetFile(stream).metadata.num_rows)
            reader = pa.ipc.open_file(stream)
            return sum(int(reader.get_batch(number).num_rows) for number in range(reader.num_record_batches))
    except FILE_ERRORS as error:
        if isinstance(error, FileNotFoundError) or is_of_content(error):
            return None
        raise
