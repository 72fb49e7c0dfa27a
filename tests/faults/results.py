"""What a run that was struck has written: its rows, the turns in its log, and whether its counts close."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.keys import TURNS_FOLDER
from memagent_batch.run.claim import ANSWER_TABLES, unreferenced_files
from memagent_batch.run.manifest import MANIFEST_FILE

READING = ("document_id", "question_id", "sample")
RESULT = ("status", "answer", "response", "memory", "error_message")
ADDRESS = ("document_hash", "question_hash", "sample", "fingerprint", "path")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    rows: dict[tuple[Any, ...], tuple[Any, ...]]
    """Status, answer, response, memory and error of each reading."""
    counts: dict[str, int]
    logged: Counter[tuple[Any, ...]]
    """Number of log rows for each turn address."""


def read_results(output: Location, *, asked: int) -> Results:
    """Requires one row for each reading asked for, counts that close, and no table file that the manifest lacks."""
    manifest: dict[str, Any] = json.loads((output / MANIFEST_FILE).read_bytes())
    answers = _rows(output, (output / "answers").files(), [*READING, *RESULT])
    turns = _rows(output, (output / TURNS_FOLDER).files(), [*ADDRESS])
    rows = {tuple(row[name] for name in READING): tuple(row[name] for name in RESULT) for row in answers}
    assert len(rows) == len(answers) == manifest["counts"]["answers_rows"] == asked
    assert unreferenced_files(output, manifest, tables=ANSWER_TABLES) == []
    return Results(
        rows=rows,
        counts=manifest["counts"],
        logged=Counter(tuple(row[name] for name in ADDRESS) for row in turns),
    )


def _rows(output: Location, files: list[str], columns: list[str]) -> list[dict[str, Any]]:
    return [row for path in files for row in pq.read_table(path, filesystem=output.fs, columns=columns).to_pylist()]
