"""The filter of an input: `input.where`, as in SQL, for partitions, row groups and rows.

`year >= 2026 and (kind in ('contract', 'offer') or kind is null)`. A comparison with null is neither true nor false, as
in SQL; rows count for which the whole is true.
"""

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
