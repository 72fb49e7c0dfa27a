"""The tables of a run: projections of plan and turn log, and of the texts that their spans lie in."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from memagent_batch.config.job import TableFormat
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.inputs.document_index import CARRY_PREFIX
from memagent_batch.log.question_list import AskedQuestion, asked_in
from memagent_batch.log.schemas import OutcomeRow
from memagent_batch.runs.rows.looks import Look, PartDocument, hold_part
from memagent_batch.runs.rows.projection import Projection
from memagent_batch.runs.tables.evidence import Answered, PartSpans, spans_of_part
from memagent_batch.runs.tables.results import results_table
from memagent_batch.runs.tables.schemas import ANSWERS, EVIDENCE, MEMORIES, AnswerRow
from memagent_batch.runs.tables.votes import with_votes

ANSWERS_FOLDER = "answers"
MEMORIES_FOLDER = "memories"
REMOVED_FOLDER = "removed"
EVIDENCE_FOLDER = "evidence"
RESULTS_FOLDER = "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTables:
    """The rows of one part of the plan."""

    answers: pa.Table
    """`ANSWERS` and the carried columns."""
    memories: pa.Table
    """`MEMORIES`."""
    evidence: pa.Table | None
    """`EVIDENCE`; None where it was not asked for."""
    results: pa.Table | None
    """`results_schema`; None where no question asks for a type."""
    is_whole: bool
    """Whether each text that was needed was there; else the next run writes the part again."""
    missing: list[str]
    """Readings asked for that the log has no outcome of, though no reader reported it as not read."""


def project(part: pa.Table, *, projection: Projection, not_read: Sequence[OutcomeRow] = ()) -> PartTables:
    """The rows of a part of the plan (a table of `plan_parts`), from the log files that the part names.

    `not_read`: what stands in for the outcomes of readings that were not read, as rows of `OUTCOME_LOG`.
    """
    held = hold_part(part, projection=projection, not_read=not_read)
    looks: list[Look] = []
    answered: list[Answered] = []
    missing: list[str] = []
    for row, document, question, sample in _readings(part):
        look = held.look(document, question, sample)
        if look is None:
            names = f"document {document['document_id']!r}, question {question['question_id']!r}"
            missing.append(f"{names}, sample {sample}")
            continue
        looks.append(look)
        answered.append(Answered(row=row, answer=look.answer, sentences=look.sentences, turns=look.memories))
    rows = part.take(pa.array([each.row for each in answered], pa.int64()))
    carried = {name: rows[CARRY_PREFIX + name].to_pylist() for name in carried_columns(part.schema)}
    answers = with_votes([look.answer for look in looks])
    spans = _spans(part, answered, projection=projection)
    return PartTables(
        answers=answers_table(answers, carried=carried),
        memories=pa.Table.from_pylist(spans.memories, schema=MEMORIES),
        evidence=pa.Table.from_pylist(spans.evidence, schema=EVIDENCE) if spans.evidence is not None else None,
        results=results_table(part["document_id"].to_pylist(), answers, questions=projection.results)
        if projection.results
        else None,
        is_whole=spans.is_whole,
        missing=missing,
    )


def _spans(part: pa.Table, answered: Sequence[Answered], *, projection: Projection) -> PartSpans:
    """The rows that have spans, with what the documents' texts say of them."""
    if projection.documents is None:
        return PartSpans(evidence=None, memories=[turn for each in answered for turn in each.turns], is_whole=True)
    return spans_of_part(
        part,
        answered,
        documents=projection.documents,
        settings=projection.input,
        has_evidence=projection.has_evidence,
    )


def answers_table(rows: Sequence[AnswerRow], *, carried: Mapping[str, Sequence[str | None]]) -> pa.Table:
    """Rows of `ANSWERS`, and behind them the carried columns: a value for each row."""
    table = pa.Table.from_pylist(list(rows), schema=ANSWERS)
    for name, values in carried.items():
        table = table.append_column(pa.field(name, pa.string()), pa.array(values, pa.string()))
    return table


def carried_columns(schema: pa.Schema) -> list[str]:
    """Names of the carried input columns of a document index."""
    return [name.removeprefix(CARRY_PREFIX) for name in schema.names if name.startswith(CARRY_PREFIX)]


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


def _readings(part: pa.Table) -> Iterator[tuple[int, PartDocument, AskedQuestion, int]]:
    """Row of the part, document, question and sample of each reading."""
    asked = asked_in(part)
    documents = part.select(["document_id", "document_hash", "error", "error_type", "readings"]).to_pylist()
    for row, document in enumerate(documents):
        for reading in document["readings"]:
            yield row, document, asked[reading["question"]], reading["sample"]
