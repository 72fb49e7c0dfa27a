"""Rows of the tables and logs that a run wrote, and what of them is the same in every run."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from memagent_batch.run.tables import table

OWN_COLUMNS = {"run_id", "read_run_id", "started_at", "finished_at", "engine_seconds", "num_replayed_turns"}
"""Columns that say who read when, and what came from the log."""


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of all files of a folder but hidden ones, which are being written; none if it is not there."""
    files = [path for path in sorted(folder.glob("*.parquet")) if not path.name.startswith(".")]
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def table_rows(output: str | Path, name: str, *, run_id: str = "latest") -> list[dict[str, Any]]:
    """The rows of a table as a run left it, by default the last one."""
    rows: list[dict[str, Any]] = table(output, name, run_id=run_id).to_pylist()
    return rows


def comparable(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows without the columns of their run, in an order of their own."""
    return sorted(str({name: value for name, value in row.items() if name not in OWN_COLUMNS}) for row in rows)
