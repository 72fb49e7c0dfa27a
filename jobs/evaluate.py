"""`memagent evaluate make | run | score | report`: one subcommand, one module."""

import importlib
import sys
from collections.abc import Sequence

from jobs.arguments import EXIT_USAGE

SUBCOMMANDS = {
    "make": "writes a suite of documents and questions, at any list of lengths",
    "run": "reads a suite with one or several policies or models, and scores the answers",
    "score": "scores any answers table against a suite",
    "report": "draws what `run` found: a page, pictures, and every failure's memory trace",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the subcommand that the first argument names; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(_usage())
        return 0
    command, *rest = arguments
    if command not in SUBCOMMANDS:
        sys.stderr.write(f"error: evaluate: there is no subcommand {command!r}\n{_usage()}\n")
        return EXIT_USAGE
    code: int = importlib.import_module(f"jobs.evaluate_{command}").main(rest)
    return code


def _usage() -> str:
    lines = [f"  {name:<10}{text}" for name, text in SUBCOMMANDS.items()]
    return "\n".join(["usage: memagent evaluate SUBCOMMAND [--help] ...", "", *lines])


if __name__ == "__main__":
    sys.exit(main())
