"""`memagent plan`: what a run would read and cost; starts no engine."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from functools import partial

from memagent_batch.cli.main import parse_options, run_command, settings_from
from memagent_batch.cli.options import INPUT, MODEL, Manual, OptionParser
from memagent_batch.cli.settings import JobSettings
from memagent_batch.errors import SettingsError
from memagent_batch.logs import step
from memagent_batch.runs.planning.estimate import Rates, endpoint_cost, estimate

MANUAL = Manual(
    command="memagent plan",
    about="Shows what `answer` would read and cost; starts no engine.",
    knobs=JobSettings,
    common=(*INPUT, "output", *MODEL, "pool.replicas", "limit", "price_per_hour"),
    short={"again_where": "--where"},
    unused=(
        *("rollouts", "log", "table_format", "simulated", "max_tokens", "max_cost", "max_hours", "max_failed_share"),
        *("pool.cpus_per_replica", "pool.gpus_per_replica", "pool.readings_in_flight", "pool.turns_in_flight"),
    ),
    examples=(
        "memagent plan --config tiny --documents texts/ --output out/ "
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
    options = parse_options(parser, arguments)
    job = settings_from(JobSettings, options).job()
    rates = _rates(options, price_per_hour=job.price_per_hour)
    with step("checking inputs and model"):
        from memagent_batch.flows.check import check  # here, so that --help needs no engine
        from memagent_batch.flows.plan import plan_checked

        checked = check(job)

    plan = plan_checked(checked)
    replicas = job.pool.max_replicas or job.pool.replicas
    costs: dict[str, object] = {"estimate": estimate(plan, rates, replicas=replicas)} if rates else {}
    prices = (job.price_per_million_prompt_tokens, job.price_per_million_completion_tokens)
    if any(prices):
        costs["endpoint_cost"] = endpoint_cost(plan, *(price or 0.0 for price in prices))
    print(json.dumps({**plan, **costs}, indent=2, ensure_ascii=False))


def _rates(options: argparse.Namespace, *, price_per_hour: float | None) -> Rates | None:
    """Speed and price, if there are any.

    Raises:
        SettingsError: the speed is no number above 0, or a price was given without it.
    """
    speed = options.tokens_per_second
    if speed is None:
        if hasattr(options, "price_per_hour"):  # one of a job file may be for the bounds of its runs
            raise SettingsError("--price-per-hour needs --tokens-per-second, the speed of one replica")
        return None
    if not (math.isfinite(speed) and speed > 0):
        raise SettingsError(f"--tokens-per-second: {speed:g} is no number above 0")
    return Rates(tokens_per_second=speed, price_per_hour=price_per_hour or 0.0)


if __name__ == "__main__":
    sys.exit(main())
