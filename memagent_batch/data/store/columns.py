"""Tables that are declared once: a TypedDict is the type of a row, and `arrow_schema` makes the schema of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), datetime: TIMESTAMP}


@dataclass(frozen=True, slots=True)
class Column:
    """What the page of tables says of a column, in the field's metadata."""

    meaning: str
    unit: str = ""


def arrow_schema(row: type) -> pa.Schema:
    """The schema of a table, with its columns in the order of the fields of a TypedDict.

    A field may be `Annotated` with a `Column`, and with an Arrow type if that does not follow from the Python type. A
    column may be null if None is one of its values.
    """
    return pa.schema(_fields(row))


def column_types(schema: pa.Schema) -> str:
    """Names and types of the columns, without what the page of tables says of them."""
    text: str = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
    return text


def column(name: str, kind: pa.DataType, meaning: str, *, unit: str = "", nullable: bool = False) -> pa.Field:
    """A documented column of a table that has no type of its rows."""
    return pa.field(name, kind, nullable=nullable, metadata={"description": meaning, "unit": unit})


def _fields(row: type) -> list[pa.Field]:
    return [_field(name, hint) for name, hint in get_type_hints(row, include_extras=True).items()]


def _field(name: str, hint: Any) -> pa.Field:
    if get_origin(hint) is NotRequired:
        (hint,) = get_args(hint)
    extras = getattr(hint, "__metadata__", ())
    value = hint.__origin__ if extras else hint
    nullable = NoneType in get_args(value)
    kind = next((each for each in extras if isinstance(each, pa.DataType)), None) or _arrow_type(value)
    for each in extras:
        if isinstance(each, Column):
            return column(name, kind, each.meaning, unit=each.unit, nullable=nullable)
    return pa.field(name, kind, nullable=nullable)


def _arrow_type(value: Any) -> pa.DataType:
    if isinstance(value, UnionType):
        (value,) = (each for each in get_args(value) if each is not NoneType)
    if is_typeddict(value):
        return pa.struct(_fields(value))
    if get_origin(value) in (list, Sequence):
        return pa.list_(_arrow_type(*get_args(value)))
    return _TYPES[value]
