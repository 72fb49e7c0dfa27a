"""What a filter is for values: an Arrow expression for the rows of a file, and what may hold of all of them at once."""

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from memagent_batch.errors import InputError
from memagent_batch.inputs.where.conditions import And, Compare, Comparison, Condition, IsNull, Not, Or, columns_of

Truth = bool | None
"""What a condition is for a row; None where a null makes it neither."""

_COMPARE: Mapping[Comparison, Callable[..., pc.Expression]] = {
    Comparison.EQUAL: pc.equal,
    Comparison.DIFFERENT: pc.not_equal,
    Comparison.BELOW: pc.less,
    Comparison.AT_MOST: pc.less_equal,
    Comparison.ABOVE: pc.greater,
    Comparison.AT_LEAST: pc.greater_equal,
    Comparison.MATCHES: lambda texts, expression: pc.match_substring_regex(texts, expression.as_py()),
}

_ROW_NUMBER = "row number"
"""Name of a column beside those of a condition."""
_ALL: frozenset[Truth] = frozenset({True, False, None})


def may_hold(condition: Condition, values: Mapping[str, pa.Scalar]) -> bool:
    """Whether the condition can be true for a row when only some of its columns are known, such as its partition."""
    return True in _outcomes(condition, values)


def row_expression(
    condition: Condition,
    *,
    fields: Mapping[str, pa.Field],
    values: Mapping[str, pa.Scalar],
    option: str = "input.where",
) -> pc.Expression:
    """The condition for Arrow.

    Args:
        condition: The condition.
        fields: Fields of the file that stand for columns, by column.
        values: Values of the columns that have one value in the whole file.
        option: What the user wrote the condition for, for messages.

    Raises:
        InputError: a column is compared with a value of another type.
    """
    match condition:
        case And() | Or():
            parts = (condition.left, condition.right)
            left, right = (row_expression(part, fields=fields, values=values, option=option) for part in parts)
            return left & right if isinstance(condition, And) else left | right
        case Not():
            return ~row_expression(condition.of, fields=fields, values=values, option=option)
        case Compare() | IsNull() if condition.column in values:
            (outcome,) = _outcomes(condition, values)
            return pc.scalar(pa.scalar(outcome, pa.bool_()))
        case IsNull():
            return pc.field(fields[condition.column].name).is_null()
        case Compare():
            field = fields[condition.column]
            type_ = _value_type(field.type)
            column = pc.field(field.name) if type_ == field.type else pc.field(field.name).cast(type_)
            value = _literal(condition, type_, option=option)
            is_expression = condition.how is Comparison.MATCHES
            return _COMPARE[condition.how](column, value if is_expression else pc.scalar(value))


def matching_rows(table: pa.Table, condition: Condition, *, option: str = "input.where") -> npt.NDArray[np.int64]:
    """Numbers of the rows of a table that a condition takes, from 0.

    Raises:
        InputError: the table has no such column, or a column is compared with a value of another type.
    """
    names = sorted(columns_of(condition))
    if missing := [name for name in names if name not in table.schema.names]:
        raise InputError(f"{option}: there is no column {missing[0]!r}; columns: {', '.join(table.schema.names)}")
    fields = {name: table.schema.field(name) for name in names}
    numbered = table.select(names).append_column(_ROW_NUMBER, pa.array(np.arange(table.num_rows, dtype=np.int64)))
    found = numbered.filter(row_expression(condition, fields=fields, values={}, option=option))
    return np.asarray(found[_ROW_NUMBER].to_numpy(), dtype=np.int64)


def _outcomes(condition: Condition, values: Mapping[str, pa.Scalar]) -> frozenset[Truth]:
    """All that the condition can be, by Kleene's logic."""
    match condition:
        case Not():
            return frozenset(None if each is None else not each for each in _outcomes(condition.of, values))
        case And() | Or():
            pairs = product(_outcomes(condition.left, values), _outcomes(condition.right, values))
            return frozenset(_joined(*pair, decisive=isinstance(condition, Or)) for pair in pairs)
        case Compare() | IsNull() if condition.column not in values:
            return _ALL
        case IsNull():
            return frozenset({not values[condition.column].is_valid})
        case Compare():
            return frozenset({_compared(condition, values[condition.column])})


def _joined(left: Truth, right: Truth, *, decisive: bool) -> Truth:
    if decisive in (left, right):
        return decisive
    return None if None in (left, right) else not decisive


def _compared(condition: Compare, value: pa.Scalar) -> Truth:
    if not value.is_valid:
        return None
    type_ = _value_type(value.type)
    if types.is_string(type_) and not isinstance(condition.value, str):  # the key of a folder has no type
        number = _number(value.as_py(), column=condition.column)
        truth = _COMPARE[condition.how](pa.scalar(float(number)), pa.scalar(float(condition.value)))
    else:
        truth = _COMPARE[condition.how](value.cast(type_), _literal(condition, type_))
    return bool(truth.as_py())


def _number(text: str, *, column: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise InputError(
            f"input.where: {column!r} is {text!r} in the name of a folder, which is no number; compare it with a text "
            "in single quotes"
        ) from error


def _value_type(type_: pa.DataType) -> pa.DataType:
    """The type in which values of a column are compared."""
    if isinstance(type_, pa.BaseExtensionType):
        return _value_type(type_.storage_type)
    if types.is_dictionary(type_):
        return _value_type(type_.value_type)
    return pa.string() if types.is_string_view(type_) or types.is_large_string(type_) else type_


def _literal(condition: Compare, type_: pa.DataType, *, option: str = "input.where") -> pa.Scalar:
    """The value of a comparison as the column's type."""
    value, is_number = condition.value, not isinstance(condition.value, str | bool)
    is_expression = condition.how is Comparison.MATCHES
    is_fitting = (
        (isinstance(value, str) and (types.is_string(type_) or (types.is_temporal(type_) and not is_expression)))
        or (is_number and (types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_)))
        or (isinstance(value, bool) and types.is_boolean(type_))
    )
    try:
        if is_fitting and types.is_timestamp(type_) and type_.tz:  # a time without a zone is UTC
            return pa.scalar(value).cast(pa.timestamp(type_.unit)).cast(type_)
        if is_fitting:
            return pa.scalar(value) if is_number else pa.scalar(value).cast(type_)
    except pa.ArrowInvalid:
        pass
    shown = repr(value) if isinstance(value, str) else str(value).lower()
    raise InputError(
        f"{option}: column {condition.column!r} holds {type_}, which can't be compared with {shown}; write texts, "
        "dates and times in single quotes ('2026-01-31'), numbers and true or false without"
    )
