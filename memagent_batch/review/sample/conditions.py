"""What a review takes for flagged: a condition on a column of `answers`, such as `value_bool = true`."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.errors import SettingsError

EXAMPLES = "value_bool = true, value_label in ('red', 'amber'), value_number >= 1000, answer ~ '(?i)^yes'"
"""Conditions as messages show them."""
COMPARISONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<=": pc.less_equal,
    ">=": pc.greater_equal,
    "<": pc.less,
    ">": pc.greater,
    "~": pc.match_substring_regex,
}
"""Functions of the operators. `~` is an RE2 expression that is found anywhere in a text, in linear time."""

_CONDITION = re.compile(r"\s*(\w+)\s*(!=|<=|>=|=|<|>|~|\bin\b)\s*(.+?)\s*", re.DOTALL)
_QUOTED_TEXT = re.compile(r"'((?:[^']|'')*)'")
_LIST = re.compile(rf"\(\s*({_QUOTED_TEXT.pattern}(?:\s*,\s*{_QUOTED_TEXT.pattern})*)\s*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCondition:
    """One column, one operator, one value or several."""

    text: str
    """As the user wrote it."""
    column: str
    """The column of `answers`."""
    operator: str
    """A key of `COMPARISONS`, or `in`."""
    value: Any
    """What the column is compared with; of `in` a list of texts."""

    @property
    def canonical(self) -> str:
        """The same text for each way to write the condition: labels to one are labels to all."""
        if self.operator == "in":
            return f"{self.column} in ({', '.join(map(_written, sorted(set(self.value))))})"
        return f"{self.column} {self.operator} {_written(self.value)}"

    def holds(self, answers: pa.Table) -> pa.ChunkedArray:
        """Whether each row fulfils it; false where the column is null.

        Raises:
            SettingsError: the table has no such column, or it is of another type.
        """
        if self.column not in answers.schema.names:
            raise SettingsError(
                f"--flagged: the run's answers have no column {self.column!r}; columns: "
                f"{', '.join(answers.schema.names)}. Flag a run without typed values by its answer: answer ~ 'yes'"
            )
        column = answers[self.column]
        try:
            if self.operator == "in":
                return pc.is_in(column, value_set=pa.array(self.value, column.type))
            if self.operator == "~":
                return pc.fill_null(pc.match_substring_regex(column, self.value), False)
            compared = COMPARISONS[self.operator](column, pa.scalar(self.value, column.type))
        except (pa.ArrowException, TypeError) as error:
            raise SettingsError(
                f"--flagged: {self.text!r} does not fit the column {self.column!r} of type {column.type}: "
                f"{' '.join(str(error).split())}; write a condition as {EXAMPLES}"
            ) from error
        return pc.fill_null(compared, False)


@lru_cache
def parse_condition(text: str) -> ColumnCondition:
    """A condition as users write it.

    Raises:
        SettingsError: it can't be parsed; shows how conditions look.
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise SettingsError(f"--flagged: {text!r} is not a condition; write one as {EXAMPLES}")
    column, operator, written = found.groups()
    return ColumnCondition(
        text=text.strip(), column=column, operator=operator, value=_compared_value(written, operator, text=text)
    )


def canonical_about(text: str) -> str:
    """What people decide, as `ColumnCondition.canonical` writes it now; the name of a column stays as it is."""
    return parse_condition(text).canonical if _CONDITION.fullmatch(text) else text


def _written(value: Any) -> str:
    """A value as conditions have it."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).lower()


def _compared_value(written: str, operator: str, *, text: str) -> Any:
    if operator == "in":
        if _LIST.fullmatch(written):
            return [each.replace("''", "'") for each in _QUOTED_TEXT.findall(written)]
    elif quoted := _QUOTED_TEXT.fullmatch(written):
        return quoted[1].replace("''", "'")
    elif operator != "~" and written.lower() in {"true", "false"}:
        return written.lower() == "true"
    elif operator != "~" and re.fullmatch(r"-?\d+(\.\d+)?", written):
        return float(written) if "." in written else int(written)
    raise SettingsError(f"--flagged: {text!r}: {written!r} can't be compared by {operator!r}; write it as {EXAMPLES}")
