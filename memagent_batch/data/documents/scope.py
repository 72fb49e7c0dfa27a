"""The scope of a job: which documents of a table `documents` its condition and its slice take."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.where import Condition, matching_rows, parse_where
from memagent_batch.data.store.database import run_query
from memagent_batch.loop.addresses import permanent_number

WHERE_PREFIX = "where:"
"""Goes before the names of columns that `documents` holds for `input.where` alone."""
DIGITS = 15
"""Hex digits of the permanent random number of a document that say which slice it is in: 60 bits."""
_IN_SLICE = f"""
select cast('0x' || left(sha256('slice|' || if(reader is null, document_id, source)), {DIGITS}) as ubigint) % $count
    = $number as is_inside
from rows
"""
"""As `is_in_slice`; documents of a file (they have a reader) are in the slice of their file."""


def is_in_slice(settings: InputConfig, document_id: str) -> bool:
    """Returns whether a document is in `input.slice`; each one is if there is none.

    That is decided by a permanent random number of its id, whatever other documents there are.
    """
    if settings.slice is None:
        return True
    number, count = map(int, settings.slice.split("/"))
    return int(permanent_number("slice", document_id)[:DIGITS], 16) % count == number - 1


def is_inside(rows: pa.Table, settings: InputConfig) -> npt.NDArray[np.bool_]:
    """Returns, for each row of `documents`, whether the job covers it: `input.where` and `input.slice` both take it.

    Args:
        rows: The columns document_id, source and reader, and those of the condition.
        settings: The settings of the job.
    """
    where = None if settings.where is None else parse_where(settings.where)
    return _in_condition(rows, where) & _in_slice(rows, settings.slice)


def _in_condition(rows: pa.Table, where: Condition | None) -> npt.NDArray[np.bool_]:
    if where is None:
        return np.ones(rows.num_rows, bool)
    stored = [name for name in rows.schema.names if name.startswith(WHERE_PREFIX)]
    columns = rows.select(stored).rename_columns([name.removeprefix(WHERE_PREFIX) for name in stored])
    is_inside = np.zeros(rows.num_rows, bool)
    if where.columns_among(columns.schema.names):  # else no ingest with such a condition has written them
        is_inside[matching_rows(columns, where)] = True
    return is_inside


def _in_slice(rows: pa.Table, slice_: str | None) -> npt.NDArray[np.bool_]:
    if slice_ is None:
        return np.ones(rows.num_rows, bool)
    number, count = map(int, slice_.split("/"))
    found = run_query(_IN_SLICE, {"rows": rows}, number=number - 1, count=count)
    return np.asarray(found["is_inside"].to_numpy(), dtype=bool)
