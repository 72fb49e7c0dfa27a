"""The database that joins a run's tables: DuckDB in this process, within a memory limit; what is more goes to disk.

It sees Arrow tables and data sets alone. Files, and those of an object store most of all, come to it through Arrow.
Tables that grow with the corpus lie in temporary files (`TMPDIR`), mapped into memory.
"""

import atexit
import gc
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile, mkdtemp
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.ipc

if TYPE_CHECKING:
    import duckdb

MEMORY_GIB = 1.0
"""Memory of the database until `limit_memory` sets it."""
BATCH_ROWS = 65_536


@contextmanager
def open_database(
    tables: Mapping[str, pa.Table | pa.RecordBatchReader | ds.Dataset],
) -> Iterator["duckdb.DuckDBPyConnection"]:
    """A connection to the database of this process that sees these tables, by name. Times are in UTC."""
    with _database().cursor() as connection:
        connection.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        yield connection


@cache
def _database() -> "duckdb.DuckDBPyConnection":
    """The database; to open one takes ten times as long as a small query."""
    import duckdb  # a process that reads documents needs none

    folder = mkdtemp(prefix="memagent-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(_database.cache_clear)  # DuckDB's library complains of a connection that outlives Python
    settings: dict[str, str | int | float | list[str]] = {
        "allocator_background_threads": True,  # they give memory back that no query uses any more
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "memory_limit": f"{MEMORY_GIB}GiB",
        "python_enable_replacements": False,  # a name is that of a table, never of a variable
        "temp_directory": str(Path(folder) / "spilled"),
    }
    return duckdb.connect(config=settings)


def limit_memory(gib: float) -> None:
    """Sets the memory of the database of this process."""
    _database().execute(f"set memory_limit = '{gib}GiB'")


def run_query(sql: str, tables: Mapping[str, pa.Table], **parameters: object) -> pa.Table:
    """What a query finds in these tables; `parameters` are its `$name`s."""
    with open_database(tables) as database:
        return database.sql(sql, params=parameters).to_arrow_table()


def on_disk(batches: Iterable[pa.Table | pa.RecordBatch], *, schema: pa.Schema) -> pa.Table:
    """The rows of tables of this schema as one table in a temporary file, which is gone when nothing uses the table.

    Each batch of a table stays a batch. Memory that Arrow has freed is given back: the database has its own beside it.
    """
    with NamedTemporaryFile(prefix="memagent-", suffix=".arrow") as file:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write(batch)
                pa.default_memory_pool().release_unused()
        file.flush()
        return pa.ipc.open_file(pa.memory_map(file.name)).read_all()


def release_memory() -> None:
    """Gives back the memory of tables that nothing uses any more: Python collects cycles late, and Arrow keeps it."""
    gc.collect()
    pa.default_memory_pool().release_unused()


def filter_to_disk(table: pa.Table, is_taken: pa.ChunkedArray) -> pa.Table:
    """The rows for which a mask is true, in a temporary file; see `on_disk`."""
    batches = table.append_column("is_taken", is_taken).to_batches()
    return on_disk((each.filter(each["is_taken"]).select(table.schema.names) for each in batches), schema=table.schema)


def query_to_disk(
    database: "duckdb.DuckDBPyConnection", sql: str, *, schema: pa.Schema | None = None, **parameters: object
) -> pa.Table:
    """What a query finds, in a temporary file, cast to a schema; see `on_disk`."""
    found = database.sql(sql, params=parameters).to_arrow_reader(BATCH_ROWS)
    batches = (pa.Table.from_batches([batch]) for batch in found)
    if schema is None:
        return on_disk(batches, schema=found.schema)
    return on_disk((batch.cast(schema) for batch in batches), schema=schema)
