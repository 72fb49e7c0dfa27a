"""`memagent plan`: what a run would read and cost; starts no engine."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from jobs.arguments import parse_settings, run_command
from jobs.manuals import ANSWER, PLAN_UNUSED
from jobs.options import OptionParser
from memagent_batch.errors import SettingsError
from memagent_batch.logs import step
from memagent_batch.runs.estimate import Rates, estimate
from memagent_batch.settings import Settings

DESCRIPTION = "Shows what `answer` would read and cost; starts no engine."


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the plan as JSON; returns the exit code."""
    return run_command(partial(_plan, sys.argv[1:] if arguments is None else arguments))


def _plan(arguments: Sequence[str]) -> None:
    own = _options()
    manual = replace(ANSWER, unused=PLAN_UNUSED, own=own, example=ANSWER.example.replace("answer", "plan"))
    rates = _rates(own.parse_known_args(arguments)[0])
    settings = parse_settings(arguments, command="memagent plan", description=DESCRIPTION, manual=manual)
    with step("checking inputs and model"):
        from pipelines.check import check

        checked = check(settings)
        from pipelines.plan import plan_checked  # after the check, since Ray's import takes a second

    plan = plan_checked(checked)
    told = {"estimate": estimate(plan, rates, replicas=_replicas(settings))} if rates else {}
    print(json.dumps(plan | told, indent=2, ensure_ascii=False))


def _options() -> OptionParser:
    options = OptionParser(prog="memagent plan", add_help=False)
    options.add_argument(
        "--tokens-per-second", type=float, metavar="N", help="speed of one replica, to estimate hours from"
    )
    options.add_argument(
        "--price-per-hour", type=float, metavar="N", help="price of one replica, to estimate cost from"
    )
    return options


def _rates(known: argparse.Namespace) -> Rates | None:
    """Speed and price, if they are given.

    Raises:
        SettingsError: one of them is no number above 0, or there is a price and no speed.
    """
    for name in ("tokens_per_second", "price_per_hour"):
        value = getattr(known, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise SettingsError(f"--{name.replace('_', '-')}: {value:g} is no number above 0")
    if known.tokens_per_second is None:
        if known.price_per_hour is not None:
            raise SettingsError("--price-per-hour needs --tokens-per-second, the speed of one replica")
        return None
    return Rates(tokens_per_second=known.tokens_per_second, price_per_hour=known.price_per_hour or 0.0)


def _replicas(settings: Settings) -> int:
    return settings.pool.max_replicas or settings.pool.replicas


if __name__ == "__main__":
    sys.exit(main())
