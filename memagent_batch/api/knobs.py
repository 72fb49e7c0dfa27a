"""Knobs that a program gives, as configurations; what is wrong with them is this project's own error."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from memagent_batch.errors import SettingsError
from memagent_batch.plugins import problem_message

SectionT = TypeVar("SectionT", bound=BaseModel)


def checked_section(kind: type[SectionT], **knobs: Any) -> SectionT:
    """The configuration of these knobs.

    Raises:
        SettingsError: a knob is missing or wrong; names each.
    """
    try:
        return kind(**knobs)
    except ValidationError as error:
        places = [".".join(map(str, problem["loc"])) for problem in error.errors()]
        messages = [problem_message(problem) for problem in error.errors()]
        lines = [f"{place}: {message}" if place else message for place, message in zip(places, messages, strict=True)]
        raise SettingsError("; ".join(lines)) from error
