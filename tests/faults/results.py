"""What a run that was struck has written: its rows, the turns in its log, and whether its counts close."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.files import TURNS_FOLDER
from memagent_batch.run.flows.verify import verify
from memagent_batch.run.history import find_run
from memagent_batch.run.manifest import RunCounts
from memagent_batch.run.tables import ANSWERS_TABLE

READING = ("document_id", "question_id", "sample")
RESULT = ("status", "answer", "response", "memory", "error_message")
ADDRESS = ("document_hash", "question_hash", "sample", "fingerprint", "prompt_hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    rows: dict[tuple[Any, ...], tuple[Any, ...]]
    """Status, answer, response, memory and error of each reading."""
    counts: RunCounts
    logged: Counter[tuple[Any, ...]]
    """Number of log rows for each turn address."""


def read_results(output: Location, *, asked: int) -> Results:
    """Requires one row for each reading asked for, counts that close, and files as they were written."""
    run = find_run(output)
    answers = run.read(ANSWERS_TABLE).select([*READING, *RESULT]).to_pylist()
    rows = {tuple(row[name] for name in READING): tuple(row[name] for name in RESULT) for row in answers}
    assert len(rows) == len(answers) == run.manifest["counts"]["answers_rows"] == asked
    assert verify(output).problems == []
    turns = [
        row
        for path in (output / TURNS_FOLDER).files()
        for row in pq.read_table(path, filesystem=output.fs, columns=[*ADDRESS]).to_pylist()
    ]
    return Results(
        rows=rows,
        counts=run.manifest["counts"],
        logged=Counter(tuple(row[name] for name in ADDRESS) for row in turns),
    )
