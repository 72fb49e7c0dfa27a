"""`memagent collect` samples readings to train on, and `memagent train` updates a model on them."""

import json

from memagent_batch.cli.options import INPUT, MODEL
from memagent_batch.cli.settings import Command, JobSettings, Settings
from memagent_batch.config.training import TrainConfig
from memagent_batch.errors import require_extra
from memagent_batch.masking import mask_url


class Collect(JobSettings, Command):
    """Samples every question several times and writes rewards and advantages to train on."""

    command = "memagent collect"
    common = (*INPUT, "output", "rollouts.group_size", "rollouts.reward", *MODEL)
    unused = ("accepted_unread", "sampling.temperature", "sampling.top_p", "sampling.top_k", "follow_ups")
    examples = (
        "memagent collect --config job.yaml --documents texts/ --questions questions.parquet --output rollouts/ "
        "--rollouts.group-size 16",
        "memagent collect --documents texts/ --questions questions.parquet --output rollouts/ --rollouts.reward em "
        "--model my-model/",
    )
    page = "docs/how-to/training.md"

    def run(self) -> None:
        from memagent_batch.flows.collect import collect  # here, so that --help needs no engine

        record = collect(self.job())
        print(json.dumps({"output": mask_url(self.output), **record["counts"], "mean_reward": record["mean_reward"]}))


class Train(Settings, TrainConfig, Command):
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
        require_extra("train", package="torch")
        from memagent_batch.flows.train import train  # here, so that --help needs no torch

        record = train(self)
        figures = {"weights_version": record["weights_version"], "num_steps": record["num_steps"]}
        print(json.dumps({**figures, "output": mask_url(self.output)}))
