"""A short text that a guide allows, for the engine without a model."""

import json
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from memagent_batch.domain.closing.json_schemas import JsonValue, SentSchema
from memagent_batch.domain.guides import Guide, GuideKind

FORMATTED = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "a@example.org",
    "uuid": "00000000-0000-0000-0000-000000000000",
}
"""Strings of the formats that schemas may ask for."""


def example_of(guide: Guide) -> str:
    """A text that the guide allows: the first choice, the first alternatives of an expression, the least JSON value."""
    match guide.kind:
        case GuideKind.CHOICE:
            return guide.choices[0]
        case GuideKind.REGEX:
            return "".join(map(_matched, parser.parse(guide.regex)))
        case GuideKind.JSON:
            return json.dumps(_example_value(json.loads(guide.json_schema)), ensure_ascii=False, separators=(",", ":"))


def _matched(part: tuple[Any, Any]) -> str:
    """A text that one part of a parsed expression matches."""
    kind, value = part
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.IN:
        return _matched(value[0])
    if kind is kinds.RANGE:
        return chr(value[0])
    if kind is kinds.BRANCH:
        return "".join(map(_matched, value[1][0]))
    if kind is kinds.SUBPATTERN:
        return "".join(map(_matched, value[3]))
    if kind is kinds.MAX_REPEAT:
        least, _, repeated = value
        return "".join(map(_matched, repeated)) * int(least)
    if kind is kinds.CATEGORY and value is kinds.CATEGORY_DIGIT:
        return "0"
    raise NotImplementedError(f"no example is known for {kind} in an expression")


def _example_value(schema: SentSchema) -> JsonValue:
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _example_value(schema["anyOf"][0])
    match schema["type"]:
        case "object":
            return {name: _example_value(part) for name, part in schema["properties"].items()}
        case "array":
            return [_example_value(schema["items"])] * schema.get("minItems", 0)
        case "string":
            return FORMATTED.get(schema.get("format", ""), "a" * schema.get("minLength", 0))
        case "integer" | "number":
            return max(schema.get("minimum", 0), min(0, schema.get("maximum", 0)))
        case "boolean":
            return False
    return None
