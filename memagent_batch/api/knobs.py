"""Knobs that a program gives, as configurations; what is wrong with them is this project's own error."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from memagent_batch.errors import SettingsError

SectionT = TypeVar("SectionT", bound=BaseModel)


def checked_section(kind: type[SectionT], **knobs: Any) -> SectionT:
    """The configuration of these knobs.

    Raises:
        SettingsError: a knob is missing or wrong; names each.
    """
    try:
        return kind(**knobs)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in error.errors()]
        raise SettingsError("; ".join(lines)) from error
