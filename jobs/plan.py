"""`memagent plan`: what a run would read and cost; starts no engine."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from functools import partial

from jobs.cli import parse_options, run_command, settings_from
from jobs.options import INPUT, MODEL, Manual, OptionParser
from jobs.settings import JobSettings
from memagent_batch.errors import SettingsError
from memagent_batch.logs import step
from memagent_batch.runs.estimate import Rates, estimate

MANUAL = Manual(
    command="memagent plan",
    about="Shows what `answer` would read and cost; starts no engine.",
    knobs=JobSettings,
    common=(*INPUT, "output", *MODEL, "pool.replicas", "retry_failed"),
    unused=("rollouts", "log", "table_format", "simulated"),
    examples=(
        "memagent plan --config jobs/configs/tiny.yaml --documents texts/ --output out/ "
        '--ask "What is the access code of quiet-harbour?"',
        "memagent plan --config job.yaml --tokens-per-second 4000 --price-per-hour 2.5",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the plan as JSON; returns the exit code."""
    return run_command(partial(_run_plan, sys.argv[1:] if arguments is None else arguments))


def _run_plan(arguments: Sequence[str]) -> None:
    parser = OptionParser(MANUAL)
    parser.add_argument("--tokens-per-second", type=float, metavar="N", help="speed of one replica, for the hours")
    parser.add_argument("--price-per-hour", type=float, metavar="N", help="price of one replica, for the cost")
    options = parse_options(parser, arguments)
    rates = _rates(options)
    job = settings_from(JobSettings, parser, options).job()
    with step("checking inputs and model"):
        from pipelines.check import check

        checked = check(job)
        from pipelines.plan import plan_checked  # after the check, since Ray's import takes a second

    plan = plan_checked(checked)
    replicas = job.pool.max_replicas or job.pool.replicas
    costs = {"estimate": estimate(plan, rates, replicas=replicas)} if rates else {}
    print(json.dumps({**plan, **costs}, indent=2, ensure_ascii=False))


def _rates(options: argparse.Namespace) -> Rates | None:
    """Speed and price, if there are any.

    Raises:
        SettingsError: one of them is no number above 0, or there is a price and no speed.
    """
    for name in ("tokens_per_second", "price_per_hour"):
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise SettingsError(f"--{name.replace('_', '-')}: {value:g} is no number above 0")
    if options.tokens_per_second is None:
        if options.price_per_hour is not None:
            raise SettingsError("--price-per-hour needs --tokens-per-second, the speed of one replica")
        return None
    return Rates(tokens_per_second=options.tokens_per_second, price_per_hour=options.price_per_hour or 0.0)


if __name__ == "__main__":
    sys.exit(main())
