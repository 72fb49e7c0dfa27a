"""What one run may take at most."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from memagent_batch.config.section import Count, Section

Bound = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A bound or a price."""


class BoundsConfig(Section):
    """What one run may take at most. A run that meets a bound ends with exit code 6, and the same command goes on.

    The bounds are of one run: a command that is started again has all of them again.
    """

    max_tokens: Count | None = None
    """Most tokens of prompts and completions that the run's turns take; what the log holds takes none."""
    max_cost: Bound | None = None
    """Most that the run costs, by `price_per_million_prompt_tokens` and `price_per_million_completion_tokens`, or by
    `price_per_hour`."""
    max_hours: Bound | None = None
    """Longest time of the run, hours: a turn that would end later, judged by the longest of the latest turns, is not
    started."""
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
