"""What a run has taken and may take: bounds, costs, and what a plan takes by a measured speed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from memagent_batch.config.job import RunConfig


class Spent(TypedDict):
    """What the turns of a run have taken; turns from the log took nothing."""

    num_turns: int
    num_prompt_tokens: int
    num_cached_prompt_tokens: int
    num_completion_tokens: int


class AnswerSums(Spent):
    """Columns of `answers`, summed up."""

    num_document_tokens: int


def has_bounds(run: RunConfig) -> bool:
    """Whether the run may stop at its own bound."""
    return any(bound is not None for bound in (run.max_tokens, run.max_cost, run.max_hours))


def bound_met(run: RunConfig, spent: Spent, *, seconds: float) -> str | None:
    """The setting of the first bound that a run has met; None while its turns may start."""
    taken = {
        "max_tokens": spent["num_prompt_tokens"] + spent["num_completion_tokens"],
        "max_cost": cost(run, spent, seconds=seconds) or 0.0,
        "max_hours": seconds / 3600,
    }
    bounds = ((name, getattr(run, name)) for name in taken)
    return next((name for name, most in bounds if most is not None and taken[name] >= most), None)


def stopping_line(run: RunConfig, *, bound: str, spent: Spent) -> str:
    """Says which bound a run has met, and what it had taken when its last turn ended."""
    tokens = spent["num_prompt_tokens"] + spent["num_completion_tokens"]
    return (
        f"the run has met its bound {bound} {getattr(run, bound):,} after {spent['num_turns']:,} turns of {tokens:,} "
        "tokens, those that were in flight included; the tables stay as they are, and the same command goes on"
    )


def cost(run: RunConfig, sums: Spent | AnswerSums, *, seconds: float | None = None) -> float | None:
    """What turns of these sums cost; None where no price is set, or only that of time, and it is not known."""
    if run.price_per_hour is not None:
        return None if seconds is None else round(run.price_per_hour * run.pool.most_replicas * seconds / 3600, 6)
    prompt = run.price_per_million_prompt_tokens or 0.0
    completion = run.price_per_million_completion_tokens or 0.0
    if not prompt and not completion:
        return None
    return round((sums["num_prompt_tokens"] * prompt + sums["num_completion_tokens"] * completion) / 10**6, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one replica does, and what it costs."""

    tokens_per_second: float
    """Prompt and completion tokens that one replica takes a second, all its readings together."""
    price_per_hour: float = 0.0
    """Price of one replica's machine, in any currency; 0 leaves the cost out."""


def endpoint_cost(plan: Mapping[str, Any], prompt: float, completion: float) -> dict[str, float]:
    """Cost of the readings to do, by the prices of a million tokens; bounds as in `estimate`."""
    most = plan["prompt_tokens_at_most"] + plan["follow_up_prompt_tokens_at_most"]
    written = plan["completion_tokens_at_most"] + plan["follow_up_completion_tokens_at_most"]
    return {
        "at_least": round(plan["prompt_tokens_at_least"] * prompt / 10**6, 2),
        "at_most": round((most * prompt + written * completion) / 10**6, 2),
    }


def estimate(plan: Mapping[str, Any], rates: Rates, *, replicas: int) -> dict[str, float]:
    """Hours and cost of the readings to do, at least and at most.

    The least is without question, memory and completion; the most is with each of them at its budget. Starting the
    cluster and loading the model come on top.
    """
    tokens_per_hour = rates.tokens_per_second * replicas * 3600
    at_least = plan["prompt_tokens_at_least"] / tokens_per_hour
    kinds = ("prompt_tokens", "completion_tokens", "follow_up_prompt_tokens", "follow_up_completion_tokens")
    at_most = sum(plan[f"{kind}_at_most"] for kind in kinds) / tokens_per_hour
    figures = {
        "replicas": replicas,
        "tokens_per_second": rates.tokens_per_second,
        "hours_at_least": round(at_least, 3),
        "hours_at_most": round(at_most, 3),
    }
    if rates.price_per_hour:
        figures["cost_at_least"] = round(at_least * replicas * rates.price_per_hour, 2)
        figures["cost_at_most"] = round(at_most * replicas * rates.price_per_hour, 2)
    return figures
