"""How an endpoint is told what a completion may be, and the probes that show whether it obeys."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum

from pydantic import JsonValue, TypeAdapter

from memagent_batch.domain.guides import Guide, GuideKind, choice_of, json_of, matching

VALUE_PROPERTY = "value"
"""Name of the schema in a request, and of the one property of an object that holds a value."""

RESPONSE_FORMAT = "response_format"
"""OpenAI's field for schemas."""

OBJECT_TOKENS = 16
"""What the object around a value takes of a completion, tokens, with room for white space."""

PROBE_TOKENS = 24
"""Budget of a probe, tokens: more than its text takes in any tokeniser, an end token included."""

PROBES: Mapping[GuideKind, Guide] = {
    GuideKind.CHOICE: choice_of(*map(str, range(733, 742))),
    GuideKind.REGEX: matching("zq7[3]{2}", example="zq733"),
    GuideKind.JSON: json_of(
        {
            "type": "object",
            "properties": {"zq": {"type": "array", "items": {"enum": [733]}, "minItems": 2, "maxItems": 2}},
            "required": ["zq"],
            "additionalProperties": False,
        }
    ),
}
"""Guides that no model follows by chance; the choices are as many as those of the largest menu of single tokens."""

SERVER_REMEDY = "serve the model with vLLM, without --reasoning-parser (it keeps guides off until a thought ends)"

REMEDIES: Mapping[GuideKind, str] = {
    GuideKind.CHOICE: f"{SERVER_REMEDY}, or leave out closing turns and the types bool and label",
    GuideKind.REGEX: f"{SERVER_REMEDY}, or leave out evidence and the types labels, number and date",
    GuideKind.JSON: (
        f"{SERVER_REMEDY}, and with --structured-outputs-config "
        '\'{"backend": "xgrammar", "disable_any_whitespace": true}\', or leave out the type json'
    ),
}
"""What to do where an endpoint does not obey a kind of guide."""


class GuideForm(StrEnum):
    """A field of a request that says what may be written."""

    STRUCTURED_OUTPUTS = "structured_outputs"
    """vLLM's extension: choices, expressions and schemas."""
    RESPONSE_FORMAT = "response_format"
    """OpenAI's own: schemas; choices too where each is a number, which is the same in JSON."""
    RESPONSE_OBJECT = "response_format with an object"
    """The same where a schema must be that of an object, as hosted chat APIs want it: one with a single value."""


class GuideForms:
    """The form in which an endpoint obeys each kind of guide, found by a probe the first time."""

    def __init__(self, obeys: Callable[[Guide, GuideForm], Awaitable[bool]], *, forms: Sequence[GuideForm]) -> None:
        """Takes what asks the endpoint whether it obeys a guide in a form, and the forms to try."""
        self._obeys = obeys
        self._forms = forms
        self._found: dict[GuideKind, GuideForm] = {}
        self._looking = asyncio.Lock()

    async def of(self, kind: GuideKind) -> GuideForm | None:
        """The form for guides of this kind; None where the endpoint obeys none, for which it is asked every time."""
        async with self._looking:
            if kind not in self._found and (form := await self._first(PROBES[kind])) is not None:
                self._found[kind] = form
        return self._found.get(kind)

    async def _first(self, guide: Guide) -> GuideForm | None:
        for form in self._forms:
            if await self._obeys(guide, form):
                return form
        return None


def guide_fields(guide: Guide, form: GuideForm) -> dict[str, JsonValue] | None:
    """Fields of a request that say so; None where the form can't."""
    if form is GuideForm.STRUCTURED_OUTPUTS:
        match guide.kind:
            case GuideKind.CHOICE:
                return {form.value: {"choice": list(guide.choices)}}
            case GuideKind.REGEX:
                return {form.value: {"regex": guide.regex}}
            case GuideKind.JSON:
                return {form.value: {"json": guide.sent_json_schema()}}
    schema = _object_schema(guide) if form is GuideForm.RESPONSE_OBJECT else _schema(guide)
    if schema is None:
        return None
    sent: JsonValue = {"name": VALUE_PROPERTY, "strict": True, "schema": schema}
    return {RESPONSE_FORMAT: {"type": "json_schema", "json_schema": sent}}


def value_text(text: str, *, guide: Guide) -> str:
    """What a completion says that was guided by `RESPONSE_OBJECT`: its value, as the guide wants it.

    Raises:
        ValueError: it is no such object.
    """
    if _is_json_object(guide):
        return text
    found = TypeAdapter(dict[str, JsonValue]).validate_json(text)
    value = found.get(VALUE_PROPERTY)
    if guide.kind is GuideKind.JSON and VALUE_PROPERTY in found:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return TypeAdapter(str).validate_python(value)


def _is_json_object(guide: Guide) -> bool:
    return guide.kind is GuideKind.JSON and guide.sent_json_schema().get("type") == "object"


def _object_schema(guide: Guide) -> JsonValue:
    """The schema of an object that holds what the guide allows, and nothing else."""
    if _is_json_object(guide):
        return guide.sent_json_schema()
    match guide.kind:
        case GuideKind.CHOICE:
            value: JsonValue = {"type": "string", "enum": list(guide.choices)}
        case GuideKind.REGEX:
            value = {"type": "string", "pattern": f"^({guide.regex})$"}
        case GuideKind.JSON:
            value = guide.sent_json_schema()
    return {
        "type": "object",
        "properties": {VALUE_PROPERTY: value},
        "required": [VALUE_PROPERTY],
        "additionalProperties": False,
    }


def _schema(guide: Guide) -> JsonValue:
    """What to guide by as a JSON Schema; None where there is none."""
    if guide.kind is GuideKind.JSON:
        return guide.sent_json_schema()
    if guide.choices and all(choice.isdecimal() and str(int(choice)) == choice for choice in guide.choices):
        return {"enum": [int(choice) for choice in guide.choices]}
    return None
