"""The files of an output's tables, for users who read them with their own tools."""

from collections.abc import Sequence

import pyarrow as pa

from memagent_batch.errors import OutputError
from memagent_batch.files.errors import output_errors, table_errors
from memagent_batch.files.location import Location
from memagent_batch.files.options import Options
from memagent_batch.files.parquet import read_parquet
from memagent_batch.runs.manifest import require_manifest


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


def read_tables(output: Location, names: Sequence[str], *, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of table files of one run, by their names in its manifest; all columns by default.

    Raises:
        OutputError: a file is gone or can't be read.
    """
    return pa.concat_tables([_rows_of_file(output / name, columns=columns) for name in names])


def _rows_of_file(place: Location, *, columns: Sequence[str] | None) -> pa.Table:
    remedy = "a later run of the output replaces the tables: read those of the latest run"
    with table_errors(place.uri, remedy=remedy):
        if place.path.endswith(".parquet"):
            return read_parquet(place, columns=columns)
        with place.open() as stream:
            table = pa.ipc.open_file(stream).read_all()
            return table if columns is None else table.select(list(columns))
