"""`memagent train loop`: collects with the newest weights, updates them, and again, until a budget is spent."""

import json
import os
import sys
from collections.abc import Sequence
from functools import partial

from jobs.arguments import parse_knobs, run_command
from jobs.manuals import TRAIN_LOOP
from memagent_batch.masking import shown
from memagent_batch.training.settings import TrainLoopSettings


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the loop; returns the exit code."""
    return run_command(partial(_loop, sys.argv[1:] if arguments is None else arguments))


def _loop(arguments: Sequence[str]) -> None:
    settings = parse_knobs(
        TrainLoopSettings,
        arguments,
        command="memagent train loop",
        description="Samples questions several times, updates the model on them, and goes on with the new weights,\n"
        "until --loop.max-steps or --loop.max-minutes. The same command goes on where it stopped.",
        manual=TRAIN_LOOP,
    )
    quiet_engine()
    from memagent_batch.training.learner.tasks import TableTasks, read_held_out
    from pipelines.train_loop import train_loop

    said = train_loop(settings, tasks=TableTasks(settings), held_out=read_held_out(settings))
    print(json.dumps({"output": shown(settings.output), **said}))


def quiet_engine() -> None:
    """Keeps vLLM's log lines out of stdout, which is for the result: the loop's engine runs in this very process.

    Where the user's own variables ask for more lines, these go to stderr.
    """
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


if __name__ == "__main__":
    sys.exit(main())
