"""Tables of `memagent convert` as documents: how they are recognised, and what an answer says of their sources."""

import logging
import posixpath
from collections.abc import Mapping, Sequence

import pyarrow as pa

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.config.storage import Options
from memagent_batch.documents.document_index import CARRY_PREFIX, KeptIndex
from memagent_batch.documents.formats.columnar import open_grouped
from memagent_batch.documents.formats.formats import Format
from memagent_batch.documents.formats.records import Value
from memagent_batch.documents.lake.tables import documents_place
from memagent_batch.documents.listing import CONVERTED_FORMAT, MANIFEST_FILE
from memagent_batch.documents.shards import FoundShards
from memagent_batch.errors import InputError, InputUnreachableError
from memagent_batch.logs import EventKind
from memagent_batch.store.columns import column
from memagent_batch.store.json_files import read_json

log = logging.getLogger(__name__)

SHOWN_NAMES = 5
CONVERTED_MARKER = b"memagent.converted"
"""Entry of the schema metadata that marks the table, whoever copied its files."""
RESERVED_COLUMNS = ("source_read", "source_unread", "source_notes", "source_review")
"""Names that a column to carry can't have: `answers` means these columns by them."""
SOURCE_READ, SOURCE_UNREAD, SOURCE_NOTES, SOURCE_REVIEW = RESERVED_COLUMNS
SOURCE_COLUMNS = pa.schema(
    [
        column("source", pa.string(), "path of the file that the document was converted from"),
        column("source_hash", pa.string(), "SHA-256 of that file; null if it could not be opened", nullable=True),
        column("converter", pa.string(), "what converted it; null if nothing did", nullable=True),
        column("converter_version", pa.string(), "version of the converter and its library", nullable=True),
        column(SOURCE_READ, pa.float64(), "share of its parts and attachments that were read", unit="0 to 1"),
        column(SOURCE_UNREAD, pa.string(), "what of it was not read, and why; null if all was", nullable=True),
        column(SOURCE_NOTES, pa.string(), "what to know of its text that was read; null if nothing", nullable=True),
        column(SOURCE_REVIEW, pa.string(), "what of it may have been read wrongly; null if nothing", nullable=True),
    ]
)
"""Columns of `answers`, behind the others, if the documents are a table of `memagent convert`."""
UNREAD_JOIN = "; "


def with_source_columns(
    settings: InputConfig, found: FoundShards, *, kept: KeptIndex | None, storage_options: Options
) -> InputConfig:
    """The settings for what was found: a table of `memagent convert` has its rows in order, and its source columns.

    The first file is opened unless `kept` knows it.

    Raises:
        InputError: the first file can't be opened.
    """
    is_open = settings.format in ("auto", "parquet", "arrow")
    if is_open and _is_marked(found, kept, settings=settings, storage_options=storage_options):
        settings = settings.model_copy(update={"format": "converted"})
    if not settings.is_converted:
        return settings
    names = [name for name in SOURCE_COLUMNS.names if name not in settings.carry_columns]
    of_rows = {} if settings.order_columns else {"order_columns": ("part",), "locator": settings.locator or "{locator}"}
    return settings.model_copy(update={"carry_columns": (*settings.carry_columns, *names), **of_rows})


def _is_marked(found: FoundShards, kept: KeptIndex | None, *, settings: InputConfig, storage_options: Options) -> bool:
    shard = next((shard for shard in found.shards if shard.format in (Format.PARQUET, Format.ARROW)), None)
    if shard is None:
        return False
    if kept is not None and kept.knows(shard.paths[0], found.files):
        return CARRY_PREFIX + SOURCE_READ in kept.documents.schema.names
    try:
        with open_grouped(documents_place(shard.documents, storage_options).at(shard.paths[0])) as file:
            return CONVERTED_MARKER in (file.schema.metadata or {})
    except InputUnreachableError:
        raise
    except InputError:
        if settings.on_bad_file == OnBadFile.FAIL:
            raise
        return False  # the index gives it a row that says so


def warn_of_left_out(found: FoundShards, *, storage_options: Options) -> None:
    """Names the first files that `memagent convert` left out, by its manifest; of a copied table nobody knows.

    Raises:
        StorageError: the manifest can't be read.
    """
    shard = found.shards[0]
    file = documents_place(shard.documents, storage_options).at(shard.paths[0])
    folder = posixpath.dirname(posixpath.dirname(file.path))
    manifest = read_json(file.at(f"{folder}/{MANIFEST_FILE}"))
    if manifest is None or manifest.get("format") != CONVERTED_FORMAT or not manifest["left_out"]:
        return
    num, names = manifest["counts"]["left_out"], manifest["left_out"][:SHOWN_NAMES]
    more = f" and {num - len(names):,} more" if num > len(names) else ""
    fields = {"num_files": num, "names": names, "event": EventKind.SOURCES_LEFT_OUT}
    line = f"left out by `memagent convert`, names that start with ., _ or ~$: {', '.join(map(repr, names))}{more}"
    log.warning(f"{line}; nothing is asked of them: rename them to have them read", extra=fields)


def part_text(text: Value, *, settings: InputConfig) -> Value:
    """The text of a row; the empty one of a part of a source that has none, or white space alone."""
    is_blank = text is None or (isinstance(text, str) and not text.strip())
    return "" if is_blank and settings.is_converted else text


def joined_sources(rows: Sequence[Mapping[str, str | None]]) -> dict[str, str | None]:
    """What the rows of one document say of their sources; if it joins several, all that was said of them."""
    said = {
        name: UNREAD_JOIN.join(dict.fromkeys(why for row in rows if (why := row[name]))) or None
        for name in (SOURCE_UNREAD, SOURCE_NOTES, SOURCE_REVIEW)
    }
    share = min((share for row in rows if (share := row[SOURCE_READ])), key=float, default=None)
    return {**rows[0], SOURCE_READ: share, **said}


def source_type(name: str) -> pa.DataType:
    """The type that a carried column has in `answers`."""
    return pa.float64() if name == SOURCE_READ else pa.string()
