"""`memagent train`: updates a model on collected rollouts; `memagent train loop` collects and updates in turns."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from jobs import train_loop
from jobs.arguments import parse_knobs, run_command
from jobs.manuals import TRAIN
from memagent_batch.masking import shown
from memagent_batch.training.settings import TrainSettings


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains for one epoch, or loops; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] == "loop":
        return train_loop.main(given[1:])
    return run_command(partial(_train, given))


def _train(arguments: Sequence[str]) -> None:
    settings = parse_knobs(
        TrainSettings,
        arguments,
        command="memagent train",
        description="Updates a model on the rollouts that it drew, by Multi-Conv DAPO, for one epoch.\n"
        "`memagent train loop` collects and updates in turns.",
        manual=TRAIN,
    )
    from pipelines.train import train  # here, so that --help needs no torch

    record = train(settings)
    print(
        json.dumps(
            {name: record[name] for name in ("weights_version", "num_steps")} | {"output": shown(settings.output)}
        )
    )


if __name__ == "__main__":
    sys.exit(main())
