"""`memagent collect` samples readings to train on, `train` updates a model, `train loop` does both in turns."""

import json
import os

from memagent_batch.cli.options import BOUNDS, INPUT, MODEL
from memagent_batch.cli.settings import Command, JobSettings, TrainLoopSettings, TrainSettings
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


class Train(TrainSettings, Command):
    """Updates a model on the rollouts that it drew, by Multi-Conv DAPO, for one epoch.
    `memagent train loop` collects and updates in turns.
    """

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


class TrainLoop(TrainLoopSettings, Command):
    """Samples questions several times, updates the model on them, and goes on with the new weights,
    until --loop.max-steps or --loop.max-minutes. The same command goes on where it stopped.
    """

    command = "memagent train loop"
    common = (
        *("documents", "questions", "output"),
        *("loop.max_steps", "loop.max_minutes", "loop.held_out", "rollouts.group_size"),
        *MODEL,
    )
    unused = (
        *("ask", "again_from", "again_where", "log", "follow_ups", "table_format"),
        *("retry_failed", "max_failed_share", "accepted_unread", "adopt_output"),
        *("sampling.temperature", "sampling.top_p", "sampling.top_k", *BOUNDS),
        *("pool.replicas", "pool.max_replicas", "pool.cpus_per_replica", "pool.gpus_per_replica"),
        "pool.turns_in_flight",
    )
    examples = (
        "memagent train loop --documents texts/ --questions questions.parquet --model my-model/ --output loop/ "
        "--loop.max-steps 200",
        "memagent train loop --config job.yaml --output loop/ --loop.held-out held_out.parquet --loop.max-minutes 600",
    )
    page = "docs/how-to/training.md"

    def run(self) -> None:
        training = self.training()
        require_extra("train", package="torch")
        quiet_engine()
        from memagent_batch.flows.train_loop import train_loop
        from memagent_batch.training.learner.sampling import TableTasks, read_held_out

        record = train_loop(training, tasks=TableTasks(training), held_out=read_held_out(training))
        print(json.dumps({"output": mask_url(self.output), **record}))


def quiet_engine() -> None:
    """Keeps vLLM's log lines out of stdout, which is for the result: the loop's engine runs in this very process.

    Where the user's own variables ask for more lines, these go to stderr.
    """
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
