"""The part of JSON Schema 2020-12 that a question may ask an answer to fit, and the form that an engine is given."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import jsonschema

from memagent_batch.errors import ValueTypeError

Schema = Mapping[str, Any]
"""A JSON Schema."""

MAX_ITEMS = 20
"""Longest array, items, where the schema names no bound: without one a model may write until its budget is spent."""
MAX_CHARS = 300
"""Longest string, characters, where the schema names no bound."""
REASONS = ("reason", "reasons", "reasoning", "rationale", "explanation", "why")
"""Properties that are written before their neighbours: a reason that comes after a value can't guide it."""

NOTES = frozenset({"title", "description", "default", "examples", "$schema", "$id", "$comment"})
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
FORMATS = frozenset({"date", "date-time", "time", "email", "uuid"})
"""Formats of strings that engines know."""
REMEDY = "take it out, or check it after the run"


def sent_schema(schema: Schema) -> dict[str, Any]:
    """The schema as an engine is given it: references resolved, every array and string bounded, reasons first.

    Each object has all of its properties, in this order, and no others: one that is not required may be null.

    Raises:
        ValueTypeError: the schema is none, or goes beyond the subset; names the place and what to do.
    """
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueTypeError(f"schema{_place(error.absolute_path)}: {error.message}") from None
    return _sent(schema, whole=schema, place=(), within=())


def fits(text: str, *, schema: Schema) -> bool:
    """Whether a text is a JSON value that fits the schema."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return False
    return not any(_validator(schema).iter_errors(value))


def misfit(value: Any, *, schema: Schema) -> str | None:
    """Where and how a value departs from the schema; None where it fits."""
    error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(value))
    return None if error is None else f"value{_place(error.absolute_path)}: {error.message}"


def _validator(schema: Schema) -> Any:
    kind = jsonschema.Draft202012Validator
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _sent(schema: Any, *, whole: Schema, place: tuple[str, ...], within: tuple[str, ...]) -> dict[str, Any]:
    """One schema of the whole. `within` are the references that it stands in."""
    if not isinstance(schema, Mapping):
        raise ValueTypeError(f"schema{_place(place)}: write out what is allowed here; true and false are not taken")
    if "$ref" in schema:
        return _referred(schema, whole=whole, place=place, within=within)
    stated = {name: value for name, value in schema.items() if name not in NOTES and name != "$defs"}
    for name in ("enum", "const"):
        if name in stated:
            _require_keywords(stated, {name, "type"}, place=place)
            return {"enum": list(stated["enum"])} if name == "enum" else {"enum": [stated["const"]]}
    if "anyOf" in stated:
        _require_keywords(stated, {"anyOf"}, place=place)
        parts = enumerate(stated["anyOf"])
        return {
            "anyOf": [_sent(part, whole=whole, place=(*place, "anyOf", str(at)), within=within) for at, part in parts]
        }
    return _typed(stated, whole=whole, place=place, within=within)


def _referred(schema: Schema, *, whole: Schema, place: tuple[str, ...], within: tuple[str, ...]) -> dict[str, Any]:
    name = str(schema["$ref"])
    _require_keywords({key: value for key, value in schema.items() if key not in NOTES | {"$defs"}}, {"$ref"}, place)
    if name in within:
        raise ValueTypeError(f"schema{_place(place)}: {name} holds itself; write the levels out that you need")
    target = whole.get("$defs", {}).get(name.removeprefix("#/$defs/"))
    if target is None:
        raise ValueTypeError(f"schema{_place(place)}: there is no {name}; refer to #/$defs/NAME")
    return _sent(target, whole=whole, place=place, within=(*within, name))


def _typed(stated: dict[str, Any], *, whole: Schema, place: tuple[str, ...], within: tuple[str, ...]) -> dict[str, Any]:
    types = stated.get("type")
    if isinstance(types, Sequence) and not isinstance(types, str):
        return {"anyOf": [_typed({**_for_type(stated, kind), "type": kind}, whole=whole, place=place, within=within)
                          for kind in types]}  # fmt: skip
    if types not in KEYWORDS:
        raise ValueTypeError(f"schema{_place(place)}: needs a type: {', '.join(KEYWORDS)}; or enum, const, anyOf")
    _require_keywords(stated, KEYWORDS[types] | {"type"}, place=place)

    def inner(part: Any, *names: str) -> dict[str, Any]:
        return _sent(part, whole=whole, place=(*place, *names), within=within)

    match types:
        case "object":
            return _object(stated, inner=inner, place=place)
        case "array":
            return _array(stated, inner=inner, place=place)
        case "string":
            return _string(stated, place=place)
    return dict(stated)


def _for_type(stated: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Of the keywords beside several types, those of this one."""
    others = frozenset[str]().union(*KEYWORDS.values()) - KEYWORDS.get(kind, frozenset())
    return {name: value for name, value in stated.items() if name not in others}


Inner = Callable[..., dict[str, Any]]
"""A part of a schema at further names of the place, as it is sent."""


def _object(stated: Schema, *, inner: Inner, place: tuple[str, ...]) -> dict[str, Any]:
    properties = stated.get("properties")
    if not properties:
        raise ValueTypeError(f"schema{_place(place)}: an object needs properties; name those that you ask for")
    if stated.get("additionalProperties", False) is not False:
        raise ValueTypeError(f"schema{_place(place)}: additionalProperties can only be false; name the properties")
    required = stated.get("required", ())
    if unknown := [name for name in required if name not in properties]:
        raise ValueTypeError(f"schema{_place(place)}: requires {unknown[0]!r}, which is none of its properties")
    sent = {name: inner(part, "properties", name) for name, part in properties.items()}
    ordered = sorted(sent, key=lambda name: name.casefold() not in REASONS)
    return {
        "type": "object",
        "properties": {name: sent[name] if name in required else _or_null(sent[name]) for name in ordered},
        "required": ordered,
        "additionalProperties": False,
    }


def _array(stated: Schema, *, inner: Inner, place: tuple[str, ...]) -> dict[str, Any]:
    if "items" not in stated:
        raise ValueTypeError(f"schema{_place(place)}: an array needs items; say what they are")
    least, most = stated.get("minItems", 0), stated.get("maxItems", MAX_ITEMS)
    _require_order(least, most, "minItems", "maxItems", place=place)
    return {"type": "array", "items": inner(stated["items"], "items"), "minItems": least, "maxItems": most}


def _string(stated: Schema, *, place: tuple[str, ...]) -> dict[str, Any]:
    if "format" in stated:
        if stated["format"] not in FORMATS:
            raise ValueTypeError(
                f"schema{_place(place)}: format {stated['format']!r} is none of {', '.join(sorted(FORMATS))}; {REMEDY}"
            )
        _require_keywords(stated, {"type", "format"}, place=place)
        return {"type": "string", "format": stated["format"]}
    least, most = stated.get("minLength", 0), stated.get("maxLength", MAX_CHARS)
    _require_order(least, most, "minLength", "maxLength", place=place)
    return {"type": "string", "minLength": least, "maxLength": most}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, or null."""
    parts = schema.get("anyOf", [schema])
    null = {"type": "null"}
    if null in parts or None in schema.get("enum", ()):
        return schema
    return {"anyOf": [*parts, null]}


def _require_keywords(stated: Schema, known: set[str] | frozenset[str], place: tuple[str, ...]) -> None:
    for name in stated:
        if name not in known:
            raise ValueTypeError(f"schema{_place((*place, name))}: this keyword is not taken here; {REMEDY}")


def _require_order(least: Any, most: Any, *names: str, place: tuple[str, ...]) -> None:
    if least > most:
        low, high = names
        raise ValueTypeError(f"schema{_place(place)}: {low} {least} is above {high} {most}; raise {high}")


def _place(path: Sequence[Any] | Iterator[Any]) -> str:
    """A place in a schema or value as a JSON pointer, with a space before it; empty for the whole."""
    names = [str(name).replace("~", "~0").replace("/", "~1") for name in path]
    return f" at /{'/'.join(names)}" if names else ""
