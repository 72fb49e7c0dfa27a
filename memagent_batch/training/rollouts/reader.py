"""Reads a rollouts table back in bounded memory, for those that learn from it: by groups or by samples, as written."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.errors import InputError
from memagent_batch.files.claims import whole_record
from memagent_batch.files.errors import table_errors
from memagent_batch.files.location import Location
from memagent_batch.training.rollouts.table import ROLLOUTS, ROLLOUTS_FILE, ROLLOUTS_FORMAT, RolloutsRecord

BATCH_ROWS = 1024
"""Rows that are read at once."""

SAMPLE_COLUMNS = (
    "group_id",
    "document_id",
    "question_id",
    "sample",
    "turn",
    "prompt_token_ids",
    "response_token_ids",
    "response_logprobs",
    "response_mask",
    "finish_reason",
    "reward",
    "advantage",
    "ground_truth",
    "data_source",
)
"""What a trainer needs of a row of `ROLLOUTS`."""


def read_rollouts_record(rollouts: Location) -> RolloutsRecord:
    """What `rollouts.json` says of the table in the output `rollouts`.

    Raises:
        InputError: there is none, or it is of another version.
    """
    record = whole_record(
        rollouts,
        ROLLOUTS_FILE,
        layout=ROLLOUTS_FORMAT,
        whole="its rollouts table",
        missing="give the output of `memagent collect`, or run that command again to its end: it goes on from where it "
        "stopped",
        remedy="collect again with this version: the log answers, nothing is sampled again",
    )
    return cast(RolloutsRecord, record)


def read_groups(output: Location, *, files: Sequence[str], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Streams the groups of the files of a table, each with all rows of its samples; holds a group and a batch.

    Args:
        output: where the table is.
        files: its files, as the record names them, in this order.
        columns: columns of `ROLLOUTS` to read.

    Raises:
        InputError: a file is not there, or is no part of such a table.
    """
    names = list(dict.fromkeys(["group_id", *columns]))
    return _whole(_batches(output, files, columns=names), by=("group_id",))


def read_samples(output: Location, *, files: Sequence[str]) -> Iterator[pa.Table]:
    """Streams the samples with the columns `SAMPLE_COLUMNS`, each with all its rows; otherwise as `read_groups`."""
    return _whole(_batches(output, files, columns=SAMPLE_COLUMNS), by=("group_id", "sample"))


def _batches(output: Location, files: Sequence[str], *, columns: Sequence[str]) -> Iterator[pa.Table]:
    schema = pa.schema([ROLLOUTS.field(name) for name in columns])
    for name in files:
        place = output / name
        with (
            table_errors(place.uri, remedy="collect the rollouts again", kind=InputError),
            place.open() as stream,
            pq.ParquetFile(stream, pre_buffer=False) as file,
        ):
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=schema.names, use_threads=False):
                yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)


def _whole(batches: Iterable[pa.Table], *, by: Sequence[str]) -> Iterator[pa.Table]:
    """Tables of neighbouring rows that agree in these columns, over the borders of batches and files."""
    held: list[pa.Table] = []
    for rows in batches:
        *whole, last = _cut_where_keys_differ(pa.concat_tables([*held, rows]), by=by)
        yield from whole
        held = [last]
    yield from held


def _cut_where_keys_differ(rows: pa.Table, *, by: Sequence[str]) -> list[pa.Table]:
    keys = list(zip(*(rows[name].to_pylist() for name in by), strict=True))
    starts = [0, *(row for row in range(1, len(keys)) if keys[row] != keys[row - 1]), len(keys)]
    return [rows.slice(start, stop - start) for start, stop in pairwise(starts)]
