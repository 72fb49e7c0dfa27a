"""`memagent collect`: samples readings, with rewards and advantages to train on."""

import json

from memagent_batch.cli.options import INPUT, MODEL
from memagent_batch.cli.settings import Command, JobSettings
from memagent_batch.masking import mask_url


class Collect(JobSettings, Command):
    """Samples every question several times, and writes rewards and advantages to train on."""

    command = "memagent collect"
    common = (*INPUT, "output", "rollouts.group_size", "rollouts.reward", *MODEL)
    unused = ("accepted_unread", "sampling.temperature", "sampling.top_p", "sampling.top_k", "follow_ups")
    examples = (
        "memagent collect --config job.yaml --documents texts/ --questions questions.parquet --output rollouts/ "
        "--rollouts.group-size 16",
        "memagent collect --documents texts/ --questions questions.parquet --output rollouts/ --rollouts.reward em "
        "--model my-model/",
    )
    pages = ("docs/how-to/training.md",)

    def run(self) -> None:
        from memagent_batch.apps.training.collect import collect  # here, so that --help needs no engine

        record = collect(self.job())
        print(json.dumps({"output": mask_url(self.output), **record["counts"], "mean_reward": record["mean_reward"]}))
