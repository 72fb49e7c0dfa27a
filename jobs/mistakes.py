"""What is wrong with settings, in words that need no knowledge of the code."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from jobs.knobs import knobs_of
from jobs.options import nearest_name, remedy

WORDS = {
    "int_parsing": "{input} is no whole number",
    "int_type": "{input} is no whole number",
    "int_from_float": "{input} is no whole number",
    "float_parsing": "{input} is no number",
    "float_type": "{input} is no number",
    "bool_parsing": "{input} is neither true nor false",
    "bool_type": "{input} is neither true nor false",
    "greater_than_equal": "{input} is below {ge}, the least",
    "greater_than": "{input} is not above {gt}",
    "less_than_equal": "{input} is above {le}, the most",
    "less_than": "{input} is not below {lt}",
    "string_too_short": "this is empty",
    "string_type": "this is no text; put it in quotes",
    "string_unicode": "this is not valid UTF-8; write it as UTF-8",
    "tuple_type": "this is no list; write it as [a, b]",
    "list_type": "this is no list; write it as [a, b]",
    "dict_type": "this holds no names with values; write them as {{name: value}}",
    "model_type": "this is a group of knobs; write them as {{name: value}}",
    "model_attributes_type": "this is a group of knobs; write them as {{name: value}}",
}
"""What pydantic's types of errors mean to a user."""
NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?")
SHOWN_CHARACTERS = 40
"""Longest value that a line shows."""
CHOICES = frozenset({"enum", "literal_error"})


def readable(error: ValidationError, *, kind: type[BaseModel]) -> str:
    """Each wrong knob on a line, by the name that it has in a job file, with what to do."""
    names = [knob.name for knob in knobs_of(kind)]
    return "\n  ".join(_line(problem, names=names) for problem in error.errors())


def _line(problem: Mapping[str, Any], *, names: list[str]) -> str:
    knob = ".".join(part for part in problem["loc"] if isinstance(part, str))
    which = "".join(f", number {part + 1}" for part in problem["loc"] if isinstance(part, int))
    said = _said(problem, knob=knob, names=names)
    return f"{knob}{which}: {said}" if knob else said


def _said(problem: Mapping[str, Any], *, knob: str, names: list[str]) -> str:
    kind, message = problem["type"], str(problem["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return f"there is no such knob; {remedy(knob, names)}"
    if kind == "missing":
        return f"missing; give --{knob.replace('_', '-')}, or set it in the job file"
    shown = _shown(problem["input"])
    if kind in CHOICES:
        return _choice(shown, message=message)
    return WORDS[kind].format(input=shown, **problem.get("ctx", {})) if kind in WORDS else message


def _choice(shown: str, *, message: str) -> str:
    """The values that may be chosen, and the nearest of them."""
    choices = message.removeprefix("Input should be ")
    nearest = nearest_name(shown.strip("'"), choices.replace(" or ", ", ").replace("'", "").split(", "))
    return f"{shown} is none of {choices}" + (f"; did you mean {nearest}?" if nearest else "")


def _shown(value: Any) -> str:
    """A value that was given, as far as a line has room."""
    if not isinstance(value, str | int | float) or len(str(value)) > SHOWN_CHARACTERS:
        return "this"
    return value if isinstance(value, str) and NUMBER.fullmatch(value) else repr(value)
