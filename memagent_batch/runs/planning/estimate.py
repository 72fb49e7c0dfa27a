"""Hours and cost of a planned run, from a speed that was measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one replica does, and what it costs."""

    tokens_per_second: float
    """Prompt and completion tokens that one replica takes a second, all its readings together."""
    price_per_hour: float = 0.0
    """Price of one replica's machine, in any currency; 0 leaves the cost out."""


class Estimate(TypedDict):
    """What a plan takes at this speed."""

    replicas: int
    tokens_per_second: float
    hours_at_least: float
    hours_at_most: float
    cost_at_least: NotRequired[float]
    cost_at_most: NotRequired[float]


class EndpointCost(TypedDict):
    """What a plan costs by the tokens of an endpoint."""

    at_least: float
    at_most: float


def endpoint_cost(plan: Mapping[str, Any], prompt: float, completion: float) -> EndpointCost:
    """Cost of the readings to do, by the prices of a million tokens; bounds as in `estimate`."""
    most = plan["prompt_tokens_at_most"] + plan["closing_prompt_tokens_at_most"]
    written = plan["completion_tokens_at_most"] + plan["closing_completion_tokens_at_most"]
    return {
        "at_least": round(plan["prompt_tokens_at_least"] * prompt / 10**6, 2),
        "at_most": round((most * prompt + written * completion) / 10**6, 2),
    }


def estimate(plan: Mapping[str, Any], rates: Rates, *, replicas: int) -> Estimate:
    """Hours and cost of the readings to do, at least and at most.

    The least is without question, memory and completion; the most is with each of them at its budget. Starting the
    cluster and loading the model come on top.

    Args:
        plan: What `plan_checked` returns.
        rates: Speed and price of one replica.
        replicas: Replicas that read side by side.
    """
    tokens_per_hour = rates.tokens_per_second * replicas * 3600
    at_least = plan["prompt_tokens_at_least"] / tokens_per_hour
    kinds = ("prompt_tokens", "completion_tokens", "closing_prompt_tokens", "closing_completion_tokens")
    at_most = sum(plan[f"{kind}_at_most"] for kind in kinds) / tokens_per_hour
    figures: Estimate = {
        "replicas": replicas,
        "tokens_per_second": rates.tokens_per_second,
        "hours_at_least": round(at_least, 3),
        "hours_at_most": round(at_most, 3),
    }
    if rates.price_per_hour:
        figures["cost_at_least"] = round(at_least * replicas * rates.price_per_hour, 2)
        figures["cost_at_most"] = round(at_most * replicas * rates.price_per_hour, 2)
    return figures
