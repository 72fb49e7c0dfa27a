"""Reads a rollouts table back, one sample at a time, for those that learn from it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from memagent_batch.errors import InputError
from memagent_batch.storage.columnar import open_grouped
from memagent_batch.storage.location import Location
from memagent_batch.storage.manifest import read_json
from memagent_batch.storage.rollouts import ROLLOUTS_FILE, ROLLOUTS_FORMAT

COLUMNS = (
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


def read_rollouts_record(rollouts: Location) -> dict[str, Any]:
    """What `rollouts.json` says of the table in the output `rollouts`.

    Raises:
        InputError: there is none, or it is of another version.
    """
    record = read_json(rollouts / ROLLOUTS_FILE)
    if record is None:
        raise InputError(
            f"{rollouts.uri}: there is no {ROLLOUTS_FILE}, so its rollouts table is not whole; give the output of "
            "`memagent collect`, or run that command again to its end: it goes on from where it stopped"
        )
    if record.get("format") != ROLLOUTS_FORMAT:
        raise InputError(
            f"{rollouts.uri}/{ROLLOUTS_FILE}: format {record.get('format')!r}, where this version reads "
            f"{ROLLOUTS_FORMAT!r}; collect again with this version: the log answers, nothing is sampled anew"
        )
    return record


def read_samples(rollouts: Location, files: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of one sample after the other, in the table's order, with the columns `COLUMNS`.

    Memory is bounded by a batch of rows or by one sample, whichever is larger.

    Args:
        rollouts: The output of `memagent collect`.
        files: The table's files, as `rollouts.json` names them.

    Raises:
        InputError: a file is missing or can't be read.
    """
    held: list[pa.Table] = []
    for name in files:
        for rows in _batches(rollouts / name):
            *whole, last = _split(pa.concat_tables([*held, rows]))
            yield from whole
            held = [last]
    yield from held


def _batches(file: Location) -> Iterator[pa.Table]:
    with open_grouped(file) as grouped:
        for group in range(len(grouped.group_bytes)):
            for batch in grouped.batches(group, names=COLUMNS):
                yield pa.Table.from_batches([batch])


def _split(rows: pa.Table) -> list[pa.Table]:
    """One table for each sample; the last one may go on in the next batch."""
    keys = list(zip(rows["group_id"].to_pylist(), rows["sample"].to_pylist(), strict=True))
    starts = [0, *(row for row in range(1, len(keys)) if keys[row] != keys[row - 1]), len(keys)]
    return [rows.slice(start, stop - start) for start, stop in pairwise(starts)]
