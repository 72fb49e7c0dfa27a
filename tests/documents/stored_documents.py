"""Tables `documents` of an output, as ingest writes them, for tests that ingest nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from memagent_batch.data.ingest.tables import DOCUMENTS, DOCUMENTS_TABLE
from memagent_batch.data.store.delta import OutputTable, RunNumber, write_table_files
from memagent_batch.data.store.location import Location
from memagent_batch.loop.addresses import text_hash

SEPARATOR = "\n\n"


def stored_row(document_id: str, text: str | None, **columns: Any) -> dict[str, Any]:
    """A row of `documents` of one part."""
    part = {"source": "a.jsonl", "locator": None, "char_start": 0, "char_end": len(text or ""), "order": None}
    row = {
        "document_id": document_id,
        "text": text,
        "text_hash": None if text is None else text_hash(text),
        "num_bytes": len((text or "").encode()),
        "parts": [part],
        "losses": [],
        "source": "a.jsonl",
        "source_read": 1.0,
        "run_id": "r",
        "parts_hash": 0,
        "row_hash": 0,
    }
    return row | columns


def paged_row(document_id: str, pages: Mapping[str, str], **columns: Any) -> dict[str, Any]:
    """A row of `documents` with a part for each page; `pages` are texts by locator."""
    parts, start = [], 0
    for locator, page in pages.items():
        end = start + len(page)
        parts.append({"source": "a.pdf", "locator": locator, "char_start": start, "char_end": end, "order": None})
        start = end + len(SEPARATOR)
    return stored_row(document_id, SEPARATOR.join(pages.values()), parts=parts, source="a.pdf", **columns)


def store_documents(
    output: Location,
    *files: Iterable[Mapping[str, Any]],
    carried: Sequence[pa.Field] = (),
    number: int = 1,
    group_rows: int = 2,
    replaces_all: bool = True,
) -> int:
    """Commits files with these rows; returns the version."""
    table, schema = OutputTable(output=output, name=DOCUMENTS_TABLE), pa.schema([*DOCUMENTS, *carried])
    written = [
        each
        for place, rows in enumerate(files)
        for each in write_table_files(
            table.place,
            pa.Table.from_pylist([*rows], schema=schema),
            stem=f"part-{place:05}",
            row_group_rows=group_rows,
        )
    ]
    run = RunNumber(number=number, run_id=f"run-{number}")
    return table.commit(run=run, schema=schema, add=written, replaces_all=replaces_all)
