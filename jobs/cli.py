"""The command line `memagent`: one command, one module; nothing heavy is imported before it is needed."""

import sys
from collections.abc import Sequence

from jobs.arguments import run_named

COMMANDS = {
    "answer": "answers questions over documents of any length",
    "collect": "samples every question several times, with rewards and advantages to train on",
    "train": "updates a model on collected rollouts, once or in a loop of collecting and updating",
    "export": "writes collected rollouts for another trainer: verl, TRL, SkyRL",
    "plan": "tells what `answer` would read and cost; starts no engine",
    "status": "tells what a running, finished or dead run has done",
    "diff": "shows the answers that two finished runs give otherwise, with both memories",
    "prompts": "lists, shows and imports prompt sets",
    "evaluate": "makes test suites, runs and scores them, and draws the results",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the first argument names; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    return run_named(given, COMMANDS, command="memagent", modules="jobs.")


if __name__ == "__main__":
    sys.exit(main())
