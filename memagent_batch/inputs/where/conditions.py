"""A filter of rows, as in SQL: of inputs (`input.where`), of answers to read again, and of what a review looks for.

`year >= 2026 and (kind in ('contract', 'offer') or kind is null)`. A comparison with null is neither true nor false, as
in SQL; rows count for which the whole is true.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

Literal = str | int | float | bool
"""What a column is compared with."""


class Comparison(StrEnum):
    """How a column is compared."""

    EQUAL = "="
    """Equal."""
    DIFFERENT = "!="
    """Not equal; false for null too."""
    BELOW = "<"
    """Smaller."""
    AT_MOST = "<="
    """Smaller or equal."""
    ABOVE = ">"
    """Greater."""
    AT_LEAST = ">="
    """Greater or equal."""
    MATCHES = "~"
    """An RE2 expression is found anywhere in the text, in linear time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """A column compared with a value."""

    column: str
    """The column."""
    how: Comparison
    """The comparison."""
    value: Literal
    """The value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """Whether a column is null."""

    column: str
    """The column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """The opposite of a condition."""

    of: "Condition"
    """The condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """Both conditions."""

    left: "Condition"
    """One."""
    right: "Condition"
    """The other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """At least one of two conditions."""

    left: "Condition"
    """One."""
    right: "Condition"
    """The other."""


Condition = Compare | IsNull | Not | And | Or
"""A filter of rows."""


def columns_of(condition: Condition) -> frozenset[str]:
    """Names of the columns that a condition asks for."""
    match condition:
        case Compare() | IsNull():
            return frozenset({condition.column})
        case Not():
            return columns_of(condition.of)
        case And() | Or():
            return columns_of(condition.left) | columns_of(condition.right)


def canonical(condition: Condition) -> str:
    """The same text for each way to write a condition, but for `not` and `between`."""
    match condition:
        case Compare():
            return f"{_column(condition.column)} {condition.how} {_written(condition.value)}"
        case IsNull():
            return f"{_column(condition.column)} is null"
        case Not():
            return f"not ({canonical(condition.of)})"
        case And():
            return " and ".join(sorted({_in_and(part) for part in _parts(condition, And)}))
        case Or():
            return " or ".join(sorted({canonical(part) for part in _parts(condition, Or)}))


def _parts(condition: Condition, kind: type[And] | type[Or]) -> list[Condition]:
    """The conditions that are joined, however they are nested."""
    if isinstance(condition, kind):
        return [*_parts(condition.left, kind), *_parts(condition.right, kind)]
    return [condition]


def _in_and(condition: Condition) -> str:
    return f"({canonical(condition)})" if isinstance(condition, Or) else canonical(condition)


def _column(name: str) -> str:
    return name if re.fullmatch(r"[^\W\d][\w.]*", name) else f'"{name}"'


def _written(value: Literal) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).lower()
