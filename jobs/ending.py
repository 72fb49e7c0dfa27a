"""What a person reads at the end of `memagent answer`: some answers, where the tables are, and what to do next."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.screen import cut
from memagent_batch.settings import TableFormat
from memagent_batch.storage.location import Location, storage_errors
from memagent_batch.storage.tables import ANSWERS_FOLDER, MEMORIES_FOLDER

SHOWN_ANSWERS = 3
COLUMNS = ("document_id", "question", "status", "answer", "response", "error_message")
DOCUMENT_WIDTH, QUESTION_WIDTH, ANSWER_WIDTH = 24, 40, 48
"""Characters of each column."""


def ending(output: Location, manifest: Mapping[str, Any]) -> str:
    """Counts, sample answers, places and commands of a finished run."""
    counts, folder = manifest["counts"], str(output).rstrip("/")
    format_ = manifest["settings"]["table_format"]
    parts = [f"{counts[name]:,} {name.replace('_', ' ')}" for name in ("ok", "failed", "not_read") if counts.get(name)]
    tables = (ANSWERS_FOLDER, MEMORIES_FOLDER)
    places = [f"  {name:<9} {folder}/{name}/   {counts[f'{name}_rows']:,} rows" for name in tables]
    return "\n".join(
        [
            f"{counts['asked']:,} readings: {', '.join(parts)}; {manifest['seconds']:,.0f} s",
            "",
            *map(_line, islice(_rows(output, manifest["files"][ANSWERS_FOLDER], format_=format_), SHOWN_ANSWERS)),
            "",
            *places,
            f"  manifest  {folder}/manifest.json",
            "",
            "next:",
            *_commands(folder, manifest),
        ]
    )


def _commands(folder: str, manifest: Mapping[str, Any]) -> Iterator[str]:
    yield f"  memagent status --output {folder}"
    if manifest["changes"]["since"]:
        yield f"  memagent diff --output {folder}      # what changed since the run before"
    yield f'  python: memagent_batch.tables.table_files("{folder}", "{ANSWERS_FOLDER}")   # the files to read'


def _rows(output: Location, files: list[str], *, format_: str) -> Iterator[dict[str, Any]]:
    """Rows of the answers, one file after another."""
    for name in files:
        with storage_errors(output.uri), (output / name).open() as stream:
            if format_ == TableFormat.PARQUET:
                table = pq.ParquetFile(stream).read(columns=list(COLUMNS))
            else:
                table = pa.ipc.open_file(stream).read_all().select(COLUMNS)
        yield from table.to_pylist()


def _line(row: Mapping[str, Any]) -> str:
    said = row["answer"] or row["response"] if row["status"] == "ok" else f"{row['status']}: {row['error_message']}"
    cells = (cut(row["document_id"], DOCUMENT_WIDTH), cut(row["question"], QUESTION_WIDTH))
    return f"  {cells[0]:<{DOCUMENT_WIDTH}}  {cells[1]:<{QUESTION_WIDTH}}  {cut(said or '(no answer)', ANSWER_WIDTH)}"
