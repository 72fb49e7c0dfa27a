"""What a question asks its answer to be: yes or no, labels, a number, a date, a value of a schema."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from memagent_batch.errors import ValueTypeError
from memagent_batch.loop.follow_ups.json_schemas import JsonValue, SentSchema, refuse_constant, sent_schema

NOT_STATED_ENTRY = "not stated"
"""What is written, or chosen, where the document does not say."""
MAX_LABELS = 500
MAX_LABEL_CHARS = 200
"""Longest label, characters: each is shown in the prompt."""


class AnswerType(StrEnum):
    """Types of answers."""

    TEXT = "text"
    """Any text: the answer as it is."""
    BOOL = "bool"
    LABEL = "label"
    LABELS = "labels"
    """Any of the question's labels, or none of them."""
    NUMBER = "number"
    """A number, in the question's unit where it has one."""
    DATE = "date"
    """A day of the calendar."""
    JSON = "json"
    """A value that fits the question's JSON Schema."""


LABEL_MARK = "|"
"""Stands between labels in one text, as in a CSV file."""
HAS_LABELS = frozenset({AnswerType.LABEL, AnswerType.LABELS})


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    """A type of answers with what belongs to it; checked when it is made.

    Raises:
        ValueTypeError: it can't be asked for; names what is wrong and what to do.
    """

    type: AnswerType = AnswerType.TEXT
    labels: tuple[str, ...] = ()
    schema: str = ""
    """JSON Schema 2020-12 as JSON text, for json; `sent_schema` says which part of it may be used."""
    unit: str = ""
    """Unit that the number is written in, for number."""
    not_stated: bool = True
    """Whether "not stated" may be answered; without it an answer is forced where the document has none."""

    def __post_init__(self) -> None:
        _require_labels(self)
        if bool(self.schema) != (self.type is AnswerType.JSON):
            raise ValueTypeError(
                "schema: it belongs to the type json, and only there; "
                + ("take it out" if self.schema else "give the JSON Schema that the answer is to fit")
            )
        if self.unit and self.type is not AnswerType.NUMBER:
            raise ValueTypeError(f"unit: {self.unit!r} belongs to the type number, not to {self.type.value}")
        if self.schema:
            self.sent_schema()

    def sent_schema(self) -> SentSchema:
        """The schema as an engine is given it, and as values are checked against it.

        Raises:
            ValueTypeError: it is not JSON, or no schema that can be asked for.
        """
        return _sent_schema(self.schema)

    def identity(self) -> dict[str, JsonValue]:
        """What decides a value, as JSON values."""
        return {
            "type": self.type.value,
            "labels": list(self.labels),
            "schema": json.loads(self.schema) if self.schema else None,
            "unit": self.unit,
            "not_stated": self.not_stated,
        }


def parse_value_type(
    answer_type: str | None,
    *,
    labels: Sequence[str] | None = None,
    schema: str | Mapping[str, Any] | None = None,
    unit: str | None = None,
    not_stated: bool | None = None,
    is_unit_asked: bool = False,
) -> ValueType | None:
    """The type that a row of a question list asks for; None where it asks for none.

    `is_unit_asked`: whether every number needs a unit, as in a list with a column `unit`.

    Raises:
        ValueTypeError: names the column, what is wrong, and what to do.
    """
    if answer_type is None:
        for name, value in (("labels", labels), ("schema", schema), ("unit", unit)):
            if value:
                raise ValueTypeError(f"{name}: the question has no answer_type; say which one it asks for")
        return None
    names = ", ".join(AnswerType)
    if answer_type not in tuple(AnswerType):
        raise ValueTypeError(f"answer_type: {answer_type!r} is not one of {names}")
    kind = AnswerType(answer_type)
    if kind is AnswerType.NUMBER and is_unit_asked and not (unit or "").strip():
        raise ValueTypeError("unit: the list has units, and this number none; give one, such as EUR or days, or 1")
    return ValueType(
        type=kind,
        labels=tuple(labels or ()),
        schema=schema if isinstance(schema, str) else json.dumps(schema) if schema is not None else "",
        unit=(unit or "").strip(),
        not_stated=True if not_stated is None else not_stated,
    )


def Bool(*, not_stated: bool = True) -> ValueType:  # noqa: N802 - reads as the type that it makes
    """Yes or no."""
    return ValueType(type=AnswerType.BOOL, not_stated=not_stated)


def Label(*labels: str, not_stated: bool = True) -> ValueType:  # noqa: N802
    """One of these labels."""
    return ValueType(type=AnswerType.LABEL, labels=labels, not_stated=not_stated)


def Labels(*labels: str, not_stated: bool = True) -> ValueType:  # noqa: N802
    """Any of these labels, or none of them."""
    return ValueType(type=AnswerType.LABELS, labels=labels, not_stated=not_stated)


def Number(*, unit: str = "", not_stated: bool = True) -> ValueType:  # noqa: N802
    """A number, in this unit."""
    return ValueType(type=AnswerType.NUMBER, unit=unit, not_stated=not_stated)


def Date(*, not_stated: bool = True) -> ValueType:  # noqa: N802
    """A day of the calendar."""
    return ValueType(type=AnswerType.DATE, not_stated=not_stated)


def Json(schema: Any, *, not_stated: bool = True) -> ValueType:  # noqa: N802
    """A value that fits a JSON Schema.

    Args:
        schema: the schema as an object or JSON text, or a pydantic model, whose schema is taken.
        not_stated: whether "not stated" may be answered.

    Raises:
        ValueTypeError: it is not one of these, or beyond the part that can be asked for.
    """
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    if not isinstance(schema, str | Mapping):
        raise ValueTypeError("schema: give a JSON Schema (an object or its text), or a pydantic model")
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return ValueType(type=AnswerType.JSON, schema=text, not_stated=not_stated)


@lru_cache(maxsize=1024)
def _sent_schema(text: str) -> SentSchema:
    """The schema of this text as it is sent; made once, since every reading asks for it several times."""
    try:
        schema = json.loads(text, parse_constant=refuse_constant)
    except ValueError as error:
        raise ValueTypeError(f"schema: it is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ValueTypeError("schema: it is not a JSON object; write a JSON Schema")
    return sent_schema(schema)


def _require_labels(type_: ValueType) -> None:
    labels = type_.labels
    if type_.type not in HAS_LABELS:
        if labels:
            raise ValueTypeError(f"labels: they belong to the types label and labels, not to {type_.type.value}")
        return
    if not labels:
        raise ValueTypeError("labels: there is none; name those that may be chosen")
    if len(labels) > MAX_LABELS:
        raise ValueTypeError(
            f"labels: there are {len(labels)}, and {MAX_LABELS} are the most; ask in two steps, or for the type text"
        )
    seen: dict[str, int] = {}
    for number, label in enumerate(labels, start=1):
        _require_label(label, place=f"labels: label {number}")
        if type_.not_stated and label.strip().casefold() == NOT_STATED_ENTRY:
            raise ValueTypeError(
                f"labels: label {number} is {label!r}, which may be answered anyway; leave it out, or set "
                "not_stated=false"
            )
        if label.strip() in seen:
            raise ValueTypeError(
                f"labels: label {number} is the same as label {seen[label.strip()]}: {label!r}; leave one out"
            )
        seen[label.strip()] = number


def _require_label(label: str, *, place: str) -> None:
    if not isinstance(label, str) or not label.strip():
        raise ValueTypeError(f"{place} is empty; write one or leave it out")
    if len(label) > MAX_LABEL_CHARS or len(label.splitlines()) > 1:
        raise ValueTypeError(f"{place} is longer than {MAX_LABEL_CHARS} characters, or more than one line")
    if any("\ud800" <= sign <= "\udfff" for sign in label):
        raise ValueTypeError(f"{place} holds half of a surrogate pair; write the character out")
