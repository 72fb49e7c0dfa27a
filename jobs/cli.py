"""The command line `memagent`: one command, one module; nothing heavy is imported before it is needed."""

import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TypeVar

from jobs.options import HELP, Manual, OptionParser, knob_values, remedy
from jobs.settings import ENV_PREFIX, Settings, read_settings
from memagent_batch.config import LogFormat
from memagent_batch.errors import (
    MemagentError,
    SupersededError,
    TerminatedError,
    TooManyFailedError,
    UsageError,
)
from memagent_batch.events import Event, EventKind, begin_log, tell

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

ENDS: tuple[tuple[type[MemagentError], str, int], ...] = (
    (UsageError, "error", EXIT_USAGE),
    (SupersededError, "superseded", EXIT_SUPERSEDED),
    (TerminatedError, "stopped", EXIT_TERMINATED),
    (TooManyFailedError, "failed", EXIT_TOO_MANY_FAILED),
    (MemagentError, "failed", EXIT_FAILED),
)
"""The first word of the last line, and the exit code, by the first kind of error that fits."""

COMMANDS = {
    "answer": "answers questions over documents of any length",
    "collect": "samples every question several times, with rewards and advantages to train on",
    "train": "updates a model on collected rollouts, once or in a loop of collecting and updating",
    "export": "writes collected rollouts for another trainer: verl, TRL, SkyRL",
    "plan": "shows what `answer` would read and cost; starts no engine",
    "status": "shows what a running, finished or dead run has done",
    "diff": "shows the answers in which two finished runs differ, with both memories",
    "prompts": "lists, shows and imports prompt sets",
    "evaluate": "makes test suites, runs and scores them, and draws the results",
}

Main = Callable[[Sequence[str]], int]
"""Runs a command with its arguments; returns the exit code."""
SettingsT = TypeVar("SettingsT", bound=Settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the first argument names; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(arguments)
        if sys.stdout is not None:  # else `run_command` has seen that its reader has gone
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def run_named(
    arguments: Sequence[str], names: Mapping[str, str], *, command: str, main_of: Callable[[str], Main]
) -> int:
    """Runs the command that the first argument names; returns the exit code.

    Args:
        arguments: The arguments behind the command.
        names: The names that there are, with a line of help each.
        command: The command, for messages.
        main_of: Finds the function for a name; it gets the other arguments.
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
        advice = remedy(name, names, see=f"{command} --help")
        sys.stderr.write(f"error: there is no command {name!r} of {command}; {advice}\n")
        return EXIT_USAGE
    return main_of(name)(rest)


def parse(kind: type[SettingsT], parser: OptionParser, arguments: Sequence[str]) -> tuple[SettingsT, Namespace]:
    """Settings and other options of a command: job file (`--config`) < environment (`MEMAGENT_...`) < command line.

    Raises:
        SettingsError: an option or a knob is unknown, missing or wrong; names it.
        SystemExit: help was asked for, and is printed.
    """
    begin_log(as_json=_asks_for_json(arguments))
    options = parser.parse_args(arguments)
    given = knob_values(kind, options)
    settings = read_settings(kind, given, config=options.config, ignored=parser.manual.ignored)
    begin_log(as_json=getattr(settings, "log_format", LogFormat.TEXT) == LogFormat.JSON)
    return settings, options


def parse_settings(kind: type[SettingsT], manual: Manual, arguments: Sequence[str]) -> SettingsT:
    """Settings of a command that has no other options; see `parse`."""
    return parse(kind, OptionParser(manual), arguments)[0]


def run_command(command: Callable[[], object]) -> int:
    """Runs a command and returns its exit code; a known error is one line on stderr, without a traceback."""
    try:
        command()
    except MemagentError as error:
        word, exit_code = next((word, code) for kind, word, code in ENDS if isinstance(error, kind))
        fields = {"error_type": type(error).__name__, "exit_code": exit_code}
        tell(Event(kind=EventKind.RUN_STOPPED, message=f"{word}: {error}", fields=fields))
        return exit_code
    except BrokenPipeError:
        sys.stdout = None  # the reader of our output has gone, as in `| head`
        return 0
    except KeyboardInterrupt:
        message = "stopped; the same command goes on from here"
        tell(Event(kind=EventKind.RUN_STOPPED, message=message, fields={"exit_code": EXIT_INTERRUPTED}))
        return EXIT_INTERRUPTED
    return 0


def _run(arguments: Sequence[str]) -> int:
    if arguments[-1:] == ["--version"] and not any(name.startswith("-") for name in arguments[:-1]):
        print(f"memagent-batch {version('memagent-batch')}")
        return 0
    return run_named(arguments, COMMANDS, command="memagent", main_of=_main_of)


def _main_of(name: str) -> Main:
    main_: Main = importlib.import_module(f"jobs.{name}").main
    return main_


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether mistakes in the other settings are to be written as JSON too."""
    option = "--log-format"
    formats = [os.environ.get(f"{ENV_PREFIX}LOG_FORMAT", "")]
    for name, value in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, its_value = name.replace("_", "-").partition("=")
        formats += [its_value if equals else value] if name == option else []
    return formats[-1] == LogFormat.JSON


if __name__ == "__main__":
    sys.exit(main())
