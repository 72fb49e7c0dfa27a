"""What a run has taken, and may take."""

from typing import TypedDict

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
    return any(bound is not None for bound in (run.max_tokens, run.max_hours))


def bound_met(run: RunConfig, spent: Spent, *, seconds: float) -> str | None:
    """The setting of the first bound that a run has met; None while its turns may start."""
    taken = {
        "max_tokens": spent["num_prompt_tokens"] + spent["num_completion_tokens"],
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
