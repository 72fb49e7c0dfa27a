"""Settings that a program gives, as configurations; what is wrong with them is this project's own error."""

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from memagent_batch.config.removed import removal
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import nearest, problem_message

SectionT = TypeVar("SectionT", bound=BaseModel)


class CheckedCall:
    """Before a configuration among the bases of a class: a mistake in a call of that class is a SettingsError."""

    if not TYPE_CHECKING:  # else a type checker would take any name

        def __init__(self, **settings: Any) -> None:
            try:
                super().__init__(**settings)
            except ValidationError as error:
                raise _settings_error(error, kind=type(self)) from None


def checked_section(kind: type[SectionT], **settings: Any) -> SectionT:
    """The configuration of these settings.

    Raises:
        SettingsError: a setting is missing or wrong; names each.
    """
    try:
        return kind(**settings)
    except ValidationError as error:
        raise _settings_error(error, kind=kind) from error


def _settings_error(error: ValidationError, *, kind: type[BaseModel]) -> SettingsError:
    return SettingsError("; ".join(_problem_line(problem, kind=kind) for problem in error.errors()))


def _problem_line(problem: Any, *, kind: type[BaseModel]) -> str:
    place = ".".join(map(str, problem["loc"]))
    message = problem_message(problem)
    if problem["type"] == "extra_forbidden":
        *groups, name = problem["loc"]
        message = removal(place) or f"there is no such setting{nearest(str(name), _names(kind, groups))}"
    return f"{place}: {message}" if place else message


def _names(kind: type[BaseModel], groups: list[Any]) -> list[str]:
    """The settings of a group inside a configuration."""
    for group in groups:
        below = kind.model_fields[group].annotation if group in kind.model_fields else None
        if not (isinstance(below, type) and issubclass(below, BaseModel)):
            return []
        kind = below
    return list(kind.model_fields)
