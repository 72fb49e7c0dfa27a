"""Rows of the tables and logs that a run wrote, and what of them is the same in every run."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from memagent_batch.runs.tables import table_files

OWN_COLUMNS = {"run_id", "started_at", "finished_at", "engine_seconds", "num_replayed_turns"}
"""Columns that say who read when, and what came from the log."""


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of all files of a folder but hidden ones, which are being written; none if it is not there."""
    files = [path for path in sorted(folder.glob("*.parquet")) if not path.name.startswith(".")]
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def table_rows(output: str | Sequence[str], name: str) -> list[dict[str, Any]]:
    """The rows of a table of the last run."""
    return [row for file in table_files(output, name) for row in pq.read_table(file).to_pylist()]


def comparable(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows without the columns of their run, in an order of their own."""
    return sorted(str({name: value for name, value in row.items() if name not in OWN_COLUMNS}) for row in rows)
