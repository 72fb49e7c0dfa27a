"""Reads the table `rollouts` in bounded memory: group by group, as it was written."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.errors import InputError
from memagent_batch.storage.location import Location
from memagent_batch.storage.rollouts import ROLLOUTS

BATCH_ROWS = 1024
"""Rows that are read at once."""


def read_groups(output: Location, *, files: Sequence[str], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Streams the groups of the files of a table, each with all rows of its samples; holds a group and a batch.

    Args:
        output: where the table is.
        files: its files, as the record names them, in this order.
        columns: columns of `ROLLOUTS` to read.

    Raises:
        InputError: a file is not there, or is no part of such a table.
    """
    schema = pa.schema([ROLLOUTS.field(name) for name in dict.fromkeys(["group_id", *columns])])
    held: list[pa.Table] = []
    for rows in _batches(output, files, schema=schema):
        for group in _runs(rows):
            if held and held[0]["group_id"][0] != group["group_id"][0]:
                yield pa.concat_tables(held)
                held = []
            held.append(group)
    if held:
        yield pa.concat_tables(held)


def _batches(output: Location, files: Sequence[str], *, schema: pa.Schema) -> Iterator[pa.Table]:
    for name in files:
        try:
            with (output / name).open() as stream, pq.ParquetFile(stream) as file:
                for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=schema.names):
                    yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)
        except (OSError, pa.ArrowException, KeyError, ValueError) as error:
            raise InputError(f"{(output / name).uri} can't be read as rollouts: {error}; collect again") from error


def _runs(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows cut where the group changes."""
    groups = rows["group_id"].to_pylist()
    start = 0
    for place in range(1, len(groups) + 1):
        if place == len(groups) or groups[place] != groups[start]:
            yield rows.slice(start, place - start)
            start = place
