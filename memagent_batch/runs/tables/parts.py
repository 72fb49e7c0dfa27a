"""Parts of a plan: each becomes one file of each table. Which of them are written again, and what was not read.

A run takes over the files of a part from the run before where it would write the same rows.

A row of a table follows from the plan, the log files that hold its reading, and a few settings. Their
hash is the key of a part; a run that plans a part of a key that the manifest has names the files that are there.

The log does not hold readings that were not read, so that the next run reads them. A reader returns a row of each, as
an outcome would be, and the rows go to the table `answers` with their part.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import fields
from hashlib import sha256
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import CARRY_PREFIX
from memagent_batch.log.question_list import CLOSING_FINGERPRINT, asked_in
from memagent_batch.log.schemas import OUTCOME_LOG, OutcomeRow
from memagent_batch.runs.manifest import read_manifest
from memagent_batch.runs.rows.projection import Projection
from memagent_batch.runs.tables.part_report import PART_REPORT, PartReport
from memagent_batch.runs.tables.schemas import ANSWERS, EVIDENCE, MEMORIES

NOT_READ_COLUMN = "not_read"
"""Column of what a reader returns, and of a part of the plan."""

ENDED = pa.schema(
    [
        pa.field("document_id", pa.string()),
        pa.field("status", pa.string()),
        pa.field(NOT_READ_COLUMN, pa.struct(list(OUTCOME_LOG))),
    ]
)
"""What a reader returns of each reading; `not_read` is null where the log holds the outcome."""


class EndedRow(TypedDict):
    """A row of `ENDED`."""

    document_id: str
    status: str
    not_read: OutcomeRow | None


PROJECTION = 3
"""Raised with every change of the code that changes a row of a table: parts are then written again."""

_PLAN_COLUMNS = (
    "document_id",
    "document_hash",
    "error",
    "error_type",
    "readings",
    "outcome_files",
    "turn_files",
    "closing_files",
)
_SETTINGS = sorted({field.name for field in fields(Projection)} - {"output", "run_id", "documents", "input"})
_QUESTION_COLUMNS = ("question_id", "document_id", "question", "question_hash", CLOSING_FINGERPRINT)


def rules() -> list[Any]:
    """What of the code decides rows: the version of the rules, and the columns."""
    return [PROJECTION, str(ANSWERS), str(MEMORIES), str(EVIDENCE)]


def part_key(part: pa.Table, *, projection: Projection) -> str:
    """Hash of all that decides the rows of a part of the plan (a table of `plan_parts`), hex."""
    carried = sorted(name for name in part.schema.names if name.startswith(CARRY_PREFIX))
    made_of = {
        "code": rules(),
        "settings": _settings(projection),
        "documents": part.select([*_PLAN_COLUMNS, *carried]).to_pylist(),
        "questions": {
            row: {name: value for name, value in question.items() if name in _QUESTION_COLUMNS}
            for row, question in asked_in(part).items()
        },
    }
    return sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def _settings(projection: Projection) -> dict[str, Any]:
    """What of a projection decides rows, as JSON values."""
    return {name: getattr(projection, name) for name in _SETTINGS}


def kept_parts(output: Location) -> dict[str, PartReport]:
    """Reports of the parts that the manifest names, by key; those of other versions that lack a column are left out."""
    manifest = read_manifest(output)
    columns = set(PART_REPORT.names) - {"missing", "hashes"}
    parts = manifest.get("parts", []) if manifest else []
    return {key: part for part in parts if (key := part.get("key")) and columns <= part.keys()}


def collect_not_read(batches: Iterable[pa.Table]) -> pa.Table:
    """The readings in a run's tables of `ENDED` that were not read, as rows of `OUTCOME_LOG`."""
    found = [chunk for batch in batches for chunk in batch[NOT_READ_COLUMN].drop_null().chunks if len(chunk)]
    return pa.concat_tables(
        [OUTCOME_LOG.empty_table(), *[pa.Table.from_struct_array(chunk).cast(OUTCOME_LOG) for chunk in found]]
    ).combine_chunks()


def attach_not_read(parts: Iterable[pa.Table], not_read: pa.Table) -> Iterator[pa.Table]:
    """The parts of a plan with a column `not_read`: of each document, its rows of `OUTCOME_LOG`."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, document_hash in enumerate(not_read["document_hash"].to_pylist()):
        rows_of[document_hash].append(row)
    for part in parts:
        rows = [rows_of.get(document_hash, []) for document_hash in part["document_hash"].to_pylist()]
        values = [not_read.take(pa.array(numbers)).to_pylist() if numbers else [] for numbers in rows]
        yield part.append_column(NOT_READ_COLUMN, pa.array(values, pa.list_(ENDED.field(NOT_READ_COLUMN).type)))


def detach_not_read(part: pa.Table) -> tuple[pa.Table, list[OutcomeRow]]:
    """A part of a plan without the column, and what stood in it."""
    return part.drop_columns([NOT_READ_COLUMN]), pc.list_flatten(part[NOT_READ_COLUMN]).to_pylist()
