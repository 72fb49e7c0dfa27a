"""What one run may take at most."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from memagent_batch.config.section import Count, Section

Bound = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A bound or a price."""


class BoundsConfig(Section):
    """When one run stops. A run that meets a bound starts no further turn and ends with exit code 6; the same command
    goes on. The turns that are under way then end, and come on top.

    The bounds are of one run: a command that is started again has all of them again.
    """

    max_tokens: Count | None = None
    """Tokens of prompts and completions after which no turn of the run starts; turns of the log take none."""
    max_cost: Bound | None = None
    """Cost after which no turn of the run starts, by `price_per_million_prompt_tokens` and
    `price_per_million_completion_tokens`, or by `price_per_hour`."""
    max_hours: Bound | None = None
    """Time of the run after which no turn of it starts, hours."""
    price_per_hour: Bound | None = None
    """Price of one replica's machine for an hour, in any currency."""
    price_per_million_prompt_tokens: Bound | None = None
    """Price of a million prompt tokens, as of an endpoint."""
    price_per_million_completion_tokens: Bound | None = None
    """Price of a million completion tokens."""

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        of_tokens = (self.price_per_million_prompt_tokens, self.price_per_million_completion_tokens)
        if self.price_per_hour is not None and any(of_tokens):
            raise ValueError(
                "price_per_hour is that of machines, price_per_million_prompt_tokens and "
                "price_per_million_completion_tokens that of an endpoint; set the one or the others"
            )
        if self.max_cost is not None and self.price_per_hour is None and not any(of_tokens):
            raise ValueError(
                "max_cost needs a price: price_per_million_prompt_tokens and price_per_million_completion_tokens of an "
                "endpoint, or price_per_hour of a replica's machine"
            )
        return self
