"""The files of an output's tables, for users who read them with their own tools."""

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.errors import OutputError
from memagent_batch.files.errors import output_errors, table_errors
from memagent_batch.files.location import Location
from memagent_batch.files.options import Options
from memagent_batch.files.parquet import read_parquet
from memagent_batch.runs.manifest import require_manifest

MOVED_TABLES_REMEDY = "a later run of the output replaces the tables: repeat the command on the latest run"
"""What to do about a table file that is gone."""


def table_files(output: str, table: str, *, storage_options: Options | None = None) -> list[str]:
    """The files that hold a table of the last finished run: paths, or URIs where the output is one.

    Read these rather than all files of the folder: while a run writes, the next night's files lie there as well. They
    stay until the next run has finished; a reader that then finds one gone asks again.

    Args:
        output: the folder or URI that was `--output`.
        table: `answers`, `memories` or `removed`; also `evidence` and `results`, where the run has them.
        storage_options: arguments of the output's file system.

    Raises:
        OutputError: the output can't be reached, no run has finished there, or there is no such table.
    """
    place = Location(uri=output, storage_options=storage_options or {})
    with output_errors(place.uri):
        return [location.uri for location in table_locations(place, table)]


def table_locations(output: Location, table: str) -> list[Location]:
    """The files that hold a table of the last finished run, as its manifest names them.

    Raises:
        OutputError: there is no manifest, or no such table.
    """
    manifest = require_manifest(output)
    if table not in manifest["files"]:
        raise OutputError(f"output: {output.uri} has no table {table!r}; it has {', '.join(sorted(manifest['files']))}")
    return [output / name for name in manifest["files"][table]]


def read_table_columns(place: Location, names: Collection[str]) -> pa.Table:
    """A table file, with those of the columns that it has.

    Raises:
        OutputError: it is gone or can't be read.
    """
    with table_errors(place.uri, remedy=MOVED_TABLES_REMEDY), place.open() as stream:
        if not place.path.endswith(".parquet"):
            table = pa.ipc.open_file(stream).read_all()
            return table.select([name for name in table.schema.names if name in names])
        with pq.ParquetFile(stream, pre_buffer=False) as file:
            return file.read(columns=[name for name in file.schema_arrow.names if name in names], use_threads=False)


def read_tables(output: Location, names: Sequence[str], *, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of table files of one run, by their names in its manifest; all columns by default.

    Raises:
        OutputError: a file is gone or can't be read.
    """
    return pa.concat_tables([_rows_of_file(output / name, columns=columns) for name in names])


def _rows_of_file(place: Location, *, columns: Sequence[str] | None) -> pa.Table:
    with table_errors(place.uri, remedy=MOVED_TABLES_REMEDY):
        if place.path.endswith(".parquet"):
            return read_parquet(place, columns=columns)
        with place.open() as stream:
            table = pa.ipc.open_file(stream).read_all()
            return table if columns is None else table.select(list(columns))
