"""What is wrong with a setting, in words for its user: why, and what to do."""

import difflib
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from memagent_batch.config.section import ConfigT, fields_of
from memagent_batch.errors import SettingsError

NAME_LIKENESS = 0.6
"""How alike, from 0 to 1, a name must be to the one that was written, to be offered in its place."""
PROBLEM_WORDS = {
    "int_parsing": "{input} is not a whole number",
    "int_type": "{input} is not a whole number",
    "int_from_float": "{input} is not a whole number",
    "float_parsing": "{input} is not a number",
    "float_type": "{input} is not a number",
    "finite_number": "{input} is not a number",
    "bool_parsing": "{input} is neither true nor false",
    "bool_type": "{input} is neither true nor false",
    "greater_than_equal": "{input} is below {ge}, the least",
    "greater_than": "{input} is not above {gt}",
    "less_than_equal": "{input} is above {le}, the most",
    "less_than": "{input} is not below {lt}",
    "string_too_short": "this is empty",
    "string_type": "this is not a text; put it in quotes",
    "string_unicode": "this is not valid UTF-8; write it as UTF-8",
    "tuple_type": "this is not a list; write it as [a, b]",
    "list_type": "this is not a list; write it as [a, b]",
    "dict_type": "this holds no names with values; write them as {{name: value}}",
    "model_type": "this is a group of settings; write them as {{name: value}}, and code of yours as its `kind`",
    "model_attributes_type": "this is a group of settings; write them as {{name: value}}, and code of yours as its "
    "`kind`",
}
"""What pydantic's types of errors mean to a user."""
NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?")
VALUE_CHARACTERS = 40
"""Longest value that a line shows."""


def setting_of(problem: Mapping[str, Any]) -> str:
    """The setting that a problem of pydantic's is about; behind a number stands the form of a value."""
    return ".".join(takewhile(lambda part: isinstance(part, str), problem["loc"]))


def problem_line(
    problem: Mapping[str, Any], *, kind: type[BaseModel], see: str, place: str = "", missing: str = "missing"
) -> str:
    """One of `ValidationError.errors()`, in a line; all settings are listed at `see`.

    A setting is called by its name or `place`; `missing` is what to say of one that must be given.
    """
    name = setting_of(problem)
    which = "".join(f", number {part + 1}" for part in problem["loc"] if isinstance(part, int))
    match problem["type"]:
        case "extra_forbidden":
            settings = [each for each, _, _ in fields_of(kind)]
            names = dict.fromkeys([*settings, *(each.rpartition(".")[0] for each in settings if "." in each)])
            text = f"there is no such setting; {remedy(name, names, see=see)}"
        case "missing":
            text = missing
        case _:
            text = explanation(problem)
    return f"{place or name}{which}: {text}" if name else text


def explanation(problem: Mapping[str, Any]) -> str:
    """Why a value is refused."""
    message, shown = str(problem["msg"]).removeprefix("Value error, "), _shown_input(problem.get("input"))
    if problem["type"] in ("enum", "literal_error"):
        choices = message.removeprefix("Input should be ")
        near = suggestion(shown.strip("'"), choices.replace(" or ", ", ").replace("'", "").split(", "))
        return f"{shown} is not one of {choices}{near}"
    words = PROBLEM_WORDS.get(problem["type"])
    return words.format(input=shown, **problem.get("ctx", {})) if words else message


def remedy(name: str, names: Iterable[str], *, see: str) -> str:
    """What to do about an unknown name: the nearest one, or where all names are listed."""
    return suggestion(name, names).removeprefix("; ") or f"see {see}"


def suggestion(name: str, names: Iterable[str]) -> str:
    """The end of a message on an unknown name: the nearest one, if there is one.

    That is the only one with the same end or beginning (`--policy.chunk-tokens` for `--chunk-tokens`,
    `--input.carry-columns` for `--input.carry`), or the most similar one.
    """
    others = list(names)
    with_end = [other for other in others if other.rpartition(".")[2] == name.lstrip("-").rpartition(".")[2]]
    with_beginning = [other for other in others if other.startswith(name)]
    similar = difflib.get_close_matches(name, others, n=1, cutoff=NAME_LIKENESS)
    nearest = next((found[0] for found in (with_end, with_beginning, similar) if len(found) == 1), None)
    return f"; did you mean {nearest}?" if nearest else ""


def _shown_input(value: Any) -> str:
    if not isinstance(value, str | int | float) or len(str(value)) > VALUE_CHARACTERS:
        return "this"
    return value if isinstance(value, str) and NUMBER.fullmatch(value) else repr(value)


class CheckedCall:
    """Before a configuration among the bases of a class: a mistake in a call of that class is a SettingsError."""

    if not TYPE_CHECKING:  # else a type checker would take any name

        def __init__(self, **settings: Any) -> None:
            try:
                super().__init__(**settings)
            except ValidationError as error:
                raise _settings_error(error, kind=type(self)) from None


def checked_section(kind: type[ConfigT], /, **settings: Any) -> ConfigT:
    """The configuration of these settings.

    Raises:
        SettingsError: a setting is missing or wrong; names each.
    """
    try:
        return kind(**settings)
    except ValidationError as error:
        raise _settings_error(error, kind=kind) from None


def _settings_error(error: ValidationError, *, kind: type[BaseModel]) -> SettingsError:
    see = "docs/reference/settings.md"
    return SettingsError("; ".join(problem_line(problem, kind=kind, see=see) for problem in error.errors()))
