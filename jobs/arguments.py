"""Settings of a job from its YAML file, the environment and the command line; errors as a user reads them."""

import contextlib
import logging
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
from memagent_batch.logs import EventKind, as_json, begin_log, end_log, rewritten_stderr
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
ENDS: dict[type[Exception], tuple[str, int]] = {
    UsageError: ("error", EXIT_USAGE),
    SupersededError: ("superseded", EXIT_SUPERSEDED),
    TerminatedError: ("stopped", EXIT_TERMINATED),
    TooManyFailedError: ("failed", EXIT_TOO_MANY_FAILED),
    Exception: ("failed", EXIT_FAILED),
}
"""The first word of a command's last line and its exit code, by the error that ends it; the first that fits."""
ENV_PREFIX = "MEMAGENT_"

log = logging.getLogger(__name__)

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
    """Whether log lines are to be JSON, by command line, environment or job file; mistakes in these are found later."""
    values = [os.environ.get(f"{ENV_PREFIX}LOG_FORMAT", ""), *_values_of("--log-format", arguments)]
    configs = _values_of("--config", arguments)
    if not any(values) and configs:
        with contextlib.suppress(SettingsError):
            job = read_yaml(Path(configs[-1]), option="--config")
            values = [job.get("log_format", "")] if isinstance(job, dict) else values
    return values[-1] == LogFormat.JSON


def _values_of(option: str, arguments: Sequence[str]) -> list[str]:
    """The values that an option has on the command line, as `--option value` or `--option=value`."""
    values = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == option:
            values.append(value if equals else following)
    return values


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
        return _refuse(f"error: say what to do: {command} NAME\n{usage}", arguments)
    name, *rest = arguments
    if name in HELP:
        print(usage)
        return 0
    if name not in names:
        message = f"error: there is no command {name!r} of {command}; {remedy(name, names, see=f'{command} --help')}"
        return _refuse(message, arguments)
    return main_of(name)(rest)


def _refuse(message: str, arguments: Sequence[str]) -> int:
    """Logs that no command is named; returns the exit code."""
    begin_log(as_json=_asks_for_json(arguments))
    log.error(message, extra={"event": EventKind.RUN_STOPPED, "exit_code": EXIT_USAGE})
    end_log()
    return EXIT_USAGE


def run_command(command: Callable[[], object]) -> int:
    """Runs a command and returns its exit code; a known error is one line on stderr, without a traceback."""
    is_json = _asks_for_json(sys.argv[1:])
    begin_log(as_json=is_json)
    try:
        with rewritten_stderr(as_json) if is_json else contextlib.nullcontext():
            return _exit_code(command)
    finally:
        end_log()


def _exit_code(command: Callable[[], object]) -> int:
    try:
        command()
    except BrokenPipeError:
        sys.stdout = None  # the reader of our output has gone, as in `| head`; nothing is left to print
    except KeyboardInterrupt:
        fields = {"event": EventKind.RUN_STOPPED, "exit_code": EXIT_INTERRUPTED}
        log.error("stopped; the same command goes on from here", extra=fields)
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - each error gets its exit code here
        return _log_end(error)
    return 0


def _log_end(error: Exception) -> int:
    """Logs the error that ends a command; returns its exit code."""
    word, exit_code = next(end for kind, end in ENDS.items() if isinstance(error, kind))
    is_known = isinstance(error, MemagentError)
    fields = {"event": EventKind.RUN_STOPPED, "error_type": type(error).__name__, "exit_code": exit_code}
    message = f"{word}: {error}" if is_known else f"{word}: {type(error).__name__}: {error}"
    log.error(message, extra=fields, exc_info=None if is_known else error)
    return exit_code


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
