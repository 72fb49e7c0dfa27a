"""The bounds of a run by its knobs, and what it has cost."""

from typing import TypedDict

from memagent_batch.config.job import RunConfig
from memagent_batch.runs.tables.part_report import AnswerSums


class Spent(TypedDict):
    """What the turns of a run have taken; turns that the log held took nothing."""

    num_turns: int
    num_prompt_tokens: int
    num_cached_prompt_tokens: int
    num_completion_tokens: int


NOTHING: Spent = {"num_turns": 0, "num_prompt_tokens": 0, "num_cached_prompt_tokens": 0, "num_completion_tokens": 0}


def has_bounds(run: RunConfig) -> bool:
    """Whether the run may stop at a bound of its own."""
    return any(bound is not None for bound in (run.max_tokens, run.max_cost, run.max_hours))


def bound_met(run: RunConfig, spent: Spent, *, seconds: float) -> str | None:
    """The setting of the first bound that a run has met; None while its turns may start.

    Args:
        run: The bounds and prices.
        spent: What its turns have taken.
        seconds: How long it has been under way.
    """
    taken = {
        "max_tokens": spent["num_prompt_tokens"] + spent["num_completion_tokens"],
        "max_cost": cost(run, spent, seconds=seconds) or 0.0,
        "max_hours": seconds / 3600,
    }
    bounds = ((name, getattr(run, name)) for name in taken)
    return next((name for name, most in bounds if most is not None and taken[name] >= most), None)


def num_actors(run: RunConfig) -> int:
    """Most actors that read side by side."""
    return run.pool.max_replicas or run.pool.replicas


def stopping_line(run: RunConfig, *, bound: str, spent: Spent) -> str:
    """Says which bound a run has met, and what it had taken when its last turn ended."""
    tokens = spent["num_prompt_tokens"] + spent["num_completion_tokens"]
    return (
        f"the run has met its bound {bound} {getattr(run, bound):,} after {spent['num_turns']:,} turns of {tokens:,} "
        "tokens, those that were under way included; the tables stay as they are, and the same command goes on"
    )


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
