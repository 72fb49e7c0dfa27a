"""`memagent plan`: what a run would read and cost; starts no engine."""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from functools import partial

from jobs.arguments import parse_settings, run_command
from memagent_batch.errors import SettingsError
from memagent_batch.events import step
from memagent_batch.settings import Settings
from pipelines.estimate import Rates, estimate

DESCRIPTION = (
    "Tells what `answer` would read and cost; starts no engine. --tokens-per-second N (of one replica) adds the hours "
    "that its replicas need, --price-per-hour P (of one replica) the cost."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the plan as JSON; returns the exit code."""
    return run_command(partial(_plan, sys.argv[1:] if arguments is None else arguments))


def _plan(arguments: Sequence[str]) -> None:
    rates, rest = _rates(arguments)
    settings = parse_settings(rest, command="memagent plan", description=DESCRIPTION)
    with step("checking inputs and model"):
        from pipelines.check import check

        checked = check(settings)
        from pipelines.plan import plan_checked  # after the check, since Ray's import takes a second

    plan = plan_checked(checked)
    told = {"estimate": estimate(plan, rates, replicas=_replicas(settings))} if rates else {}
    print(json.dumps(plan | told, indent=2, ensure_ascii=False))


def _rates(arguments: Sequence[str]) -> tuple[Rates | None, list[str]]:
    """Speed and price, if they are given, and the arguments that are left.

    Raises:
        SettingsError: one of them is no number above 0, or there is a price and no speed.
    """
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    options.add_argument("--tokens-per-second", type=float)
    options.add_argument("--price-per-hour", type=float)
    try:
        known, rest = options.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise SettingsError(str(error)) from error
    for name, value in vars(known).items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise SettingsError(f"--{name.replace('_', '-')}: {value:g} is no number above 0")
    if known.tokens_per_second is None:
        if known.price_per_hour is not None:
            raise SettingsError("--price-per-hour needs --tokens-per-second, the speed of one replica")
        return None, rest
    return Rates(tokens_per_second=known.tokens_per_second, price_per_hour=known.price_per_hour or 0.0), rest


def _replicas(settings: Settings) -> int:
    return settings.pool.max_replicas or settings.pool.replicas


if __name__ == "__main__":
    sys.exit(main())
