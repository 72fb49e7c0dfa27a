"""`memagent train loop`: collects with the newest weights, updates them, and again, until a budget is spent."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from jobs.arguments import parse_knobs, run_command
from memagent_batch.masking import shown
from memagent_batch.train_settings import TrainLoopSettings


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the loop; returns the exit code."""
    return run_command(partial(_loop, sys.argv[1:] if arguments is None else arguments))


def _loop(arguments: Sequence[str]) -> None:
    named = [argument.replace("--group-size", "--rollouts.group-size", 1) for argument in arguments]
    settings = parse_knobs(
        TrainLoopSettings,
        named,
        command="memagent train loop",
        description="Samples questions G times (--group-size G), updates the model on them, and goes on with the new "
        "weights, until --loop.max-steps or --loop.max-minutes. The same command goes on where it stopped.",
    )
    from pipelines.learner.tasks import TableTasks, read_held_out
    from pipelines.train_loop import train_loop

    said = train_loop(settings, tasks=TableTasks(settings), held_out=read_held_out(settings))
    print(json.dumps({"output": shown(settings.output), **said}))


if __name__ == "__main__":
    sys.exit(main())
