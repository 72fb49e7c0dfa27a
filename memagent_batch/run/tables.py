"""The tables of an output: their columns, and how they are read at the versions that a run names."""

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pyarrow as pa
import pyarrow.dataset as ds

from memagent_batch.config.storage import Options
from memagent_batch.data.ingest.tables import DOCUMENTS_TABLE, SOURCES_TABLE
from memagent_batch.data.store.columns import Column, arrow_schema
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.location import Location, absolute
from memagent_batch.data.store.turn_log.rows import (
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
    SampleNumber,
    TokenEnd,
    TokenStart,
    TurnKind,
    TurnWrites,
)
from memagent_batch.errors import OutputError

if TYPE_CHECKING:
    from memagent_batch.run.history import PastRun

READING_TABLES = ("answers", "memories", "evidence", "results")
"""Tables with the rows of readings, in the order in which they are committed: `runs` comes after them."""
ANSWERS_TABLE, MEMORIES_TABLE, EVIDENCE_TABLE, RESULTS_TABLE = READING_TABLES
RUNS_TABLE, ROLLOUTS_TABLE = "runs", "rollouts"
LATEST = "latest"
"""Names the last finished run."""
READING_COLUMNS = ("document_id", "question_id", "sample")
ReadingIds = tuple[str, str, int]

DocumentId = Annotated[str, Column("unique id of the document")]
QuestionId = Annotated[str, Column("id of the question")]
QuestionText = Annotated[str, Column("text of the question")]
Locator = Annotated[
    str | None,
    Column("place of the span in its source: page 3, or page 3 to page 4; null if unknown"),
]


RunId = Annotated[str, Column("last run that changed any column of a row of this document")]
ReadRunId = Annotated[str, Column("run that called the model for it")]


class _ReadingColumns(TypedDict):
    run_id: RunId
    read_run_id: ReadRunId
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
        Column("type that the question asks for: text, bool, label, labels, number, date, json; null for none"),
    ]
    value_unit: Annotated[str | None, Column("unit of `value_number`")]


class AnswerRow(_AskedColumns, ResultColumns, _AnswerAddress, ProvenanceColumns, _AskedType, FollowUpColumns):
    """One row for each reading that was asked for; carried input columns follow."""

    votes: Annotated[
        float | None,
        Column(
            "share of the samples of this document and question that have the same value, 0 to 1; null for one "
            "sample or no valid value"
        ),
    ]
    value_doubt: Annotated[
        str | None,
        Column(
            "why the value needs a look: a refusal, or it does not follow from the answer or the evidence; else null"
        ),
    ]
    num_evidence: Annotated[
        int | None,
        pa.int32(),
        Column(
            "chosen sentences in `evidence`; null if not asked for, or if the turn failed",
            "rows",
        ),
    ]
    inputs_hash: Annotated[
        str,
        Column("hash of document, question, agent and carried columns; while it is the same, the row is kept"),
    ]


class EvidenceRow(_ReadingColumns):
    """One row for each sentence that an answer rests on, and for each string of the answer that was looked for."""

    how: Annotated[
        str,
        Column(
            "chosen: a sentence that the model chose; aligned: a string of the answer that was searched for in the text"
        ),
    ]
    rank: Annotated[int, pa.int32(), Column("position among the rows of the same `how`, from 1, best first")]
    char_start: Annotated[
        int | None,
        Column(
            "first character of the span in the stored text; null if it was not found",
            "code points",
        ),
    ]
    char_end: CharEnd
    text: Annotated[str | None, Column("the span's text, character for character")]
    chunk_index: Annotated[
        int | None,
        pa.int32(),
        Column("first chunk that shows the sentence, from 0; null for policies without chunks, and if aligned"),
    ]
    locator: Locator
    alignment: Annotated[
        str,
        Column("exact, folded (equal except for case, width, white space), or none; a chosen sentence is exact"),
    ]
    quote: Annotated[str | None, Column("the string as the answer has it; null for a chosen sentence")]
    document_hash: DocumentHash
    question_hash: QuestionHash
    fingerprint: Fingerprint


class MemoryRow(_ReadingColumns):
    """One row for each turn of each reading: which span of the document put what into the memory."""

    turn: Annotated[int, pa.int32(), Column("position of the turn in its reading, from 0")]
    kind: TurnKind
    writes: TurnWrites
    chunk_index: ChunkIndex
    token_start: TokenStart
    token_end: TokenEnd
    char_start: CharStart
    char_end: CharEnd
    locator: Locator
    memory: Annotated[str, Column("the memory after this turn; for a turn that writes a note, the note")]
    changed: Annotated[
        bool,
        Column("whether this turn changed the memory, or wrote a note with news"),
    ]
    num_tokens: Annotated[int, pa.int32(), Column("tokens of the completion, without hidden thoughts", "tokens")]
    finish_reason: Annotated[str, Column("stop, or length if the completion was cut")]
    document_hash: DocumentHash
    question_hash: QuestionHash
    fingerprint: Fingerprint


ANSWERS = arrow_schema(AnswerRow)
EVIDENCE = arrow_schema(EvidenceRow)
MEMORIES = arrow_schema(MemoryRow)
DOCUMENT_ID, QUESTION_ID, QUESTION = (ANSWERS.field(name) for name in ("document_id", "question_id", "question"))


def table(
    output: str | PathLike[str], name: str, *, run_id: str = LATEST, storage_options: Options | None = None
) -> pa.Table:
    """Reads a table of an output as a finished run left it.

    Tables that are read of one run fit each other. `deltalake`, Spark, Polars and others read each table alone from
    its folder below the output.

    Args:
        output: The folder or URI that was `--output`.
        name: `answers`, `memories`, `evidence`, `results`, `runs`, `rollouts`, `documents` or `sources`.
        run_id: The run, `latest`, or `previous`. `runs`, `rollouts` and `sources` can be read only as they are now.
        storage_options: Arguments of the output's file system.

    Raises:
        OutputError: there is no such run or table, the table is not kept by run, or `VACUUM` has removed files of that
            version.
    """
    place = Location(uri=absolute(output), storage_options=storage_options or {})
    with output_errors(place.uri):
        _require_kept_by_run(name, run_id)
        if _is_read_alone(place, name, run_id):
            return OutputTable(output=place, name=name).dataset().to_table()
        return _past_run(place, run_id).read(name)


def dataset(
    output: str | PathLike[str], name: str, *, run_id: str = LATEST, storage_options: Options | None = None
) -> ds.Dataset:
    """Opens a table of an output as a dataset, which is read batch by batch; takes and raises what `table` does."""
    place = Location(uri=absolute(output), storage_options=storage_options or {})
    with output_errors(place.uri):
        _require_kept_by_run(name, run_id)
        if _is_read_alone(place, name, run_id):
            return OutputTable(output=place, name=name).dataset()
        return _past_run(place, run_id).dataset(name)


def _require_kept_by_run(name: str, run_id: str) -> None:
    """Refuses an earlier state of a table whose versions no run records.

    Raises:
        OutputError: says what to read instead.
    """
    if run_id != LATEST and name in (RUNS_TABLE, ROLLOUTS_TABLE, SOURCES_TABLE):
        remedy = "; `documents` has the sources that a run read" if name == SOURCES_TABLE else ""
        raise OutputError(f"run_id {run_id!r}: runs don't record versions of {name}; leave run_id out{remedy}")


def _is_read_alone(output: Location, name: str, run_id: str) -> bool:
    """Whether a table is read at its latest version: that of the runs, and those of an output that has no run yet."""
    is_ingested = name in (DOCUMENTS_TABLE, SOURCES_TABLE)
    has_runs = OutputTable(output=output, name=RUNS_TABLE).exists
    return name == RUNS_TABLE or (is_ingested and run_id == LATEST and not has_runs())


def _past_run(output: Location, run_id: str) -> "PastRun":
    from memagent_batch.run.history import find_run  # it reads the table of runs, which is described here

    return find_run(output, run_id)


def reading_ids(row: Mapping[str, Any]) -> ReadingIds:
    """The reading that a row belongs to."""
    return row["document_id"], row["question_id"], row["sample"]
