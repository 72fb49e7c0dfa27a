"""The command line `memagent`: one command, one module; nothing heavy is imported before it is needed."""

import importlib
import sys
from collections.abc import Sequence

from jobs.arguments import EXIT_USAGE

COMMANDS = {
    "answer": "answers questions over documents of any length",
    "collect": "samples every question several times, with rewards and advantages to train on",
    "plan": "tells what `answer` would read and cost; starts no engine",
    "status": "tells what a running, finished or dead run has done",
    "diff": "shows the answers that two finished runs give otherwise, with both memories",
    "prompts": "lists, shows and imports prompt sets",
    "evaluate": "makes test suites, runs and scores them, and draws the results",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the first argument names; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(_usage())
        return 0
    command, *rest = arguments
    if command not in COMMANDS:
        sys.stderr.write(f"error: there is no command {command!r}\n{_usage()}\n")
        return EXIT_USAGE
    code: int = importlib.import_module(f"jobs.{command}").main(rest)
    return code


def _usage() -> str:
    lines = [f"  {name:<10}{text}" for name, text in COMMANDS.items()]
    return "\n".join(["usage: memagent COMMAND [--help] ...", "", *lines])


if __name__ == "__main__":
    sys.exit(main())
