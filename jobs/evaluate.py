"""`memagent evaluate make | run | score | report`: one subcommand, one module."""

import importlib
import sys
from collections.abc import Sequence

from jobs.arguments import Main, run_named

SUBCOMMANDS = {
    "make": "writes a suite of documents and questions, at any list of lengths",
    "run": "reads a suite with one or several policies or models, and scores the answers",
    "score": "scores any answers table against a suite",
    "report": "draws what `run` found: a page, pictures, and every failure's memory trace",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the subcommand that the first argument names; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    return run_named(given, SUBCOMMANDS, command="memagent evaluate", main_of=_main_of)


def _main_of(name: str) -> Main:
    main_: Main = importlib.import_module(f"jobs.evaluate_{name}").main
    return main_


if __name__ == "__main__":
    sys.exit(main())
