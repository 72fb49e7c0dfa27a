"""The part of JSON Schema 2020-12 that a question may ask an answer to fit, and the form that an engine is given."""

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, TypeAlias

import jsonschema

from memagent_batch.errors import ValueTypeError

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
Schema = Mapping[str, Any]
SentSchema: TypeAlias = dict[str, Any]
"""A JSON Schema as an engine is given it: a type with its bounds, or one of `enum` and `anyOf` alone."""

BOUNDS = (("minimum", "maximum"), ("minItems", "maxItems"), ("minLength", "maxLength"))
DEFAULT_BOUNDS: Final[Mapping[str, Mapping[str, int]]] = {
    "array": {"minItems": 0, "maxItems": 20},
    "integer": {"minimum": -(10**15), "maximum": 10**15},
    "number": {"minimum": -(10**15), "maximum": 10**15},
}
"""What holds where the schema names no bound: without one a model may write until its budget is spent."""
MAX_INTEGER = 2**63 - 1
"""Largest bound of an integer that engines know."""
FORMATS = frozenset({"date", "date-time", "time", "email", "uuid"})
"""Formats of strings that engines know."""
FORMAT_CHECKER: Final = jsonschema.FormatChecker(formats=["date", "email", "uuid"])
"""Checks all of `FORMATS`. The library has these three itself. It checks times only where a further package is
installed, so they are checked here."""

_TIME = re.compile(
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])", re.IGNORECASE
)
"""A time of day with its zone, as RFC 3339 writes it, without leap seconds."""
_DATE_CHARS = len("2026-11-23")
EXAMPLES = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "a@example.org",
    "uuid": "00000000-0000-0000-0000-000000000000",
}
"""Strings of the formats that schemas may ask for."""
MAX_PARTS = 1000
"""Most parts of a schema once its references are resolved: a reference that doubles at each level has no end soon."""
REASONS = ("reason", "reasons", "reasoning", "rationale", "explanation", "why")
"""Properties that are written before their neighbours: a reason that comes after a value can't guide it."""

NOTES = frozenset({"title", "description", "default", "examples", "$defs", "$schema", "$id", "$comment"})
"""Keywords that constrain nothing; they are taken, and not sent."""
KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "format"}),
    "integer": frozenset({"minimum", "maximum"}),
    "number": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
"""Types, and what may stand beside each."""
SCHEMA_REMEDY = "take it out, or check it after the run"


def sent_schema(schema: Schema) -> SentSchema:
    """The schema as an engine is given it: references resolved, all parts bounded, reasons first.

    Each object has all of its properties, in this order, and no others: one that is not required may be null.

    Raises:
        ValueTypeError: the schema is not one, or goes beyond the subset; names the place and what to do.
    """
    try:
        json.dumps(schema, ensure_ascii=False).encode()
        jsonschema.Draft202012Validator.check_schema(schema)
    except UnicodeEncodeError:
        raise ValueTypeError("schema: it holds half of a surrogate pair; write the character out") from None
    except jsonschema.SchemaError as error:
        raise ValueTypeError(f"schema{_pointer(error.absolute_path)}: {error.message}") from None
    return _convert(schema, _Place(whole=schema))


def engine_schema(schema: Schema) -> dict[str, Any]:
    """A schema that is sent, without the bounds of strings, which are checked afterwards.

    Under minLength, maxLength or a pattern xgrammar 0.2.8 allows no escape: no quote, backslash or line end. Under the
    first two it allows raw control characters too, which are not JSON.
    """
    parts = {name: value for name, value in schema.items() if name not in ("minLength", "maxLength")}
    if "properties" in parts:
        parts["properties"] = {name: engine_schema(part) for name, part in parts["properties"].items()}
    if "items" in parts:
        parts["items"] = engine_schema(parts["items"])
    if "anyOf" in parts:
        parts["anyOf"] = [engine_schema(part) for part in parts["anyOf"]]
    return parts


def fits(text: str, *, schema: Schema) -> bool:
    """Whether a text is a JSON value that fits the schema."""
    try:
        value = json_value(text)
    except ValueError:
        return False
    return not any(_validator(schema).iter_errors(value))


def json_value(text: str) -> Any:
    """The value that a text is as JSON.

    Raises:
        ValueError: it is not JSON, nested too deep, or holds half of a surrogate pair, which no table can keep.
    """
    try:
        value = json.loads(text, parse_constant=refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, which is not text") from None
    return value


def misfit(value: Any, *, schema: Schema) -> str | None:
    """Where and how a value departs from the schema; None where it fits."""
    error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(value))
    return None if error is None else f"value{_pointer(error.absolute_path)}: {error.message}"


def example_value(schema: Schema) -> Any:
    """The smallest value that fits: the first choice, empty arrays, zeros."""
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example_value(schema["anyOf"][0])
    match schema["type"]:
        case "object":
            return {name: example_value(part) for name, part in schema["properties"].items()}
        case "array":
            return [example_value(schema["items"])] * schema.get("minItems", 0)
        case "string":
            return EXAMPLES.get(schema.get("format", ""), "a" * schema.get("minLength", 0))
        case "integer" | "number":
            return max(schema.get("minimum", 0), min(0, schema.get("maximum", 0)))
        case "boolean":
            return False
    return None


def _validator(schema: Schema) -> Any:
    return jsonschema.Draft202012Validator(schema, format_checker=FORMAT_CHECKER)


def refuse_constant(constant: str) -> Any:
    """Refuses what Python's parser takes and JSON does not have: NaN and Infinity."""
    raise ValueError(f"{constant} is not JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where in a schema one of its parts stands."""

    whole: Schema
    names: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    parts: Iterator[int] = field(default_factory=count)
    """Counts the parts of the schema so far."""

    def at(self, *names: str) -> "_Place":
        """A place inside this one."""
        return replace(self, names=(*self.names, *names))

    def error(self, problem: str) -> ValueTypeError:
        """What is wrong here."""
        return ValueTypeError(f"schema{_pointer(self.names)}: {problem}")

    def require_keywords(self, stated: Schema, *known: str) -> None:
        """Checks that nothing else is stated here."""
        for name in stated:
            if name not in known:
                raise self.at(name).error(f"this keyword is not taken here; {SCHEMA_REMEDY}")


def _convert(schema: Any, place: _Place) -> SentSchema:
    if not isinstance(schema, Mapping):
        raise place.error("write out what is allowed here; true and false are not taken")
    if next(place.parts) >= MAX_PARTS:
        raise place.error(f"the schema has more than {MAX_PARTS} parts with its references; ask for less at once")
    stated = {name: value for name, value in schema.items() if name not in NOTES}
    if "$ref" in stated:
        return _convert_reference(stated, place)
    for name in ("enum", "const"):
        if name in stated:
            place.require_keywords(stated, name, "type")
            return {"enum": _allowed_values(stated, name, place)}
    if "anyOf" in stated:
        place.require_keywords(stated, "anyOf")
        parts = enumerate(stated["anyOf"])
        return {"anyOf": [_convert(part, place.at("anyOf", str(number))) for number, part in parts]}
    types = stated.get("type")
    if isinstance(types, list):
        return {"anyOf": [_convert_typed(_keywords_of_type(stated, kind), place) for kind in types]}
    return _convert_typed(stated, place)


def _allowed_values(stated: Schema, name: str, place: _Place) -> list[Any]:
    """The values that `enum` or `const` allows, all of the type that stands beside it."""
    values = list(stated["enum"]) if name == "enum" else [stated["const"]]
    if not values:
        raise place.at(name).error("it has no values; name those that are allowed")
    kind = {key: value for key, value in stated.items() if key == "type"}
    for number, value in enumerate(values):
        if misfit(value, schema=kind) is not None:
            inner = place.at(name, str(number)) if name == "enum" else place.at(name)
            raise inner.error(f"{value!r} is not of the type {stated['type']}; take it out, or the type")
    return values


def _convert_reference(stated: Schema, place: _Place) -> SentSchema:
    name = str(stated["$ref"])
    place.require_keywords(stated, "$ref")
    if name in place.within:
        raise place.error(f"{name} holds itself; write the levels out that you need")
    target = place.whole.get("$defs", {}).get(name.removeprefix("#/$defs/"))
    if target is None:
        raise place.error(f"there is no {name}; refer to #/$defs/NAME")
    return _convert(target, replace(place, within=(*place.within, name)))


def _keywords_of_type(stated: Schema, kind: str) -> Schema:
    """Of the keywords beside several types, those of this one."""
    others = frozenset[str]().union(*KEYWORDS.values()) - KEYWORDS.get(kind, frozenset())
    return {name: value for name, value in stated.items() if name not in others} | {"type": kind}


def _convert_typed(stated: Schema, place: _Place) -> SentSchema:
    kind = str(stated.get("type"))
    if kind not in KEYWORDS:
        raise place.error(f"it needs a type: {', '.join(KEYWORDS)}; or enum, const, anyOf")
    place.require_keywords(stated, "type", *KEYWORDS[kind])
    if kind == "object":
        return _convert_object(stated, place)
    if kind == "array" and "items" not in stated:
        raise place.error("an array needs items; say what they are")
    if stated.get("format", "date") not in FORMATS:
        names = ", ".join(sorted(FORMATS))
        raise place.error(f"format {stated['format']!r} is not one of {names}; {SCHEMA_REMEDY}")
    if "format" in stated:
        place.require_keywords(stated, "type", "format")
    items = {"items": _convert(stated["items"], place.at("items"))} if kind == "array" else {}
    return _add_bounds(stated, place, is_integer=kind == "integer") | items


def _add_bounds(stated: Schema, place: _Place, *, is_integer: bool) -> SentSchema:
    """A part without parts of its own, with bounds."""
    sent = {**DEFAULT_BOUNDS.get(stated["type"], {}), **stated}
    for name in {"minimum", "maximum"} & stated.keys():
        sent[name] = _checked_bound(stated[name], place.at(name), is_integer=is_integer)
    for least, most in BOUNDS:
        if sent.get(least, -math.inf) > sent.get(most, math.inf):
            raise place.error(f"{least} {sent[least]} is above {most} {sent[most]}; raise {most}")
    return sent


def _checked_bound(bound: float, place: _Place, *, is_integer: bool) -> float:
    if not abs(bound) <= sys.float_info.max:
        raise place.error("it is beyond all numbers; give a smaller one, or leave it out")
    if is_integer and bound != int(bound):
        raise place.error(f"{bound} is not a whole number, which the bound of an integer must be; round it")
    if is_integer and not -MAX_INTEGER <= bound <= MAX_INTEGER:
        raise place.error(f"{bound} is beyond what engines know; give one between -{MAX_INTEGER} and {MAX_INTEGER}")
    return int(bound) if is_integer else bound


def _convert_object(stated: Schema, place: _Place) -> SentSchema:
    properties = stated.get("properties")
    if not properties:
        raise place.error("an object needs properties; name those that you ask for")
    if stated.get("additionalProperties", False) is not False:
        raise place.error("additionalProperties can only be false; name the properties")
    required = stated.get("required", ())
    if unknown := [name for name in required if name not in properties]:
        raise place.error(f"it requires {unknown[0]!r}, which is not one of its properties")
    sent = {name: _convert(part, place.at("properties", name)) for name, part in properties.items()}
    ordered = sorted(sent, key=lambda name: name.casefold() not in REASONS)
    return {
        "type": "object",
        "properties": {name: sent[name] if name in required else _allow_null(sent[name]) for name in ordered},
        "required": ordered,
        "additionalProperties": False,
    }


def _allow_null(schema: SentSchema) -> SentSchema:
    parts = schema.get("anyOf", [schema])
    null = {"type": "null"}
    if null in parts or None in schema.get("enum", ()):
        return schema
    return {"anyOf": [*parts, null]}


def _pointer(path: Iterable[Any]) -> str:
    """A place in a schema or value as a JSON pointer, with words before it; empty for the whole."""
    names = [str(name).replace("~", "~0").replace("/", "~1") for name in path]
    return f" at /{'/'.join(names)}" if names else ""


def is_time(value: object) -> bool:
    """Whether a value, if it is text, is a time of day with its zone."""
    return not isinstance(value, str) or _TIME.fullmatch(value) is not None


def is_date_time(value: object) -> bool:
    """Whether a value, if it is text, is a day of the calendar and a time of it, as RFC 3339 writes them."""
    if not isinstance(value, str):
        return True
    day, mark, time = value[:_DATE_CHARS], value[_DATE_CHARS : _DATE_CHARS + 1], value[_DATE_CHARS + 1 :]
    return mark in ("T", "t") and FORMAT_CHECKER.conforms(day, "date") and is_time(time)


FORMAT_CHECKER.checks("time")(is_time)
FORMAT_CHECKER.checks("date-time")(is_date_time)
