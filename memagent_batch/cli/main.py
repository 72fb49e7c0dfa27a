"""The command line `memagent`: one command, one module; nothing heavy is imported before it is needed."""

import atexit
import contextlib
import importlib
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from keyword import iskeyword
from pathlib import Path

from memagent_batch.cli.options import HELP, Manual, OptionParser, knob_values, remedy
from memagent_batch.cli.settings import ENV_PREFIX, SettingsT, config_file, read_settings, read_yaml
from memagent_batch.config.job import LogFormat
from memagent_batch.errors import (
    BoundReachedError,
    MemagentError,
    NotVerifiedError,
    SettingsError,
    SupersededError,
    TerminatedError,
    TooManyFailedError,
    UsageError,
)
from memagent_batch.logs import EventKind, as_json, begin_log, end_log, rewritten_stderr

log = logging.getLogger(__name__)

EXIT_FAILED = 1
"""The run stopped, its counts do not close, or some readings could not be read now; the same command goes on."""
EXIT_USAGE = 2
"""The user's mistake."""
EXIT_SUPERSEDED = 3
"""A newer attempt has claimed the output; this one must not be started again."""
EXIT_TOO_MANY_FAILED = 4
"""The run is closed and its tables are written, but too many readings failed, or all."""
EXIT_NOT_VERIFIED = 5
"""`memagent verify` found something that is not as it was recorded."""
EXIT_BOUND_REACHED = 6
"""The run stopped at a bound of its own and left the tables as they were; the same command goes on."""
EXIT_INTERRUPTED = 130
"""SIGINT, as shells count it; the same command goes on."""
EXIT_TERMINATED = 143
"""SIGTERM, as shells count it; the same command goes on."""

ENDS: dict[type[Exception], tuple[str, int]] = {
    UsageError: ("error", EXIT_USAGE),
    SupersededError: ("superseded", EXIT_SUPERSEDED),
    TerminatedError: ("stopped", EXIT_TERMINATED),
    TooManyFailedError: ("failed", EXIT_TOO_MANY_FAILED),
    BoundReachedError: ("stopped", EXIT_BOUND_REACHED),
    NotVerifiedError: ("failed", EXIT_NOT_VERIFIED),
    Exception: ("failed", EXIT_FAILED),
}
"""The first word of a command's last line and its exit code, by the error that ends it; the first that fits."""

COMMANDS_PACKAGE = "memagent_batch.cli"
"""The package with a module for each command."""
COMMANDS = {
    "convert": "converts PDF, HTML, DOCX, e-mail and text files to documents with locators",
    "answer": "answers questions over documents of any length",
    "collect": "samples every question several times, with rewards and advantages to train on",
    "train": "updates a model on collected rollouts, once or in a loop of collecting and updating",
    "export": "writes collected rollouts for another trainer (verl, TRL, SkyRL), or answers for a spreadsheet",
    "plan": "shows what `answer` would read and cost; starts no engine",
    "status": "shows what a running, finished or dead run has done",
    "partial": "writes the answers that a running or stopped run has so far",
    "results": "writes the answers of an output with those of second passes over it",
    "diff": "shows the answers in which two finished runs differ, with both memories",
    "page": "writes the answers of a finished run as pages that open without a server",
    "show": "shows the answers of one document: value, evidence, and the memory's trace",
    "review": "measures a scan by people's labels of a sample: recall, precision, with intervals",
    "verify": "checks that an output is as its runs recorded it, and that its tables follow from its log",
    "bundle": "packs the record of an output, its reviews and its card for someone outside",
    "prompts": "lists, shows and imports prompt sets",
    "evaluate": "makes test suites, runs and scores them, and draws the results",
}
EVALUATE_COMMANDS = {
    "make": "writes a suite of documents and questions, at any list of lengths",
    "run": "reads a suite with one or several policies or models, and scores the answers",
    "score": "scores any answers table against a suite",
    "report": "draws the results of `run`: a page, pictures, and every failure's memory trace",
    "attach": "puts what `run` found onto the cards of a scan by the same reader",
}
REVIEW_COMMANDS = {
    "plan": "says how wide the intervals will be for so many labels, before anyone reads",
    "make": "draws the sample, and writes the page and the sheet that people label on",
    "import": "takes labels in, from labels.csv files of the page or a spreadsheet",
    "estimate": "says how good the scan is: recall, precision, error rate, each with its interval",
    "calibrate": "says by labels which answers need a second pass, to hold a recall",
}
NESTED_COMMANDS = {"evaluate": EVALUATE_COMMANDS, "review": REVIEW_COMMANDS}

Main = Callable[[Sequence[str]], int]
"""Runs a command with its arguments; returns the exit code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the first argument names; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run_first(arguments)
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
        return _refuse(f"error: say what to do: {command} NAME\n{usage}", arguments)
    name, *rest = arguments
    if name in HELP:
        print(usage)
        return 0
    if name not in names:
        message = f"error: there is no command {name!r} of {command}; {remedy(name, names, see=f'{command} --help')}"
        return _refuse(message, arguments)
    return main_of(name)(rest)


def parse_settings(kind: type[SettingsT], manual: Manual, arguments: Sequence[str]) -> SettingsT:
    """Settings of a command that has no other options: job file (`--config`) < environment < command line.

    Raises:
        SettingsError: an option or a knob is unknown, missing or wrong; names it.
        SystemExit: help was asked for, and is printed.
    """
    return settings_from(kind, parse_options(OptionParser(manual), arguments))


def parse_options(parser: OptionParser, arguments: Sequence[str]) -> Namespace:
    """The options of a command with knobs; see `parse_settings`."""
    begin_log(as_json=asks_for_json(arguments))
    options: Namespace = parser.parse_args(arguments)
    return options


def settings_from(kind: type[SettingsT], options: Namespace) -> SettingsT:
    """The settings with the options over them; see `parse_settings`."""
    values = knob_values(kind, options)
    settings = read_settings(kind, values, config=options.config)
    begin_log(as_json=getattr(settings, "log_format", LogFormat.TEXT) == LogFormat.JSON)
    return settings


def run_command(command: Callable[[], object]) -> int:
    """Runs a command and returns its exit code; a known error is one line on stderr, without a traceback."""
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # else a late call would start Ray again while a run leaves
    is_json = asks_for_json(sys.argv[1:])
    begin_log(as_json=is_json)
    log_lines = contextlib.ExitStack()
    log_lines.callback(end_log)
    if is_json:
        log_lines.enter_context(rewritten_stderr(as_json))
    if _is_process():
        atexit.register(log_lines.close)  # what libraries log while they end is masked too
        return _exit_code(command)
    with log_lines:
        return _exit_code(command)


def _is_process() -> bool:
    """Whether this process is a command of this project, not a program that calls one."""
    module = sys.modules["__main__"]
    spec = getattr(module, "__spec__", None)
    name: str = Path(getattr(module, "__file__", None) or "").stem if spec is None else spec.name
    return name.split(".")[0] in ("memagent", "memagent_batch")


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


def _refuse(message: str, arguments: Sequence[str]) -> int:
    """Logs that no command is named; returns the exit code."""
    begin_log(as_json=asks_for_json(arguments))
    log.error(message, extra={"event": EventKind.RUN_STOPPED, "exit_code": EXIT_USAGE})
    end_log()
    return EXIT_USAGE


def _run_first(arguments: Sequence[str]) -> int:
    if "--version" in (*arguments[:1], *arguments[-1:]) and not any(name.startswith("-") for name in arguments[1:-1]):
        print(f"memagent-batch {version('memagent-batch')}")
        return 0
    return run_named(arguments, COMMANDS, command="memagent", main_of=_command_main)


def _command_main(name: str, *, package: str = COMMANDS_PACKAGE) -> Main:
    if package == COMMANDS_PACKAGE and name in NESTED_COMMANDS:
        main_of = partial(_command_main, package=f"{COMMANDS_PACKAGE}.{name}")
        return partial(run_named, names=NESTED_COMMANDS[name], command=f"memagent {name}", main_of=main_of)
    module = f"{name}_" if iskeyword(name) else name
    main_: Main = importlib.import_module(f"{package}.{module}").main
    return main_


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether log lines are to be JSON, by command line, environment or job file; mistakes in these are found later."""
    values = [os.environ.get(f"{ENV_PREFIX}LOG_FORMAT", ""), *_values_of("--log-format", arguments)]
    configs = _values_of("--config", arguments)
    if not any(values) and configs:
        with contextlib.suppress(SettingsError):
            job = read_yaml(config_file(configs[-1]), option="--config")
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


if __name__ == "__main__":
    sys.exit(main())
