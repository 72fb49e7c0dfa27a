"""Settings of a job from its YAML file, the environment and the command line; errors as a user reads them."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import ValidationError
from pydantic_settings import CliApp, CliSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as SourceError

from memagent_batch.errors import (
    MemagentError,
    SettingsError,
    SupersededError,
    TerminatedError,
    TooManyFailedError,
    UsageError,
)
from memagent_batch.events import Event, EventKind, begin_log, tell
from memagent_batch.options import StorageOptions
from memagent_batch.sections import JobSettings, LogFormat
from memagent_batch.settings import Settings

EXIT_FAILED = 1
"""The run stopped, its counts do not close, or some readings could not be read now; the same command goes on."""
EXIT_USAGE = 2
"""The user's mistake."""
EXIT_SUPERSEDED = 3
"""A newer attempt has claimed the output; this one must not be started again."""
EXIT_TOO_MANY_FAILED = 4
"""The run is closed and its tables are written, but too many readings failed, or all."""
EXIT_INTERRUPTED = 130
"""SIGINT, as shells count it; the same command goes on."""
EXIT_TERMINATED = 143
"""SIGTERM, as shells count it; the same command goes on."""
ENV_PREFIX = "MEMAGENT_"
STORAGE_VARIABLE = "MEMAGENT_STORAGE_OPTIONS"

Knobs = TypeVar("Knobs", bound=JobSettings)


def parse_settings(arguments: Sequence[str], *, command: str, description: str) -> Settings:
    """Settings of a run over documents; see `parse_knobs`."""
    return parse_knobs(Settings, arguments, command=command, description=description)


def parse_knobs(kind: type[Knobs], arguments: Sequence[str], *, command: str, description: str) -> Knobs:
    """Settings of a command: job file (`--config`) < environment (`MEMAGENT_...`) < command line.

    Raises:
        SettingsError: a knob is unknown, missing or wrong; names it.
    """
    begin_log(as_json=_asks_for_json(arguments))
    options = argparse.ArgumentParser(add_help=False, prog=command, allow_abbrev=False, exit_on_error=False)
    options.add_argument("--config", type=Path, default=None)
    options.add_argument("--ask", action="append")  # here, since the settings' own parser would split it at commas
    try:
        known, rest = options.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise SettingsError(str(error)) from error
    _require_known_environment(kind)
    given: dict[str, Any] = {"ask": tuple(known.ask)} if known.ask else {}
    try:
        job = _parsed(kind, rest, given, config=known.config, command=command, description=description)
    except ValidationError as error:
        raise SettingsError(readable(error)) from error
    except SourceError as error:
        raise SettingsError(f"settings can't be read: {error}") from error
    begin_log(as_json=job.log_format == LogFormat.JSON)
    knobs = {name: getattr(job, name) for name in kind.model_fields}
    return cast(Knobs, kind.model_construct(job.model_fields_set, **knobs))


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether what is wrong with the other settings is to be told as JSON too."""
    option = "--log-format"
    given = [os.environ.get(f"{ENV_PREFIX}LOG_FORMAT", "")]
    for name, value in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, its_value = name.replace("_", "-").partition("=")
        given += [its_value if equals else value] if name == option else []
    return given[-1] == LogFormat.JSON


def parse_storage_options(text: str) -> StorageOptions:
    """The value of `--storage-options` of a command that has no other knobs, over that of the environment.

    Raises:
        SettingsError: one of them is not a JSON object.
    """
    in_environment = os.environ.get(STORAGE_VARIABLE, "{}")
    options = _json_object(in_environment, name=f"environment variable {STORAGE_VARIABLE}")
    return StorageOptions(options | _json_object(text, name="--storage-options"))


def _json_object(text: str, *, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise SettingsError(f'{name} is not a JSON object; write it as {{"key": "value"}}')
    return value


def run_named(arguments: Sequence[str], names: Mapping[str, str], *, command: str, modules: str) -> int:
    """Runs `main` of the module that the first argument names; returns the exit code.

    Args:
        arguments: What was given after the command.
        names: What may be named, with a line of help each.
        command: The command, for messages.
        modules: What stands before the name in the module's.
    """
    lines = [f"  {name:<10}{text}" for name, text in names.items()]
    usage = "\n".join([f"usage: {command} NAME [--help] ...", "", *lines])
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(usage)
        return 0
    name, *rest = arguments
    if name not in names:
        sys.stderr.write(f"error: there is no command {name!r} of {command}\n{usage}\n")
        return EXIT_USAGE
    code: int = importlib.import_module(f"{modules}{name}").main(rest)
    return code


def run_command(command: Callable[[], object]) -> int:
    """Runs a command and returns its exit code; a known error is one line on stderr, without a traceback."""
    try:
        command()
    except UsageError as error:
        _tell_end(f"error: {error}", error, exit_code=EXIT_USAGE)
        return EXIT_USAGE
    except SupersededError as error:
        _tell_end(f"superseded: {error}", error, exit_code=EXIT_SUPERSEDED)
        return EXIT_SUPERSEDED
    except TerminatedError as error:
        _tell_end(f"stopped: {error}", error, exit_code=EXIT_TERMINATED)
        return EXIT_TERMINATED
    except TooManyFailedError as error:
        _tell_end(f"failed: {error}", error, exit_code=EXIT_TOO_MANY_FAILED)
        return EXIT_TOO_MANY_FAILED
    except MemagentError as error:
        _tell_end(f"failed: {error}", error, exit_code=EXIT_FAILED)
        return EXIT_FAILED
    except BrokenPipeError:
        sys.stdout = None  # the reader of our output has gone, as in `| head`; nothing is left to say
        return 0
    except KeyboardInterrupt:
        fields = {"exit_code": EXIT_INTERRUPTED}
        message = "stopped; the same command goes on from here"
        tell(Event(kind=EventKind.RUN_STOPPED, message=message, fields=fields))
        return EXIT_INTERRUPTED
    return 0


def _tell_end(message: str, error: MemagentError, *, exit_code: int) -> None:
    fields = {"error_type": type(error).__name__, "exit_code": exit_code}
    tell(Event(kind=EventKind.RUN_STOPPED, message=message, fields=fields))


def _parsed(
    kind: type[Knobs],
    arguments: Sequence[str],
    given: dict[str, Any],
    *,
    config: Path | None,
    command: str,
    description: str,
) -> Knobs:
    """The settings, as a class of their own that knows the job file and the command's name."""
    knobs = SettingsConfigDict(yaml_file=_readable_file(config), cli_prog_name=command)
    job: type[Knobs] = type("Job", (kind,), {"model_config": knobs, "__module__": __name__})
    sources = "Knobs can also stand in a YAML file (--config FILE) or in MEMAGENT_... variables."
    job.__doc__ = f"{description} {sources}"
    source: CliSettingsSource[Knobs] = CliSettingsSource(
        job,
        cli_parse_args=False,
        cli_kebab_case=True,
        cli_exit_on_error=False,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_prog_name=command,
    )
    return CliApp.run(job, **given, cli_args=list(arguments), cli_settings_source=source)


def _readable_file(config: Path | None) -> Path | None:
    """The job file, if it is one."""
    if config is None:
        return None
    try:
        knobs = yaml.safe_load(config.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        raise SettingsError(f"--config: {config} can't be read as YAML: {_without_content(error)}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"--config: {config} can't be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(knobs, dict | None):
        raise SettingsError(f"--config: {config} holds no knobs; write one on each line, as `name: value`")
    return config


def _without_content(error: yaml.MarkedYAMLError) -> str:
    """What is wrong and where, without the line itself, which may hold a secret."""
    problem = (error.problem or "no YAML").partition("'")[0].strip()
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _require_known_environment(kind: type[JobSettings]) -> None:
    for name in os.environ:
        if name.startswith(ENV_PREFIX):
            knob = name.removeprefix(ENV_PREFIX).split("__")[0].lower()
            if knob not in kind.model_fields:
                raise SettingsError(f"environment variable {name}: there is no knob {knob!r}; see --help")


def readable(error: ValidationError) -> str:
    """Each wrong knob on a line, by the name that it has on the command line."""
    lines = []
    for problem in error.errors():
        knob = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(f"{knob}: there is no such knob; see --help")
        elif problem["type"] == "missing":
            lines.append(f"{knob}: missing; give --{knob.replace('_', '-')}, or set it in the job file")
        else:
            lines.append(f"{knob}: {problem['msg'].removeprefix('Value error, ')}" if knob else problem["msg"])
    return "\n  ".join(lines)
