"""The command line `memagent`: one command, one module; nothing heavy is imported before it is needed."""

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from jobs.arguments import Main, run_named

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the first argument names; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(given)
        if sys.stdout is not None:  # else `run_command` has seen that its reader has gone
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`; nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _run(arguments: Sequence[str]) -> int:
    if "--version" in arguments:
        print(f"memagent-batch {version('memagent-batch')}")
        return 0
    return run_named(arguments, COMMANDS, command="memagent", main_of=_main_of)


def _main_of(name: str) -> Main:
    main_: Main = importlib.import_module(f"jobs.{name}").main
    return main_


if __name__ == "__main__":
    sys.exit(main())
