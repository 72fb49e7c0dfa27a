"""`memagent collect`: samples, rewards and advantages to train on."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import parse_settings, run_command
from memagent_batch.cli.options import INPUT, MODEL, Manual
from memagent_batch.cli.settings import JobSettings
from memagent_batch.masking import shown

MANUAL = Manual(
    command="memagent collect",
    about="Samples every question several times and writes rewards and advantages to train on.",
    knobs=JobSettings,
    common=(*INPUT, "output", "rollouts.group_size", "rollouts.reward", *MODEL),
    unused=("sampling.temperature", "sampling.top_p", "sampling.top_k", "closing"),
    short={"rollouts.group_size": "--group-size"},
    examples=(
        "memagent collect --config job.yaml --documents texts/ --questions questions.parquet --output rollouts/ "
        "--group-size 16",
        "memagent collect --documents texts/ --questions questions.parquet --output rollouts/ --rollouts.reward em "
        "--model my-model/",
    ),
    page="docs/how-to/training.md",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Collects rollouts; returns the exit code."""
    return run_command(partial(_collect, sys.argv[1:] if arguments is None else arguments))


def _collect(arguments: Sequence[str]) -> None:
    job = parse_settings(JobSettings, MANUAL, arguments).job()
    from memagent_batch.flows.collect import collect  # here, so that --help needs no engine

    record = collect(job)
    print(json.dumps({"output": shown(job.output), **record["counts"], "mean_reward": record["mean_reward"]}))


if __name__ == "__main__":
    sys.exit(main())
