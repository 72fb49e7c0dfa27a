"""`memagent plan`: what a run would read and cost; starts no engine."""

import json
import sys
from collections.abc import Sequence
from functools import partial

from jobs.arguments import parse_settings, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the plan as JSON; returns the exit code."""
    return run_command(partial(_plan, sys.argv[1:] if arguments is None else arguments))


def _plan(arguments: Sequence[str]) -> None:
    settings = parse_settings(
        arguments, command="memagent plan", description="Tells what `answer` would read and cost; starts no engine."
    )
    from pipelines.plan import plan_run

    print(json.dumps(plan_run(settings), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
