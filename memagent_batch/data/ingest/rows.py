"""Rows of `documents`: made of a text, or of parts joined in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from memagent_batch.data.documents.formats.records import EMPTY_TEXT, too_long
from memagent_batch.data.ingest.tables import LossRow, MetadataRow, PartRow
from memagent_batch.errors import BadFileError, DocumentError, SourceUnreadError
from memagent_batch.loop.addresses import text_hash
from memagent_batch.masking import mask_urls

SEPARATOR = "\n\n"
"""Stands between the parts of a document."""
NOT_HASHED = frozenset({"text", "reader", "run_id", "row_hash", "parts_hash"})
"""Columns that are not in `row_hash`; `text_hash` stands for the text."""
DocumentValues = dict[str, Any]
"""A row of `documents`, with the columns of the input that it holds."""
MOST_BYTES = (1 << 31) - 1
"""Longest text that Parquet can hold, bytes."""
BAD_FILE, DOCUMENT_FAILED = BadFileError.__name__, DocumentError.__name__
SOURCE_UNREAD = SourceUnreadError.__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a document is from, and what read it."""

    source: str
    source_hash: str | None = None
    reader: str | None = None
    """None for a row of a table."""
    metadata: MetadataRow | None = None
    """None for a row of a table."""

    def values(self) -> DocumentValues:
        """Returns its columns. Rows of a table have no `metadata`, so that they keep the hash of earlier versions."""
        own = {} if self.metadata is None else {"metadata": self.metadata}
        return {"source": self.source, "source_hash": self.source_hash, "reader": self.reader, **own}


def text_row(
    document_id: str, text: str, *, origin: Origin, columns: Mapping[str, Any], max_bytes: int | None, where: str
) -> DocumentValues:
    """A document that is one text."""
    part: PartRow = {
        "source": origin.source, "locator": None, "char_start": 0, "char_end": len(text), "order": None, "carried": None
    }  # fmt: skip
    return _row(document_id, text=text, parts=[part], origin=origin, columns=columns, max_bytes=max_bytes, where=where)


def failed_row(
    document_id: str,
    error: str,
    *,
    origin: Origin,
    columns: Mapping[str, Any] = {},
    error_type: str = DOCUMENT_FAILED,
    parts: Sequence[PartRow] = (),
    losses: Sequence[LossRow] = (),
    source_read: float = 0.0,
) -> DocumentValues:
    """A document, or a file or row in place of one, whose text can't be read. Its parts have empty spans."""
    return _with_hash(
        {
            "document_id": document_id,
            "text": None,
            "text_hash": None,
            "num_bytes": 0,
            "parts": [{**part, "char_start": 0, "char_end": 0} for part in parts],
            "losses": [*losses],
            **origin.values(),
            "source_read": source_read,
            "error": mask_urls(error),
            "error_type": error_type,
            **columns,
        }
    )


def joined_row(
    document_id: str,
    rows: Sequence[tuple[str, PartRow]],
    *,
    origin: Origin,
    columns: Mapping[str, Any],
    max_bytes: int | None,
    losses: Sequence[LossRow] = (),
    source_read: float = 1.0,
    unread: str | None = None,
) -> DocumentValues:
    """Joins the parts of a document, given in their order, to one text, and fills in where each part stands in it.

    `unread` is why a document without any text has none.
    """
    start, parts = 0, list[PartRow]()
    for text, part in rows:
        parts.append({**part, "char_start": start, "char_end": start + len(text)})
        start += len(text) + len(SEPARATOR)
    where = f"document_id {document_id!r}"
    if not any(text.strip() for text, _ in rows):
        return failed_row(
            document_id,
            unread or f"{where}: {EMPTY_TEXT}",
            origin=origin,
            columns=columns,
            error_type=SOURCE_UNREAD if unread else DOCUMENT_FAILED,
            parts=[part for _, part in rows],
            losses=losses,
            source_read=source_read,
        )
    text = SEPARATOR.join(text for text, _ in rows)
    made = _row(document_id, text=text, parts=parts, origin=origin, columns=columns, max_bytes=max_bytes, where=where)
    return _with_hash({**made, "losses": [*losses], "source_read": source_read})


def _row(
    document_id: str,
    *,
    text: str,
    parts: Sequence[PartRow],
    origin: Origin,
    columns: Mapping[str, Any],
    max_bytes: int | None,
    where: str,
) -> DocumentValues:
    num_bytes = len(text) if text.isascii() else len(text.encode())
    bound = min(MOST_BYTES, MOST_BYTES if max_bytes is None else max_bytes)
    if num_bytes > bound:
        error = f"{where}: {too_long(bound)}"
        return failed_row(document_id, error, origin=origin, columns=columns, parts=parts)
    return _with_hash(
        {
            "document_id": document_id,
            "text": text,
            "text_hash": text_hash(text),
            "num_bytes": num_bytes,
            "parts": [*parts],
            "losses": [],
            **origin.values(),
            "source_read": 1.0,
            "error": None,
            "error_type": None,
            **columns,
        }
    )


def _with_hash(row: DocumentValues) -> DocumentValues:
    """The row with the hash of all that a reader of the table can see change, and that of its parts."""
    hashed = {name: value for name, value in row.items() if name not in NOT_HASHED}
    spans = [(part["locator"], part["char_start"], part["char_end"]) for part in row["parts"]]
    return {**row, "row_hash": _number(hashed), "parts_hash": _number(spans)}


def _number(value: object) -> int:
    """A hash of 64 bits."""
    digest = sha256(repr(value).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
