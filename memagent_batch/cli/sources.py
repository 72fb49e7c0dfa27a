"""Where settings come from: job file (YAML) < environment (`MEMAGENT_...`) < command line, and what is wrong in them.

The only place that reads settings from the environment. What it reads becomes a plain value of `memagent_batch.config`.
"""

import os
import re
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource
from pydantic_settings.exceptions import SettingsError as SourceError

from memagent_batch.cli.command import Command
from memagent_batch.cli.options import nearest_name, options_of, remedy
from memagent_batch.cli.settings import ALL_SETTINGS, Settings
from memagent_batch.config.section import Section, merged
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import problem_message

PACKAGE = Path(__file__).resolve().parents[1]
JOB_FILES = PACKAGE / "jobs" if (PACKAGE / "jobs").is_dir() else PACKAGE.parent / "jobs"
"""The job files that come with the project: in the package of a wheel, at the top of a checkout."""
ENV_PREFIX = "MEMAGENT_"

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
    "model_type": "this is a group of settings; write them as {{name: value}}",
    "model_attributes_type": "this is a group of settings; write them as {{name: value}}",
}
"""What pydantic's types of errors mean to a user."""
NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?")
SHOWN_CHARACTERS = 40
"""Longest value that a line shows."""

SectionT = TypeVar("SectionT", bound=Section)


def read_settings(kind: type[SectionT], given: Mapping[str, Any], *, config: str | None) -> SectionT:
    """The settings: job file (`--config`) < environment < command line. Those of other commands are passed over.

    Args:
        kind: The settings of the command, or the command itself.
        given: Those of the command line, nested by group.
        config: The job file.

    Raises:
        SettingsError: a setting is unknown, missing or wrong; names it.
    """
    names = ALL_SETTINGS if issubclass(kind, Settings) else {"storage_options"}
    try:
        outside = merged(_job_file(config, kind), _environment(kind))
        used = {name: value for name, value in outside.items() if name in names & kind.model_fields.keys()}
        return kind(**merged(used, given))
    except ValidationError as error:
        raise SettingsError(readable(error, kind=kind)) from error


def read_yaml(file: Path, *, option: str) -> Any:
    """The content of a YAML file that an option names; of `--config` also the name of a job file that is shipped.

    Raises:
        SettingsError: it is not there or not YAML; names the option, and the line but not its content.
    """
    shipped = JOB_FILES / f"{file}.yaml"
    if option == "--config" and not file.exists() and shipped.parent == JOB_FILES and shipped.exists():
        file = shipped
    if file.is_dir():
        raise SettingsError(f"{option}: {file} is a folder; name a YAML file in it")
    if not file.exists():
        names = ", ".join(sorted(each.stem for each in JOB_FILES.glob("*.yaml")))
        others = f"; these come with the project: {names}" if option == "--config" else ""
        raise SettingsError(f"{option}: {file} is not there{others}")
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        raise SettingsError(f"{option}: {file} can't be read as YAML: {_without_content(error)}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{option}: {file} can't be read as YAML: {' '.join(str(error).split())}") from error


def readable(error: ValidationError, *, kind: type[BaseModel]) -> str:
    """Each wrong setting on a line, by the name that it has in a job file, with what to do."""
    return "\n  ".join(_problem_line(problem, kind=kind) for problem in error.errors())


def _job_file(config: str | None, kind: type[Section]) -> dict[str, Any]:
    """The settings of the job file."""
    if config is None:
        return {}
    settings = read_yaml(Path(config), option="--config")
    if not isinstance(settings, dict | None):
        raise SettingsError(f"--config: {config} holds no settings; write one on each line, as `name: value`")
    for name in settings or ():
        if name not in ALL_SETTINGS:
            raise SettingsError(f"{name}: there is no such setting; {remedy(str(name), _names(kind))}")
    return settings or {}


def _environment(kind: type[Section]) -> dict[str, Any]:
    """The settings of the environment; a command without a job file takes only `storage_options` from there."""
    for variable in os.environ if issubclass(kind, Settings) else ():
        name = variable.removeprefix(ENV_PREFIX).split("__")[0].lower()
        if variable.startswith(ENV_PREFIX) and name not in ALL_SETTINGS:
            names = [f"{ENV_PREFIX}{each.upper().replace('.', '__')}" for each in _names(kind)]
            advice = remedy(variable, names)
            raise SettingsError(f"environment variable {variable}: there is no setting {name!r}; {advice}")
    source = EnvSettingsSource(cast(type[BaseSettings], kind), env_prefix=ENV_PREFIX, env_nested_delimiter="__")
    try:
        return source()
    except SourceError as error:
        variable = ENV_PREFIX + str(error).partition('"')[2].partition('"')[0].upper()
        raise SettingsError(f"environment variable {variable} is not JSON: {error.__cause__}") from error


def _names(kind: type[BaseModel]) -> list[str]:
    return [option.name for option in options_of(kind)]


def _without_content(error: yaml.MarkedYAMLError) -> str:
    """The problem and its place, without the line itself, which may hold a secret."""
    problem = (error.problem or "not YAML").partition("'")[0].strip()
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _problem_line(problem: Mapping[str, Any], *, kind: type[BaseModel]) -> str:
    named = takewhile(lambda part: isinstance(part, str), problem["loc"])  # behind a number stands the form of a value
    name = ".".join(map(str, named))
    which = "".join(f", number {part + 1}" for part in problem["loc"] if isinstance(part, int))
    place, where = name, f"give --{name.replace('_', '-')}, or set it in the job file"
    if issubclass(kind, Command) and not (issubclass(kind, Settings) and name.split(".")[0] in ALL_SETTINGS):
        place = name.upper() if name in kind.words else f"--{name.replace('_', '-')}"
        where = f"see {kind.command} --help"
    text = _explanation(problem, name=name, where=where, names=_names(kind))
    return f"{place}{which}: {text}" if name else text


def _explanation(problem: Mapping[str, Any], *, name: str, where: str, names: list[str]) -> str:
    message, shown = problem_message(problem), _shown_input(problem["input"])
    match problem["type"]:
        case "extra_forbidden":
            return f"there is no such setting; {remedy(name, names)}"
        case "missing":
            return f"missing; {where}"
        case "enum" | "literal_error":
            choices = message.removeprefix("Input should be ")
            nearest = nearest_name(shown.strip("'"), choices.replace(" or ", ", ").replace("'", "").split(", "))
            return f"{shown} is not one of {choices}" + (f"; did you mean {nearest}?" if nearest else "")
    words = PROBLEM_WORDS.get(problem["type"])
    return words.format(input=shown, **problem.get("ctx", {})) if words else message


def _shown_input(value: Any) -> str:
    """A value that was given, as far as a line has room."""
    if not isinstance(value, str | int | float) or len(str(value)) > SHOWN_CHARACTERS:
        return "this"
    return value if isinstance(value, str) and NUMBER.fullmatch(value) else repr(value)
