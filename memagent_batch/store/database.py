"""The database that joins a run's tables: DuckDB in this process, within a memory limit; what is more goes to disk.

It sees Arrow tables and data sets alone. Files, and those of an object store most of all, come to it through Arrow.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

if TYPE_CHECKING:
    import duckdb

MEMORY_LIMIT = "2GB"
"""Memory of the database; more goes to temporary files."""
_SETTINGS: dict[str, str | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": MEMORY_LIMIT,
}


@contextmanager
def open_database(tables: Mapping[str, pa.Table | ds.Dataset]) -> Iterator["duckdb.DuckDBPyConnection"]:
    """A database with these tables, by name. Times are in UTC."""
    import duckdb  # a process that reads documents needs none

    with (
        TemporaryDirectory() as folder,
        duckdb.connect(config={**_SETTINGS, "temp_directory": str(Path(folder) / "spilled")}) as database,
    ):
        database.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            database.register(name, table)
        yield database


def run_query(sql: str, tables: Mapping[str, pa.Table], **parameters: object) -> pa.Table:
    """What a query finds in these tables; `parameters` are its `$name`s."""
    with open_database(tables) as database:
        return database.sql(sql, params=parameters).to_arrow_table()
