"""CPU tasks after the engine: parts of the plan in, files of `answers` and `memories` out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from memagent_batch.domain.readings import Status
from memagent_batch.domain.reasons import Reason, most_frequent
from memagent_batch.errors import SupersededError
from memagent_batch.files.errors import storage_errors
from memagent_batch.runs.claim import require_claim
from memagent_batch.runs.parts import KEY, detach_not_read, part_key
from memagent_batch.runs.plan import PART_COLUMN
from memagent_batch.runs.tables import (
    ANSWERS_FOLDER,
    MEMORIES_FOLDER,
    SUMS,
    PartTables,
    Projection,
    count_rows,
    project,
    table_bytes,
)

LASTING = frozenset({Status.OK, Status.FAILED})
"""Rows of which the next run makes the same; another status is of this run alone."""
KEPT_REASONS = 20
"""Reasons that a part reports, the most frequent ones; those of all parts are added up."""

REASONS = pa.list_(
    pa.struct([("error_type", pa.string()), ("error_message", pa.string()), ("num_readings", pa.int64())])
)

REPORT = pa.schema(
    [
        pa.field(KEY, pa.string()),
        pa.field("answers_file", pa.string()),
        pa.field("memories_file", pa.string()),
        pa.field("num_answers", pa.int64()),
        pa.field("num_ok", pa.int64()),
        pa.field("num_not_read", pa.int64()),
        pa.field("num_memories", pa.int64()),
        pa.field("failed_reasons", REASONS),
        pa.field("not_read_reasons", REASONS),
        pa.field("missing", pa.list_(pa.string())),
        *[pa.field(name, pa.int64()) for name in SUMS],
    ]
)
"""What a written part reports."""


def write_tables(part: pa.Table, *, projection: Projection, kept: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    """Ray Data UDF: one part of the plan in, its two files written, one row of `REPORT` out.

    Nothing is written where `kept` (reports by key) has files of the same part, and they are whole. A part
    has the same file names at every try, so a repeated task replaces its own files; two runs share no name.

    Raises:
        SupersededError: a newer attempt holds the claim; no file is left.
    """
    planned, not_read = detach_not_read(part)
    key = part_key(planned, projection=projection)
    if not not_read and key in kept and _is_whole(kept[key], projection=projection):
        return pa.Table.from_pylist([{**kept[key], "missing": []}], schema=REPORT)
    tables = project(planned, projection=projection, not_read=not_read)
    name = f"part-{part[PART_COLUMN][0].as_py():05d}-{projection.run_id}.{projection.table_format.value}"
    _write(tables, name, projection=projection)
    statuses = tables.answers["status"].to_pylist()
    report = {
        KEY: key if not tables.missing and set(statuses) <= LASTING else None,
        "answers_file": f"{ANSWERS_FOLDER}/{name}",
        "memories_file": f"{MEMORIES_FOLDER}/{name}",
        "num_answers": tables.answers.num_rows,
        "num_ok": statuses.count(Status.OK),
        "num_not_read": statuses.count(Status.NOT_READ),
        "num_memories": tables.memories.num_rows,
        "failed_reasons": _reasons(tables.answers, statuses, status=Status.FAILED),
        "not_read_reasons": _reasons(tables.answers, statuses, status=Status.NOT_READ),
        "missing": tables.missing,
        **{name: sum(value or 0 for value in tables.answers[name].to_pylist()) for name in SUMS},
    }
    return pa.Table.from_pylist([report], schema=REPORT)


def _is_whole(report: Mapping[str, Any], *, projection: Projection) -> bool:
    files = {report["answers_file"]: report["num_answers"], report["memories_file"]: report["num_memories"]}
    with storage_errors(projection.output.uri):
        return all(count_rows(projection.output / name) == num_rows for name, num_rows in files.items())


def _reasons(answers: pa.Table, statuses: Sequence[str], *, status: Status) -> list[dict[str, object]]:
    types, messages = answers["error_type"].to_pylist(), answers["error_message"].to_pylist()
    reasons = [
        Reason(error_type=type_, error_message=message)
        for own, type_, message in zip(statuses, types, messages, strict=True)
        if own == status
    ]
    return [asdict(reason) for reason in most_frequent(reasons, limit=KEPT_REASONS)]


def _write(tables: PartTables, name: str, *, projection: Projection) -> None:
    output, run_id = projection.output, projection.run_id
    require_claim(output, run_id=run_id)
    answers, memories = output / f"{ANSWERS_FOLDER}/{name}", output / f"{MEMORIES_FOLDER}/{name}"
    answers.write_bytes(table_bytes(tables.answers, table_format=projection.table_format))
    memories.write_bytes(table_bytes(tables.memories, table_format=projection.table_format))
    try:
        require_claim(output, run_id=run_id)
    except SupersededError:
        answers.delete()
        memories.delete()
        raise
