"""`memagent collect` (`python -m jobs.collect` for `ray job submit`): samples, rewards and advantages to train on."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from jobs.arguments import parse_settings, run_command
from memagent_batch.masking import shown

GROUP_SIZE = "--group-size"


def main(arguments: Sequence[str] | None = None) -> int:
    """Collects rollouts; returns the exit code."""
    return run_command(partial(_collect, sys.argv[1:] if arguments is None else arguments))


def _collect(arguments: Sequence[str]) -> None:
    named = [argument.replace(GROUP_SIZE, "--rollouts.group-size", 1) for argument in arguments]
    settings = parse_settings(
        named,
        command="memagent collect",
        description=f"Samples every question G times ({GROUP_SIZE} G) and writes rewards and advantages to train on.",
    )
    from pipelines.collect import collect  # here, so that --help needs neither ray nor an engine

    record = collect(settings)
    print(json.dumps({"output": shown(settings.output), **record["counts"], "mean_reward": record["mean_reward"]}))


if __name__ == "__main__":
    sys.exit(main())
