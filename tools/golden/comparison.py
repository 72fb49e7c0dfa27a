"""Two recordings of the same jobs, compared file for file, column for column, row for row."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tools.golden.recording import LOG_FOLDERS, load

CHANGING = {
    "started_at": "the clock",
    "finished_at": "the clock",
    "seconds": "how long the run took",
    "engine_seconds": "how long the engine took",
    "key": "hash of a part of the tables in the manifest, made of the names of log files among other things",
}
"""Columns and JSON keys whose values differ between two runs of the same code, with the cause. Names, types and
metadata of these columns are compared all the same. Run ids and the work folder are replaced in the recording."""
CHANGING_WITH_ORDER = {
    "num_cached_prompt_tokens": "which of several documents comes to the engine first; later ones share its prefix",
}
"""The same, in jobs that read several documents with a model. Their order is Ray's."""
ORDERED_BY_RAY = frozenset({"demo"})
"""These jobs, by the first folder of their recordings."""
SHOWN = 5
"""Rows that are shown of each table or column that differs."""
SHOWN_CHARACTERS = 160
"""Longest text that is shown of a value."""


def compare_recordings(before: Path, after: Path, *, jobs: Sequence[str] = ()) -> list[str]:
    """What differs between two folders of recordings, a line each; of all jobs where none is named."""
    names = [_recordings(folder, jobs=jobs) for folder in (before, after)]
    lines = list(_compare_names("recording", sorted(names[0]), sorted(names[1])))
    for name in sorted(names[0] & names[1]):
        lines += [f"{name}: {line}" for line in compare_folders(before / name, after / name, changing=_changing(name))]
    return lines


def compare_folders(before: Path, after: Path, *, changing: frozenset[str] = frozenset(CHANGING)) -> list[str]:
    """What differs between two recordings of one output."""
    old, new = load(before), load(after)
    lines = list(_compare_names("table", list(old.tables), list(new.tables)))
    for name in sorted(old.tables.keys() & new.tables.keys()):
        tables = old.tables[name], new.tables[name]
        found = compare_tables(*tables, changing=changing, is_ordered=name not in LOG_FOLDERS)
        lines += [f"{name}: {line}" for line in found]
    lines += _compare_names("JSON file", list(old.values), list(new.values))
    for name in sorted(old.values.keys() & new.values.keys()):
        lines += [f"{name}: {line}" for line in compare_values(old.values[name], new.values[name], changing=changing)]
    return lines


def compare_tables(
    old: pa.Table, new: pa.Table, *, changing: frozenset[str] = frozenset(CHANGING), is_ordered: bool = True
) -> list[str]:
    """What differs between two tables: metadata, columns, their types, rows, cells."""
    lines = list(_compare_schemas(old.schema, new.schema))
    names = [name for name in old.schema.names if name in new.schema.names and name not in changing]
    rows = [_rows(table, names, is_ordered=is_ordered) for table in (old, new)]
    if old.num_rows == new.num_rows:
        return lines + list(_compare_cells(*rows, names=names))
    return [*lines, f"{old.num_rows} rows, now {new.num_rows}", *_compare_rows(*rows, names=names)]


def compare_values(old: Any, new: Any, *, changing: frozenset[str] = frozenset(CHANGING), at: str = "") -> list[str]:
    """What differs between two JSON values."""
    if isinstance(old, dict) and isinstance(new, dict):
        lines = list(_compare_names(f"key of {at or 'the object'}", sorted(old), sorted(new)))
        return lines + [
            line
            for name in old
            if name in new and name not in changing
            for line in compare_values(old[name], new[name], changing=changing, at=f"{at}.{name}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [
            line for number, pair in pairs for line in compare_values(*pair, changing=changing, at=f"{at}[{number}]")
        ]
    if repr(old) == repr(new):
        return []
    before, after = _around(repr(old), repr(new))
    return [f"{at}: {before}, now {after}"]


def _recordings(folder: Path, *, jobs: Sequence[str]) -> set[str]:
    names = {str(path.parent.relative_to(folder)) for path in folder.rglob("tables")}
    return {name for name in names if not jobs or name.split("/")[0] in jobs}


def _changing(name: str) -> frozenset[str]:
    job = name.split("/")[0]
    return frozenset(CHANGING | (CHANGING_WITH_ORDER if job in ORDERED_BY_RAY else {}))


def _compare_names(kind: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    yield from (f"{kind} {name!r} is gone" for name in old if name not in new)
    yield from (f"{kind} {name!r} is new" for name in new if name not in old)
    kept_old, kept_new = [name for name in old if name in new], [name for name in new if name in old]
    if kept_old != kept_new:
        yield f"{kind}: the order was {kept_old}, now {kept_new}"


def _compare_schemas(old: pa.Schema, new: pa.Schema) -> Iterator[str]:
    yield from _compare_names("column", old.names, new.names)
    if old.metadata != new.metadata:
        yield f"schema metadata {old.metadata}, now {new.metadata}"
    for name in old.names:
        if name in new.names and not old.field(name).equals(new.field(name), check_metadata=True):
            yield f"column {name!r}: {_field(old.field(name))}, now {_field(new.field(name))}"


def _field(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'} {field.metadata}"


def _rows(table: pa.Table, names: Sequence[str], *, is_ordered: bool) -> list[tuple[str, ...]]:
    """The rows of some columns; values as `repr` writes them, so that 1, 1.0 and True differ and NaN equals NaN."""
    columns = [map(repr, table.column(name).to_pylist()) for name in names]
    rows = list(zip(*columns, strict=True))
    return rows if is_ordered else sorted(rows)


def _compare_cells(
    old: Sequence[tuple[str, ...]], new: Sequence[tuple[str, ...]], *, names: Sequence[str]
) -> Iterator[str]:
    for position, name in enumerate(names):
        rows = [row for row, pair in enumerate(zip(old, new, strict=True)) if pair[0][position] != pair[1][position]]
        for row in rows[:SHOWN]:
            pair = _around(old[row][position], new[row][position])
            yield f"row {row}, column {name!r}: {pair[0]}, now {pair[1]}"
        if len(rows) > SHOWN:
            yield f"column {name!r}: {len(rows)} rows differ"


def _compare_rows(
    old: Sequence[tuple[str, ...]], new: Sequence[tuple[str, ...]], *, names: Sequence[str]
) -> Iterator[str]:
    counts = Counter(old), Counter(new)
    for word, rows in (("gone", counts[0] - counts[1]), ("new", counts[1] - counts[0])):
        for row in list(rows.elements())[:SHOWN]:
            yield f"a row is {word}: {_short(repr(dict(zip(names, row, strict=True))))}"
        if rows.total() > SHOWN:
            yield f"{rows.total()} rows are {word}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _around(old: str, new: str) -> tuple[str, str]:
    """Both texts from a little before the first character that differs."""
    same = next((place for place, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
    start = max(same - SHOWN_CHARACTERS // 2, 0)
    lead = "..." if start else ""
    return lead + _short(old[start:]), lead + _short(new[start:])
