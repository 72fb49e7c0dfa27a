"""A filter of rows in the SQL of DuckDB: of inputs (`input.where`), of answers to read again, of those to review.

`year >= 2026 and (kind in ('contract', 'offer') or kind is null)`. Rows count for which the whole is true.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.store.database import open_database, run_query
from memagent_batch.errors import InputError

_ROW = "row number"
"""Name of a column beside those of a condition."""
_WORD = re.compile(r"""'(?:[^']|'')*'|"((?:[^"]|"")+)"|([^\W\d]\w*)""")
"""A text, which is passed over, or a name."""
_NUMBER = r"^(0|-?[1-9]\d{0,17})$"
"""A key of a folder that is compared as a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A filter of rows."""

    text: str
    option: str = "input.where"
    """What the user wrote it for, for messages."""

    def columns_among(self, names: Iterable[str]) -> list[str]:
        """Those of these columns that it asks for; seldom one more, with the name of a function or keyword.

        Raises:
            InputError: SQL does not tell two of them apart.
        """
        words = {word.lower() for word in self.words()}
        found: dict[str, str] = {}
        for name in names:
            if name.lower() in words and found.setdefault(name.lower(), name) != name:
                other = found[name.lower()]
                raise InputError(f"{self.option}: columns {other!r} and {name!r} differ in case alone; rename one")
        return [*found.values()]

    def words(self) -> Iterator[str]:
        """All that may be the name of a column."""
        yield from (word or quoted.replace('""', '"') for quoted, word in _WORD.findall(self.text) if quoted or word)

    @property
    def spaced(self) -> str:
        """The same text however its words are set apart."""
        import duckdb

        data = self.text.encode()  # DuckDB counts bytes
        starts = [start for start, _ in duckdb.tokenize(self.text)]
        return " ".join(data[start:end].decode().strip() for start, end in pairwise([*starts, len(data)]))

    @property
    def test(self) -> str:
        """It as a part of a query; a comment at its end ends there."""
        return f"(\n{self.text}\n)"


def parse_where(text: str, *, option: str = "input.where") -> Condition:
    """The condition that a filter states.

    Raises:
        InputError: it is malformed; says where.
    """
    condition = Condition(text=text, option=option)
    with open_database({}) as database, _sql_errors(condition, there=()):
        for test in (text, condition.test):  # the faults of the first are named by the text alone
            database.extract_statements(f"select 1 where {test}")
    return condition


def matching_rows(table: pa.Table, condition: Condition, *, there: Iterable[str] = ()) -> npt.NDArray[np.int64]:
    """Numbers of the rows of a table that a condition takes, from 0.

    `there`: for messages, all columns that it might ask for; those of the table by default.

    Raises:
        InputError: there is no such column, or a column can't be compared so; says what there is.
    """
    named = table.select(condition.columns_among(table.schema.names))
    types = {field.name: f"{field.name} ({field.type})" for field in named.schema}
    columns = {name: types.get(name, name) for name in (*there, *table.schema.names)}
    with _sql_errors(condition, there=[*columns.values()]):
        return _rows(named, condition.test)


def files_that_may_match(files: Sequence[Mapping[str, pa.Scalar]], condition: Condition) -> npt.NDArray[np.int64]:
    """Numbers of the files that may have a row which a condition takes, by what is the same in all rows of a file."""
    keys = key_columns(files)
    if not condition.columns_among(keys.schema.names):
        return np.arange(len(files))
    for word in sorted({*map(str.lower, condition.words())} - {*map(str.lower, keys.schema.names)}):
        keys = keys.append_column(word, pa.nulls(len(files)))
    try:
        with _sql_errors(condition, there=keys.schema.names):
            return _rows(keys, f"{condition.test} is not false")
    except InputError:  # a column of the rows may need its type; what is wrong is told when the rows are filtered
        return np.arange(len(files))


def key_columns(files: Sequence[Mapping[str, pa.Scalar]], *, numbers: Collection[str] | None = None) -> pa.Table:
    """What is the same in all rows of a file, such as keys of its folders: a row for each file, null for what it lacks.

    Texts that are whole numbers in all files are numbers. Of some of the files of an input, it is those in `numbers`.
    """
    table = pa.table({_ROW: np.arange(len(files))}).drop_columns([_ROW])
    for name in dict.fromkeys(name for values in files for name in values):
        found = [values.get(name) for values in files]
        kind = next(each.type for each in found if each is not None)
        column = pa.array([None if each is None else each.as_py() for each in found], kind)
        are_numbers = pa.types.is_string(kind) and (numbers is None or name in numbers)
        if are_numbers and pc.all(pc.match_substring_regex(column, _NUMBER), min_count=0).as_py():
            column = column.cast(pa.int64()) if column.null_count < len(files) else pa.nulls(len(files))
        table = table.append_column(name, column)
    return table


def _rows(columns: pa.Table, test: str) -> npt.NDArray[np.int64]:
    numbered = columns.append_column(_ROW, pa.array(np.arange(columns.num_rows)))
    found = run_query(f'select "{_ROW}" from numbered where {test} order by all', {"numbered": numbered})
    return np.asarray(found[_ROW].to_numpy(), dtype=np.int64)


@contextmanager
def _sql_errors(condition: Condition, *, there: Sequence[str]) -> Iterator[None]:
    import duckdb  # a process that filters nothing needs none

    try:
        yield
    except (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError) as error:
        why = str(error).partition("\n")[0].partition(": ")[2]
        columns = f"; columns: {', '.join(there)}" if there else ""
        raise InputError(
            f"{condition.option}: {condition.text!r}: {why}{columns}; write SQL as DuckDB reads it, with texts, dates "
            "and times in single quotes"
        ) from error
