"""Settings that a program gives, as configurations; what is wrong with them is this project's own error."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from memagent_batch.config.problems import problem_line
from memagent_batch.config.section import ConfigT
from memagent_batch.errors import SettingsError


class CheckedCall:
    """Before a configuration among the bases of a class: a mistake in a call of that class is a SettingsError."""

    if not TYPE_CHECKING:  # else a type checker would take any name

        def __init__(self, **settings: Any) -> None:
            try:
                super().__init__(**settings)
            except ValidationError as error:
                raise _settings_error(error, kind=type(self)) from None


def checked_section(kind: type[ConfigT], **settings: Any) -> ConfigT:
    """The configuration of these settings.

    Raises:
        SettingsError: a setting is missing or wrong; names each.
    """
    try:
        return kind(**settings)
    except ValidationError as error:
        raise _settings_error(error, kind=kind) from None


def _settings_error(error: ValidationError, *, kind: type[BaseModel]) -> SettingsError:
    """Each wrong setting, with what to do."""
    see = "docs/reference/settings.md"
    return SettingsError("; ".join(problem_line(problem, kind=kind, see=see) for problem in error.errors()))
