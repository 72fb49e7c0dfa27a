"""Texts for a terminal: the end of `memagent answer`, and lines cut to a width."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from memagent_batch.domain.readings import Status
from memagent_batch.domain.texts.shares import quantity
from memagent_batch.runs.manifest import unread_line
from memagent_batch.runs.tables import ANSWERS_FOLDER, MEMORIES_FOLDER, read_tables
from memagent_batch.store.location import Location

SHOWN_ANSWERS = 3
SHOWN_COLUMNS = ("document_id", "question", "status", "answer", "response", "error_message")


def cut(text: str, width: int) -> str:
    """The text on one line, without control characters, cut at a width in characters."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"


def ending(output: Location, manifest: Mapping[str, Any], *, num_columns: int) -> str:
    """Counts, sample answers, places and commands of a finished run, for a screen of so many columns."""
    counts, folder = manifest["counts"], str(output).rstrip("/")
    parts = [f"{counts[name]:,} {name.replace('_', ' ')}" for name in ("ok", "failed", "not_read") if counts.get(name)]
    files = (read_tables(output, [name], columns=SHOWN_COLUMNS) for name in manifest["files"][ANSWERS_FOLDER])
    rows = islice((row for table in files for row in table.slice(0, SHOWN_ANSWERS).to_pylist()), SHOWN_ANSWERS)
    tables = (ANSWERS_FOLDER, MEMORIES_FOLDER)
    places = [f"  {name:<9} {folder}/{name}/   {counts[f'{name}_rows']:,} rows" for name in tables]
    return "\n".join(
        [
            f"{quantity(counts['asked'], 'reading')}: {', '.join(parts)}; {manifest['seconds']:,.0f} s",
            *filter(None, [unread_line(manifest["unread"])]),
            "",
            *(_answer_line(row, num_columns=num_columns) for row in rows),
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


def _answer_line(row: Mapping[str, Any], *, num_columns: int) -> str:
    """Document, question and answer of a row, as much of each as a line of the screen has room for."""
    document, question = cut(row["document_id"], num_columns // 4), cut(row["question"], num_columns // 3)
    return cut(f"  {document}  {question}  {_shown_answer(row)}", num_columns)


def _shown_answer(row: Mapping[str, Any]) -> str:
    if row["status"] != Status.OK:
        return f"{row['status']}: {row['error_message']}"
    return str(row["answer"] or row["response"] or "(no answer)")
