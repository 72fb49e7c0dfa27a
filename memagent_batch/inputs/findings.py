"""What a plan logs about the inputs, before anything is read."""

import logging
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.inputs.document_index import BAD_FILE
from memagent_batch.inputs.formats.formats import Format
from memagent_batch.inputs.shards import FoundShards
from memagent_batch.logs import EventKind

log = logging.getLogger(__name__)

SHOWN_NAMES = 5
"""Files or documents that a line names."""
FORMAT_NAMES = {
    Format.PARQUET: "Parquet",
    Format.JSONL: "JSONL",
    Format.CSV: "CSV",
    Format.ARROW: "Arrow",
    Format.TABLE: "table",
}
"""Formats of many documents a file, as people write them."""
LEFT_OUT = (
    "a text file beside Parquet, JSONL, CSV or Arrow files is read only where --documents names it, by its path or a "
    "glob such as '**/*.txt', or with --input.format text"
)
"""Why text files are left out."""


def log_documents(index: pa.Table, found: FoundShards) -> None:
    """Logs how many documents there are, from which files, and which files were left out."""
    fields = {
        "num_documents": len(_document_formats(index)),
        "num_files": {str(of): found.num_files(of) for of in Format if found.num_files(of)},
        "left_out": list(found.left_out[:SHOWN_NAMES]),
        "num_left_out": len(found.left_out),
    }
    log.info(describe(index, found), extra={"event": EventKind.DOCUMENTS_FOUND, **fields})


def describe(index: pa.Table, found: FoundShards) -> str:
    """The line for people, such as `24 documents: 23 from 4 Parquet files, 1 text file`."""
    counts = {Format(row["values"]): row["counts"] for row in _document_formats(index).value_counts().to_pylist()}
    parts = [
        _plural(counts[format_], "text file")
        if format_ is Format.TEXT
        else f"{counts[format_]:,} from {_plural(found.num_files(format_), f'{FORMAT_NAMES[format_]} file')}"
        for format_ in Format
        if format_ in counts
    ]
    line = f"{_plural(sum(counts.values()), 'document')}: {', '.join(parts)}"
    if not found.left_out:
        return line
    return f"{line}; left out: {_quoted(found.left_out)} ({LEFT_OUT})"


def warn_of_bad_files(index: pa.Table) -> None:
    """Names the first files and records that can't be read."""
    bad = index.filter(pc.equal(index["error_type"], BAD_FILE))["document_id"].to_pylist()
    if not bad:
        return
    message = f"files, lines or rows that can't be read: {_quoted(bad)}; each has a failed row for each question that "
    fields = {"num_files": len(bad), "names": bad[:SHOWN_NAMES]}
    log.warning(f"{message}is asked of every document", extra={"event": EventKind.FILES_UNREADABLE, **fields})


def warn_of_missing(document_ids: Sequence[str]) -> None:
    """Names the first documents that questions are bound to and that are not there."""
    if not document_ids:
        return
    message = f"documents that questions are bound to and that are not there: {_quoted(document_ids)}; their rows are "
    fields = {"num_documents": len(document_ids), "document_ids": list(document_ids[:SHOWN_NAMES])}
    log.warning(f"{message}failed", extra={"event": EventKind.DOCUMENTS_MISSING, **fields})


def _document_formats(index: pa.Table) -> pa.ChunkedArray:
    """The format of each document; files that can't be read are none."""
    return index.filter(pc.not_equal(pc.fill_null(index["error_type"], ""), BAD_FILE))["format"]


def _quoted(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:SHOWN_NAMES])
    return shown if len(names) <= SHOWN_NAMES else f"{shown} and {len(names) - SHOWN_NAMES:,} more"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
