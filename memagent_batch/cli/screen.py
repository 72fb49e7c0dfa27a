"""Texts for a terminal: the end of `memagent answer`, and lines cut to a width."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from memagent_batch.config.job import TableFormat
from memagent_batch.domain.readings import Status
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.runs.tables import ANSWERS_FOLDER, MEMORIES_FOLDER
from memagent_batch.store.errors import storage_errors
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import read_parquet

SHOWN_ANSWERS = 3


SHOWN_COLUMNS = ("document_id", "question", "status", "answer", "response", "error_message")
COLUMN_GAP = "  "
"""Between columns."""


def cut(text: str, width: int) -> str:
    """The text on one line, without control characters, cut at a width in characters."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"


def ending(output: Location, manifest: Mapping[str, Any], *, num_columns: int) -> str:
    """Counts, sample answers, places and commands of a finished run, for a screen of so many columns."""
    counts, folder = manifest["counts"], str(output).rstrip("/")
    format_ = manifest["settings"]["table_format"]
    parts = [f"{counts[name]:,} {name.replace('_', ' ')}" for name in ("ok", "failed", "not_read") if counts.get(name)]
    rows = list(islice(_answer_rows(output, manifest["files"][ANSWERS_FOLDER], format_=format_), SHOWN_ANSWERS))
    tables = (ANSWERS_FOLDER, MEMORIES_FOLDER)
    places = [f"  {name:<9} {folder}/{name}/   {counts[f'{name}_rows']:,} rows" for name in tables]
    return "\n".join(
        [
            f"{quantity(counts['asked'], 'reading')}: {', '.join(parts)}; {manifest['seconds']:,.0f} s",
            "",
            *_answer_lines(rows, num_columns=num_columns),
            "",
            *places,
            f"  manifest  {folder}/manifest.json",
            "",
            "next:",
            *_next_commands(folder, manifest),
        ]
    )


def _next_commands(folder: str, manifest: Mapping[str, Any]) -> Iterator[str]:
    yield f"  memagent status {folder}"
    if manifest["changes"]["since"]:
        yield f"  memagent diff {folder}      # what changed since the run before"
    yield f'  python: memagent_batch.table_files("{folder}", "{ANSWERS_FOLDER}")   # the files to read'


def _answer_rows(output: Location, files: list[str], *, format_: str) -> Iterator[dict[str, Any]]:
    """Rows of the answers, one file after another."""
    for name in files:
        with storage_errors(output.uri):
            if format_ == TableFormat.PARQUET:
                table = read_parquet(output / name, columns=SHOWN_COLUMNS)
            else:
                with (output / name).open() as stream:
                    table = pa.ipc.open_file(stream).read_all().select(SHOWN_COLUMNS)
        yield from table.to_pylist()


def _answer_lines(rows: Sequence[Mapping[str, Any]], *, num_columns: int) -> Iterator[str]:
    """The rows side by side: as much of each document, question and answer as a line of the screen has room for."""
    documents = max((len(row["document_id"]) for row in rows), default=0)
    questions = max((len(row["question"]) for row in rows), default=0)
    document_width = min(documents, num_columns // 4)
    question_width = min(questions, num_columns // 3)
    answer_width = max(1, num_columns - document_width - question_width - 3 * len(COLUMN_GAP))
    for row in rows:
        document, question = cut(row["document_id"], document_width), cut(row["question"], question_width)
        answer = cut(_shown_answer(row), answer_width)
        yield f"{COLUMN_GAP}{document:<{document_width}}{COLUMN_GAP}{question:<{question_width}}{COLUMN_GAP}{answer}"


def _shown_answer(row: Mapping[str, Any]) -> str:
    if row["status"] != Status.OK:
        return f"{row['status']}: {row['error_message']}"
    return str(row["answer"] or row["response"] or "(no answer)")
