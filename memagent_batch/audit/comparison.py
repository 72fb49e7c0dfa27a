"""Compares the rows of a table file with those that follow from the log, whatever columns they have."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

SHOWN_ROWS = 5
"""Rows of a file that are named; the others are counted."""
Key = tuple[Any, ...]


def differences(expected: pa.Table, actual: pa.Table, *, keys: Sequence[str]) -> list[str]:
    """What is other in a table than it should be, one line each.

    Args:
        expected: The rows that follow from the log.
        actual: The rows that are there.
        keys: Columns that name a row.
    """
    lines = list(_other_columns(expected, actual))
    shared = [name for name in expected.schema.names if name in actual.schema.names]
    expected, actual = (table.select(shared).combine_chunks() for table in (expected, actual))
    is_same = expected.num_rows == actual.num_rows and all(
        one.equals(other) for one, other in zip(expected.columns, actual.columns, strict=True)
    )
    if is_same or not set(keys) <= set(shared):
        return lines
    rows = list(_other_rows(expected.to_pylist(), actual.to_pylist(), keys))
    shown = rows[:SHOWN_ROWS]
    return [*lines, *shown, *([f"and {len(rows) - len(shown):,} more"] if len(rows) > len(shown) else [])]


def without(table: pa.Table, names: Sequence[str], *, where: pa.ChunkedArray) -> pa.Table:
    """The table with null in these columns of some rows."""
    for name in names:
        place = table.schema.get_field_index(name)
        field = table.schema.field(place).with_nullable(True)
        column = pc.if_else(where, pa.scalar(None, field.type), table[name])
        table = table.set_column(place, field, column)
    return table


def _other_columns(expected: pa.Table, actual: pa.Table) -> Iterator[str]:
    there, wanted = ({field.name: field.type for field in table.schema} for table in (actual, expected))
    for name in wanted.keys() - there.keys():
        yield f"it has no column {name!r}"
    for name in there.keys() - wanted.keys():
        yield f"it has a column {name!r} that no row should have"
    for name in wanted.keys() & there.keys():
        if wanted[name] != there[name]:
            yield f"its column {name!r} is {there[name]}, not {wanted[name]}"


def _other_rows(expected: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Any:
    wanted = {_key(row, keys): row for row in expected}
    there = {_key(row, keys): row for row in actual}
    twice = [key for key, count in Counter(_key(row, keys) for row in actual).items() if count > 1]
    yield from (f"{_named(key, keys)}: its row is there twice" for key in twice)
    yield from (f"{_named(key, keys)}: its row is not there" for key in wanted if key not in there)
    yield from (f"{_named(key, keys)}: its row does not follow from the log" for key in there if key not in wanted)
    is_moved = True
    for key, row in wanted.items():
        other = [name for name in row if key in there and not _is_same(row[name], there[key][name])]
        if other:
            is_moved = False
            yield f"{_named(key, keys)}: {', '.join(other)} {'is' if len(other) == 1 else 'are'} not what the log says"
    if is_moved and not twice and wanted.keys() == there.keys() and list(wanted) != list(there):
        yield "its rows are in another order"


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)


def _key(row: Mapping[str, Any], keys: Sequence[str]) -> Key:
    return tuple(row[name] for name in keys)


def _named(key: Key, keys: Sequence[str]) -> str:
    values = (repr(value) if isinstance(value, str) else str(value) for value in key)
    return ", ".join(f"{name} {value}" for name, value in zip(keys, values, strict=True))
