"""Reads a rollouts table back in bounded memory, for those that learn from it, by groups, as written."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.errors import InputError
from memagent_batch.files.claims import whole_record
from memagent_batch.files.errors import table_errors
from memagent_batch.files.location import Location
from memagent_batch.training.rollouts.table import ROLLOUTS, ROLLOUTS_FILE, ROLLOUTS_FORMAT, RolloutsRecord

BATCH_ROWS = 1024
"""Rows that are read at once."""


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
    return _whole(_batches(output, files, columns=names))


def require_logprobs(learnt: pa.Table) -> None:
    """Refuses turns with a token that has no log-probability; `learnt` has responses, `group_id` and `sample`.

    Raises:
        InputError: names the first one's sample.
    """
    known = pc.fill_null(pc.list_value_length(learnt["response_logprobs"]), -1)
    short = learnt.filter(pc.not_equal(known, pc.list_value_length(learnt["response_token_ids"])))
    if short.num_rows:
        row = short.select(["group_id", "sample"]).slice(0, 1).to_pylist()[0]
        raise InputError(
            f"group {row['group_id']}, sample {row['sample']}: not every token of its responses has a log-probability, "
            "without which nothing can be learnt; collect again with an engine that returns log-probabilities"
        )


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


def _whole(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables of neighbouring rows of one group, over the borders of batches and files."""
    held: list[pa.Table] = []
    for rows in batches:
        *whole, last = _cut_between_groups(pa.concat_tables([*held, rows]))
        yield from whole
        held = [last]
    yield from held


def _cut_between_groups(rows: pa.Table) -> list[pa.Table]:
    keys = rows["group_id"].to_pylist()
    starts = [0, *(row for row in range(1, len(keys)) if keys[row] != keys[row - 1]), len(keys)]
    return [rows.slice(start, stop - start) for start, stop in pairwise(starts)]
