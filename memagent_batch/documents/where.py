"""A filter of rows, as in SQL: of inputs (`input.where`), of answers to read again, and of what a review looks for.

`year >= 2026 and (kind in ('contract', 'offer') or kind is null)`. A comparison with null is neither true nor false, as
in SQL; rows count for which the whole is true.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from memagent_batch.errors import InputError

Literal = str | int | float | bool
"""What a column is compared with."""


class ColumnComparison(StrEnum):
    """How a column is compared."""

    EQUAL = "="
    DIFFERENT = "!="
    """False for null too."""
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="
    MATCHES = "~"
    """An RE2 expression is found anywhere in the text, in linear time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """A column compared with a value."""

    column: str
    how: ColumnComparison
    value: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """Whether a column is null."""

    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """The opposite of a condition."""

    of: "Condition"


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """Both conditions."""

    left: "Condition"
    right: "Condition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """At least one of two conditions."""

    left: "Condition"
    right: "Condition"


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
    """The same text for each way to write a condition, except for `not` and `between`."""
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


_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>"[^"]+")|(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.])"""
    r"""|(?P<word>[^\W\d][\w.]*)|(?P<sign><=|>=|<>|!=|==|=|<|>|~|\(|\)|,))"""
)

_SIGNS = {"<>": "!=", "==": "="}

_WORDS = frozenset({"and", "or", "not", "in", "is", "null", "between", "true", "false"})


def parse_where(text: str, *, option: str = "input.where") -> Condition:
    """The condition that a filter states.

    Raises:
        InputError: it is malformed; says where.
    """
    parser = _Parser(text, option=option)
    condition = parser.either()
    parser.require_end()
    return condition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    kind: str
    """text, quoted, number, word, sign, or end."""
    text: str
    position: int

    @property
    def word(self) -> str:
        """The word in small letters; empty where it is not one."""
        return self.text.lower() if self.kind == "word" else ""


class _Parser:
    """Reads a filter from left to right: `or` binds less than `and`, `and` less than `not`."""

    def __init__(self, text: str, *, option: str) -> None:
        self._text, self._option = text, option
        self._tokens = [*_tokens(text, option=option), _Token(kind="end", text="its end", position=len(text))]
        self._next = 0

    def either(self) -> Condition:
        condition = self._both()
        while self._takes("or"):
            condition = Or(left=condition, right=self._both())
        return condition

    def require_end(self) -> None:
        if self._token.kind != "end":
            raise self._malformed(wanted="and, or, or its end")

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _both(self) -> Condition:
        condition = self._one()
        while self._takes("and"):
            condition = And(left=condition, right=self._one())
        return condition

    def _one(self) -> Condition:
        if self._takes("not"):
            return Not(of=self._one())
        if self._takes("("):
            condition = self.either()
            self._require(")")
            return condition
        return self._test()

    def _test(self) -> Condition:
        column = self._column()
        if self._takes("is"):
            is_not = self._takes("not")
            self._require("null")
            return Not(of=IsNull(column=column)) if is_not else IsNull(column=column)
        is_not = self._takes("not")
        if self._takes("in"):
            found = self._one_of(column)
        elif self._takes("between"):
            low = Compare(column=column, how=ColumnComparison.AT_LEAST, value=self._value())
            self._require("and")
            found = And(left=low, right=Compare(column=column, how=ColumnComparison.AT_MOST, value=self._value()))
        elif self._token.text in (*ColumnComparison, *_SIGNS) and not is_not:
            return self._compared(column)
        else:
            raise self._malformed(wanted="=, !=, <, <=, >, >=, ~, in, between or is null")
        return Not(of=found) if is_not else found

    def _compared(self, column: str) -> Condition:
        sign = self._take().text
        how = ColumnComparison(_SIGNS.get(sign, sign))
        if how is ColumnComparison.MATCHES:
            self._require_expression()
        return Compare(column=column, how=how, value=self._value())

    def _require_expression(self) -> None:
        """Refuses what is not a regular expression in single quotes."""
        token = self._token
        try:
            if token.kind != "text":
                raise self._malformed(wanted="a regular expression in single quotes")
            pc.match_substring_regex(pa.scalar(""), token.text[1:-1].replace("''", "'"))
        except pa.ArrowInvalid as error:
            raise self._malformed(wanted=f"a regular expression ({' '.join(str(error).split())})") from error

    def _one_of(self, column: str) -> Condition:
        self._require("(")
        tests: list[Condition] = [Compare(column=column, how=ColumnComparison.EQUAL, value=self._value())]
        while self._takes(","):
            tests.append(Compare(column=column, how=ColumnComparison.EQUAL, value=self._value()))
        self._require(")")
        return reduce(lambda left, right: Or(left=left, right=right), tests)

    def _column(self) -> str:
        token = self._token
        if token.kind not in ("word", "quoted") or token.word in _WORDS:
            raise self._malformed(wanted="a column")
        return self._take().text.strip('"')

    def _value(self) -> Literal:
        token = self._token
        if token.kind == "text":
            return self._take().text[1:-1].replace("''", "'")
        if token.kind == "number":
            text = self._take().text
            return float(text) if set(".eE") & set(text) else int(text)
        if token.word in ("true", "false"):
            return self._take().word == "true"
        raise self._malformed(wanted="a text in single quotes, a number, true or false")

    def _takes(self, text: str) -> bool:
        """Takes the next token where it is this sign or word; whether it was."""
        is_it = text in (self._token.word, self._token.text if self._token.kind == "sign" else "")
        self._next += is_it
        return is_it

    def _require(self, text: str) -> None:
        if not self._takes(text):
            raise self._malformed(wanted=text)

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _malformed(self, *, wanted: str) -> InputError:
        return _malformed(self._text, self._token, wanted=wanted, option=self._option)


def _tokens(text: str, *, option: str) -> Iterator[_Token]:
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            rest = text[position:].lstrip()
            token = _Token(kind="sign", text=rest.split()[0], position=len(text) - len(rest))
            raise _malformed(text, token, wanted="a column, a value or a comparison", option=option)
        yield _Token(kind=found.lastgroup, text=found[found.lastgroup], position=found.start(found.lastgroup))
        position = found.end()


def _malformed(text: str, token: _Token, *, wanted: str, option: str) -> InputError:
    return InputError(
        f"{option}: {text!r}: {token.text!r} at character {token.position + 1} is not what can stand there; wanted: "
        f"{wanted}"
    )


Truth = bool | None
"""What a condition is for a row; None where a null makes it neither."""

_COMPARE: Mapping[ColumnComparison, Callable[..., pc.Expression]] = {
    ColumnComparison.EQUAL: pc.equal,
    ColumnComparison.DIFFERENT: pc.not_equal,
    ColumnComparison.BELOW: pc.less,
    ColumnComparison.AT_MOST: pc.less_equal,
    ColumnComparison.ABOVE: pc.greater,
    ColumnComparison.AT_LEAST: pc.greater_equal,
    ColumnComparison.MATCHES: lambda texts, expression: pc.match_substring_regex(texts, expression.as_py()),
}

_ROW_NUMBER = "row number"
"""Name of a column beside those of a condition."""


def may_hold(condition: Condition, values: Mapping[str, pa.Scalar]) -> bool:
    """Whether the condition can be true for a row when only some of its columns are known, such as its partition."""
    truth, is_known = _truth(condition, values), columns_of(condition) <= values.keys()
    return truth is True or (truth is None and not is_known)


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
            return pc.scalar(pa.scalar(_truth(condition, values), pa.bool_()))
        case IsNull():
            return pc.field(fields[condition.column].name).is_null()
        case Compare():
            field = fields[condition.column]
            type_ = _value_type(field.type)
            column = pc.field(field.name) if type_ == field.type else pc.field(field.name).cast(type_)
            value = _literal(condition, type_, option=option)
            is_expression = condition.how is ColumnComparison.MATCHES
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


def _truth(condition: Condition, values: Mapping[str, pa.Scalar]) -> Truth:
    """What the condition is by Kleene's logic; None also if it depends on columns without a value."""
    match condition:
        case Not():
            inner = _truth(condition.of, values)
            return None if inner is None else not inner
        case And() | Or():
            both = {_truth(condition.left, values), _truth(condition.right, values)}
            decisive = isinstance(condition, Or)
            return decisive if decisive in both else None if None in both else not decisive
        case Compare() | IsNull() if condition.column not in values:
            return None
        case IsNull():
            return not values[condition.column].is_valid
        case Compare():
            return _compared(condition, values[condition.column])


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
            f"input.where: {column!r} is {text!r} in the name of a folder, which is not a number; compare it with a "
            f"text "
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
    is_expression = condition.how is ColumnComparison.MATCHES
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
