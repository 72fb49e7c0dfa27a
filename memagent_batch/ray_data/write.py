"""CPU tasks after the engine: parts of the plan in, files of `answers` and `memories` out."""

import pyarrow as pa

from memagent_batch.domain.readings import Status
from memagent_batch.errors import SupersededError
from memagent_batch.storage.claim import require_claim
from memagent_batch.storage.tables import (
    ANSWERS_FOLDER,
    MEMORIES_FOLDER,
    PartTables,
    Projection,
    project,
    table_bytes,
)

SUMS = ("num_document_tokens", "num_turns", "num_prompt_tokens", "num_cached_prompt_tokens", "num_completion_tokens")
"""Columns of `answers` whose totals the manifest gives."""

REPORT = pa.schema(
    [
        pa.field("answers_file", pa.string()),
        pa.field("memories_file", pa.string()),
        pa.field("num_answers", pa.int64()),
        pa.field("num_ok", pa.int64()),
        pa.field("num_memories", pa.int64()),
        pa.field("missing", pa.list_(pa.string())),
        *[pa.field(name, pa.int64()) for name in SUMS],
    ]
)
"""What a written part reports."""


def write_tables(part: pa.Table, *, projection: Projection) -> pa.Table:
    """Ray Data UDF: one part of the plan in, its two files written, one row of `REPORT` out.

    A part has the same file names at every try, so a repeated task replaces its own files; two runs share no name.

    Raises:
        SupersededError: a newer attempt holds the claim; no file is left.
    """
    tables = project(part.drop_columns(["part"]), projection=projection)
    name = f"part-{part['part'][0].as_py():05d}-{projection.run_id}.{projection.table_format.value}"
    _write(tables, name, projection=projection)
    report = {
        "answers_file": f"{ANSWERS_FOLDER}/{name}",
        "memories_file": f"{MEMORIES_FOLDER}/{name}",
        "num_answers": tables.answers.num_rows,
        "num_ok": tables.answers["status"].to_pylist().count(Status.OK),
        "num_memories": tables.memories.num_rows,
        "missing": tables.missing,
        **{name: sum(value or 0 for value in tables.answers[name].to_pylist()) for name in SUMS},
    }
    return pa.Table.from_pylist([report], schema=REPORT)


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
