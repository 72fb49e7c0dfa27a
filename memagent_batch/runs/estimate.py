"""Hours and cost of a planned run, from a speed that was measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one replica does, and what it costs."""

    tokens_per_second: float
    """Prompt and completion tokens that one replica takes a second, all its readings together."""
    price_per_hour: float = 0.0
    """Price of one replica's machine, in whatever currency; 0 leaves the cost out."""


def estimate(plan: Mapping[str, Any], rates: Rates, *, replicas: int) -> dict[str, Any]:
    """Hours and cost of the readings to do, at least and at most.

    The least is without question, memory and completion; the most is with each of them at its budget. Starting the
    cluster and loading the model come on top.

    Args:
        plan: What `plan_checked` returns.
        rates: Speed and price of one replica.
        replicas: Replicas that read side by side.
    """
    tokens = {
        "at_least": plan["prompt_tokens_at_least"],
        "at_most": plan["prompt_tokens_at_most"] + plan["completion_tokens_at_most"],
    }
    hours = {name: number / (rates.tokens_per_second * replicas * 3600) for name, number in tokens.items()}
    figures: dict[str, Any] = {"replicas": replicas, "tokens_per_second": rates.tokens_per_second}
    figures |= {f"hours_{name}": round(number, 3) for name, number in hours.items()}
    if rates.price_per_hour:
        figures |= {f"cost_{name}": round(n * replicas * rates.price_per_hour, 2) for name, n in hours.items()}
    return figures
