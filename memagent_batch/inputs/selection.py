"""Reads the rows of Parquet and Arrow files that count: those that a filter takes, and that are not deleted."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.columnar import group_records, present_columns, stored_name
from memagent_batch.inputs.formats.grouped import GroupedFile, open_grouped
from memagent_batch.inputs.formats.records import Column, Record, refuse_missing
from memagent_batch.inputs.where.conditions import Condition
from memagent_batch.inputs.where.truth import row_expression

_ROW_NUMBER = "row number"
"""Name of a column beside those of the filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rows of a file count."""

    where: Condition | None
    """The filter; None takes all."""
    columns: Sequence[Column]
    """The columns that the filter asks for, as the file may have them."""
    values: Mapping[str, pa.Scalar]
    """Columns of the filter that have one value in the whole file."""
    deleted: npt.NDArray[np.int64]
    """Rows that are deleted, counted from 0 in the file, sorted."""


def read_selected(
    location: Location,
    *,
    columns: Sequence[Column],
    groups: tuple[int, int] | None,
    selection: Selection,
    keep_bad: bool = False,
) -> Iterator[Record]:
    """Streams the records that count, as `RecordReader.read`. Other columns than the filter's are read for them alone.

    Raises:
        InputError: the file, a column or a value can't be read, or the filter does not fit a column.
    """
    with open_grouped(location) as file:
        present = present_columns(file.schema, columns=columns, where=location.uri)
        condition, names = _condition(file, selection, where=location.uri)
        may_match = file.matching(condition) if condition is not None else None
        first, last = groups or (0, len(file.group_bytes))
        start = sum(file.num_rows(group) for group in range(first)) if len(selection.deleted) else 0
        for group in range(first, last):
            num_rows = file.num_rows(group)
            if may_match is None or group in may_match:
                rows = _matching_rows(file, group, condition=condition, names=names, num_rows=num_rows)
                kept = rows[~np.isin(rows, selection.deleted - start)].tolist()
                prefix = f"{location.uri}, row group {group + 1}"
                yield from group_records(file, group, columns=present, rows=kept, prefix=prefix, keep_bad=keep_bad)
            start += num_rows


def _condition(file: GroupedFile, selection: Selection, *, where: str) -> tuple[pc.Expression | None, tuple[str, ...]]:
    """The filter for this file, and the names of its columns there."""
    if selection.where is None:
        return None, ()
    fields, values = {}, {**selection.values}
    for column in selection.columns:
        name = stored_name(file.schema, column, where=where)
        if column.name in values:
            continue
        if name in file.schema.names:
            fields[column.name] = file.schema.field(name)
        elif column.absent is not None:
            values[column.name] = pa.scalar(column.absent.value)
        else:
            refuse_missing(column, there=file.schema.names, where=where)
    names = tuple(field.name for field in fields.values())
    return row_expression(selection.where, fields=fields, values=values), names


def _matching_rows(
    file: GroupedFile, group: int, *, condition: pc.Expression | None, names: Sequence[str], num_rows: int
) -> npt.NDArray[np.int64]:
    numbers = np.arange(num_rows, dtype=np.int64)
    if condition is None:
        return numbers
    rows = pa.array(numbers)
    table = (
        pa.table({_ROW_NUMBER: rows}) if not names else file.whole(group, names=names).append_column(_ROW_NUMBER, rows)
    )
    return np.asarray(table.filter(condition)[_ROW_NUMBER].to_numpy(), dtype=np.int64)
