"""Reads the answers of any run, or of anything else that wrote such a table, as far as scoring needs them."""

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.readings import Status
from memagent_batch.errors import InputError
from memagent_batch.evaluation.closing_scores import SPAN_COLUMNS, EvidenceSpans, evidence_spans
from memagent_batch.evaluation.suites.schemas import ANSWER_COLUMNS
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.columnar import open_grouped
from memagent_batch.inputs.listing import list_files
from memagent_batch.runs.manifest import MANIFEST_FILE, RUN_FILE, require_manifest
from memagent_batch.runs.tables.table_files import table_locations
from memagent_batch.runs.tables.tables import ANSWERS_FOLDER, EVIDENCE_FOLDER

REQUIRED_COLUMNS = ("document_id", "question_id", "answer")
"""Columns without which nothing can be scored. Of the others, a table that lacks them has the values in `ABSENT`."""

ABSENT = {"sample": 0, "status": Status.OK.value} | dict.fromkeys(
    field.name for field in ANSWER_COLUMNS if field.nullable
)
"""What a missing column stands for; 0 where it is not named here."""


def read_answers(location: Location) -> pa.Table:
    """A table of `ANSWER_COLUMNS`.

    Args:
        location: Parquet or Arrow files (a file, folder or glob) with the columns document_id, question_id and answer;
            or the output of a run that has finished.

    Readings that were not read are left out, as ones that the table has no row of.

    Raises:
        InputError: a file or column can't be read, or the run has not finished.
    """
    table = pa.concat_tables([_read_answer_file(place) for place in _answer_files(location)])
    known = {status.value for status in Status}
    for status in table["status"].unique().to_pylist():
        if status not in known:
            raise InputError(
                f"{location.uri}: column 'status' says {status!r}; write ok or failed, or leave the column out"
            )
    table = table.filter(pc.not_equal(table["status"], Status.NOT_READ.value))
    if not table.num_rows:
        raise InputError(f"{location.uri} holds no answers; is it the table that was meant?")
    return table


def read_evidence(location: Location) -> EvidenceSpans:
    """The evidence of a run's readings; none where the location is no run, or a run without.

    Raises:
        InputError: a file can't be read.
    """
    with input_errors(location.uri):
        is_run = location.is_folder() and (location / MANIFEST_FILE).exists()
    has_evidence = is_run and EVIDENCE_FOLDER in require_manifest(location)["files"]
    places = table_locations(location, EVIDENCE_FOLDER) if has_evidence else []
    return evidence_spans(_evidence_table(place) for place in places)


def _evidence_table(place: Location) -> pa.Table:
    with open_grouped(place) as table:
        names = ["how", *SPAN_COLUMNS]
        batches = [
            batch.select(names)
            for group in range(len(table.group_bytes))
            for batch in table.batches(group, names=names)
        ]
        schema = pa.schema([table.schema.field(name) for name in names])
    return pa.Table.from_batches(batches, schema=schema)


def _answer_files(location: Location) -> list[Location]:
    """The files of `answers` where the location is a run's output; else all files of the location."""
    with input_errors(location.uri):
        is_run = location.is_folder() and (location / RUN_FILE).exists()
        if not is_run:
            return [location.at(file.path) for file in list_files(location)]
        if not (location / MANIFEST_FILE).exists():
            raise InputError(
                f"{location.uri} is the output of a run that has not finished (no {MANIFEST_FILE}); run the same "
                "command again, and score it then"
            )
    return table_locations(location, ANSWERS_FOLDER)


def _read_answer_file(place: Location) -> pa.Table:
    with open_grouped(place) as table:
        names = [name for name in ANSWER_COLUMNS.names if name in table.schema.names]
        missing = [name for name in REQUIRED_COLUMNS if name not in names]
        if missing:
            raise InputError(
                f"{place.uri} has no column {missing[0]!r}; its columns: {', '.join(table.schema.names) or 'none'}; "
                "an answers table has document_id, question_id and answer"
            )
        schema = pa.schema([table.schema.field(name) for name in names])
        batches = [
            batch.select(names)
            for group in range(len(table.group_bytes))
            for batch in table.batches(group, names=names)
        ]
    return _as_answers(pa.Table.from_batches(batches, schema=schema), path=place.uri)


def _as_answers(table: pa.Table, *, path: str) -> pa.Table:
    columns = []
    for field in ANSWER_COLUMNS:
        if field.name not in table.schema.names:
            columns.append(pa.array([ABSENT.get(field.name, 0)] * table.num_rows, field.type))
            continue
        try:
            column = table[field.name].cast(field.type)
        except pa.ArrowException as error:
            raise InputError(f"{path}: column {field.name!r} can't be read as {field.type}: {error}") from error
        if column.null_count and not field.nullable:
            raise InputError(f"{path}: column {field.name!r} has {column.null_count} nulls; give every row a value")
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=ANSWER_COLUMNS)
