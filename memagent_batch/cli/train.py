"""`memagent train`: updates a model on collected rollouts."""

import json

from memagent_batch.cli.settings import Command, TrainSettings
from memagent_batch.errors import require_extra
from memagent_batch.masking import mask_url


class Train(TrainSettings, Command):
    """Updates a model on the rollouts that it drew, by Multi-Conv DAPO, for one epoch."""

    command = "memagent train"
    common = (
        *("rollouts", "model", "output"),
        *("learner.questions_per_optimiser_step", "learner.learning_rate", "learner.device"),
    )
    examples = (
        "memagent train --rollouts rollouts/ --model my-model/ --output my-model-2/",
        "memagent train --rollouts rollouts/ --model my-model/ --output my-model-2/ --learner.learning-rate 1e-5",
    )
    page = "docs/how-to/training.md"

    def run(self) -> None:
        training = self.training()
        require_extra("train", package="torch")
        from memagent_batch.flows.train import train  # here, so that --help needs no torch

        record = train(training)
        figures = {"weights_version": record["weights_version"], "num_steps": record["num_steps"]}
        print(json.dumps({**figures, "output": mask_url(self.output)}))
