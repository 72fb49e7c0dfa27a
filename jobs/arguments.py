"""Settings of a job from its YAML file, the environment and the command line; errors as a user reads them."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as SourceError

from jobs.knobs import Manual, knob_parser, knob_values, knobs_of
from jobs.mistakes import readable
from jobs.options import HELP, HELP_ALL, remedy, wants_help
from jobs.yaml_files import read_yaml
from memagent_batch.errors import (
    MemagentError,
    SettingsError,
    SupersededError,
    TerminatedError,
    TooManyFailedError,
    UsageError,
)
from memagent_batch.events import Event, EventKind, begin_log, tell
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

NO_MANUAL = Manual()

Main = Callable[[Sequence[str]], int]
"""Runs a command with its arguments; returns the exit code."""
Knobs = TypeVar("Knobs", bound=JobSettings)


def parse_settings(arguments: Sequence[str], *, command: str, description: str, manual: Manual = NO_MANUAL) -> Settings:
    """Settings of a run over documents; see `parse_knobs`."""
    return parse_knobs(Settings, arguments, command=command, description=description, manual=manual)


def parse_knobs(
    kind: type[Knobs], arguments: Sequence[str], *, command: str, description: str, manual: Manual = NO_MANUAL
) -> Knobs:
    """Settings of a command: job file (`--config`) < environment (`MEMAGENT_...`) < command line.

    Raises:
        SettingsError: a knob is unknown, missing or wrong; names it.
        SystemExit: help was asked for, and is printed.
    """
    begin_log(as_json=_asks_for_json(arguments))
    build = partial(knob_parser, kind, manual, command=command, description=description)
    if wants_help(arguments):
        print(build(is_whole=HELP_ALL in arguments or not manual.common).format_help(), end="")
        raise SystemExit(0)
    options = build().parse_args(arguments)
    _require_known_environment(kind)
    try:
        job = _job(kind, config=options.config)(**knob_values(kind, options))
    except ValidationError as error:
        raise SettingsError(readable(error, kind=kind)) from error
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


def run_named(
    arguments: Sequence[str], names: Mapping[str, str], *, command: str, main_of: Callable[[str], Main]
) -> int:
    """Runs what the first argument names; returns the exit code.

    Args:
        arguments: What was given after the command.
        names: What may be named, with a line of help each.
        command: The command, for messages.
        main_of: Finds what a name stands for; it gets the other arguments.
    """
    lines = [f"  {name:<10}{text}" for name, text in names.items()]
    usage = "\n".join([f"usage: {command} NAME [--help] ...", "", *lines])
    if not arguments:
        sys.stderr.write(f"error: say what to do: {command} NAME\n{usage}\n")
        return EXIT_USAGE
    name, *rest = arguments
    if name in HELP:
        print(usage)
        return 0
    if name not in names:
        said = remedy(name, names, see=f"{command} --help")
        sys.stderr.write(f"error: there is no command {name!r} of {command}; {said}\n")
        return EXIT_USAGE
    return main_of(name)(rest)


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


def _job(kind: type[Knobs], *, config: str | None) -> type[Knobs]:
    """The settings as a class of their own, which knows the job file."""
    knobs = SettingsConfigDict(yaml_file=_readable_file(Path(config) if config else None))
    job: type[Knobs] = type("Job", (kind,), {"model_config": knobs, "__module__": __name__})
    return job


def _readable_file(config: Path | None) -> Path | None:
    """The job file, if it is one."""
    if config is None:
        return None
    if not isinstance(read_yaml(config, option="--config"), dict | None):
        raise SettingsError(f"--config: {config} holds no knobs; write one on each line, as `name: value`")
    return config


def _require_known_environment(kind: type[JobSettings]) -> None:
    for name in os.environ:
        if name.startswith(ENV_PREFIX):
            knob = name.removeprefix(ENV_PREFIX).split("__")[0].lower()
            if knob not in kind.model_fields:
                names = [f"{ENV_PREFIX}{other.name.upper().replace('.', '__')}" for other in knobs_of(kind)]
                said = remedy(name, names)
                raise SettingsError(f"environment variable {name}: there is no knob {knob!r}; {said}")
