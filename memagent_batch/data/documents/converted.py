"""What answers say of the sources of their documents: columns of `answers`, made of the losses of each document."""

from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.documents.document_index import CARRY_PREFIX
from memagent_batch.data.ingest.losses import describe_losses
from memagent_batch.data.ingest.tables import Severity
from memagent_batch.data.store.columns import column

SOURCE_READ, SOURCE_UNREAD, SOURCE_NOTES, SOURCE_REVIEW = (
    "source_read",
    "source_unread",
    "source_notes",
    "source_review",
)
SOURCE_COLUMNS = pa.schema(
    [
        column(
            "source",
            pa.string(),
            "file that the document was read from, or the first of several; null if it is a row of a table",
            nullable=True,
        ),
        column("source_hash", pa.string(), "SHA-256 of its bytes; null if it is a row of a table", nullable=True),
        column(SOURCE_READ, pa.float64(), "share of its parts and attachments that were read", unit="0 to 1"),
        column(
            SOURCE_UNREAD,
            pa.string(),
            "what of it was not read, or may be wrong, and why; null if nothing",
            nullable=True,
        ),
        column(SOURCE_NOTES, pa.string(), "what to know of its text that was read; null if nothing", nullable=True),
        column(
            SOURCE_REVIEW,
            pa.string(),
            "the part of source_unread that was read, but may be wrong; null if nothing",
            nullable=True,
        ),
    ]
)
"""Columns of `answers` behind its own, before the carried ones."""
UNREAD_JOIN = "; "
_SEVERITIES: Mapping[str, Collection[str]] = {
    SOURCE_UNREAD: (Severity.UNREAD, Severity.UNCERTAIN),
    SOURCE_NOTES: (Severity.FORMAT,),
    SOURCE_REVIEW: (Severity.UNCERTAIN,),
}


def source_columns(documents: pa.Table) -> pa.Table:
    """Returns the columns of `answers` for rows of `documents`, with the names that they have in an index.

    Args:
        documents: The columns source, source_hash, reader, source_read and losses.
    """
    columns = {name: documents[name] for name in ("source_hash", SOURCE_READ)}
    # the data file of a row is no property of the document: a table that is compacted has other files
    columns["source"] = pc.if_else(pc.is_valid(documents["reader"]), documents["source"], None)
    rows = pc.indices_nonzero(pc.greater(pc.list_value_length(documents["losses"]), 0))
    losses = dict(zip(rows.to_pylist(), documents["losses"].take(rows).to_pylist(), strict=True))
    for name, severities in _SEVERITIES.items():
        words: list[str | None] = [None] * documents.num_rows
        for row, of_row in losses.items():
            words[row] = describe_losses(of_row, severities=severities)
        columns[name] = pa.array(words, pa.string())
    return pa.table({CARRY_PREFIX + name: columns[name] for name in SOURCE_COLUMNS.names})
