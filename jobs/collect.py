"""`memagent collect` (`python -m jobs.collect` for `ray job submit`): samples, rewards and advantages to train on."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from jobs.arguments import parse_settings, run_command
from jobs.manuals import COLLECT
from memagent_batch.masking import shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Collects rollouts; returns the exit code."""
    return run_command(partial(_collect, sys.argv[1:] if arguments is None else arguments))


def _collect(arguments: Sequence[str]) -> None:
    settings = parse_settings(
        arguments,
        command="memagent collect",
        description="Samples every question several times and writes rewards and advantages to train on.",
        manual=COLLECT,
    )
    from pipelines.collect import collect  # here, so that --help needs neither ray nor an engine

    record = collect(settings)
    print(json.dumps({"output": shown(settings.output), **record["counts"], "mean_reward": record["mean_reward"]}))


if __name__ == "__main__":
    sys.exit(main())
