"""The bounds of a run by its knobs, and what it has cost."""

from typing import TypedDict

from memagent_batch.config.job import RunConfig
from memagent_batch.domain.bounds import Bounds, Meter
from memagent_batch.runs.tables.part_report import AnswerSums

UNITS = 10**12
"""Units of a currency: a price of a million tokens with six decimals is a whole number of them for each token."""
PER_TOKEN = 10**6
"""The same units, of a price of a million tokens for one token."""


class Spent(TypedDict):
    """What the turns of a run have taken; turns that the log held took nothing."""

    num_turns: int
    num_prompt_tokens: int
    num_cached_prompt_tokens: int
    num_completion_tokens: int


NOTHING: Spent = {"num_turns": 0, "num_prompt_tokens": 0, "num_cached_prompt_tokens": 0, "num_completion_tokens": 0}


def bounds_of(run: RunConfig) -> Bounds | None:
    """The bounds; None where there are none."""
    meters = []
    if run.max_tokens is not None:
        meters.append(Meter(name="max_tokens", most=run.max_tokens, per_prompt_token=1, per_completion_token=1))
    seconds, knob = (None if run.max_hours is None else run.max_hours * 3600), "max_hours"
    if run.max_cost is not None and run.price_per_hour is None:
        prompt, completion = (round(price * PER_TOKEN) for price in _token_prices(run))
        most = int(run.max_cost * UNITS)
        meters.append(Meter(name="max_cost", most=most, per_prompt_token=prompt, per_completion_token=completion))
    elif run.max_cost is not None and run.price_per_hour is not None:
        paid = run.max_cost / (run.price_per_hour * num_actors(run)) * 3600
        seconds, knob = (paid, "max_cost") if seconds is None or paid < seconds else (seconds, knob)
    if not meters and seconds is None:
        return None
    return Bounds(meters=meters, seconds=seconds, seconds_knob=knob)


def num_actors(run: RunConfig) -> int:
    """Most actors that read side by side."""
    return run.pool.max_replicas or run.pool.replicas


def stopping_line(run: RunConfig, *, knob: str, spent: Spent) -> str:
    """Says which bound a run has met, and what it had taken by then."""
    tokens = spent["num_prompt_tokens"] + spent["num_completion_tokens"]
    bound, taken = f"{knob} {getattr(run, knob):,}", f"{spent['num_turns']:,} turns of {tokens:,} tokens"
    line = f"the run has met its bound {bound} after {taken}"
    if not tokens:
        return f"{line}: a turn may take more than that; raise the bound, and the same command goes on"
    return f"{line}, and starts no further turn; the tables stay as they are, and the same command goes on"


def cost(run: RunConfig, sums: Spent | AnswerSums, *, seconds: float | None = None) -> float | None:
    """What turns of these sums cost; None where no price is set, or only that of time, and it is not known.

    Args:
        run: The prices.
        sums: Tokens of the turns.
        seconds: How long all actors were there.
    """
    if run.price_per_hour is not None:
        return None if seconds is None else round(run.price_per_hour * num_actors(run) * seconds / 3600, 6)
    prompt, completion = _token_prices(run)
    if not prompt and not completion:
        return None
    return round((sums["num_prompt_tokens"] * prompt + sums["num_completion_tokens"] * completion) / 10**6, 6)


def _token_prices(run: RunConfig) -> tuple[float, float]:
    return run.price_per_million_prompt_tokens or 0.0, run.price_per_million_completion_tokens or 0.0
