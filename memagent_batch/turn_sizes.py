"""Tokens that the turns of a policy need of the window, and the knobs that make one smaller."""

from collections.abc import Mapping

from memagent_batch.config.agent import AgentConfig
from memagent_batch.domain.prompts import PromptTokens
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import make_policy

KNOBS = ("chunk_tokens", "rounds", "question_tokens", "memory_tokens", "answer_tokens")
"""Knobs of `policy` that a turn's size may depend on; what costs a reading least is named first."""


def turn_sizes(agent: AgentConfig, *, prompts: PromptTokens, **knobs: int) -> Mapping[str, int]:
    """Tokens of the largest turn of each kind, its question and its completion included.

    Args:
        agent: What reads.
        prompts: Its prompt set.
        **knobs: Values of `policy` to try in place of the agent's own.

    Raises:
        SettingsError: the policy refuses these knobs.
    """
    agent = agent.model_copy(update={"policy": agent.policy.model_copy(update=knobs)})
    largest = make_policy(agent).largest_turns(prompts)
    return {turn: agent.policy.question_tokens + num_tokens for turn, num_tokens in largest.items()}


def knobs_of_size(agent: AgentConfig, turn: str, *, prompts: PromptTokens) -> list[str]:
    """Knobs of `policy`, as users write them, that make a turn smaller when they are lowered and leave it there."""
    return [f"policy.{name}" for name in KNOBS if _decides_size(name, agent, turn, prompts=prompts)]


def fits_with_chunk(agent: AgentConfig, turn: str, *, prompts: PromptTokens, chunk_tokens: int) -> bool:
    """Whether a turn fits the window with chunks of this length, and the policy takes such chunks."""
    if chunk_tokens <= agent.policy.overlap_tokens:
        return False
    sizes = _tried(agent, prompts=prompts, chunk_tokens=chunk_tokens)
    return turn in sizes and sizes[turn] <= agent.window_tokens


def _decides_size(name: str, agent: AgentConfig, turn: str, *, prompts: PromptTokens) -> bool:
    size, value = turn_sizes(agent, prompts=prompts)[turn], getattr(agent.policy, name)
    if shorter := _tried(agent, prompts=prompts, **{name: value - 1}):
        return shorter.get(turn, size) < size
    return _tried(agent, prompts=prompts, **{name: value + 1}).get(turn, size) > size


def _tried(agent: AgentConfig, *, prompts: PromptTokens, **knobs: int) -> Mapping[str, int]:
    """The sizes with other knobs; none where the policy refuses these."""
    try:
        return turn_sizes(agent, prompts=prompts, **knobs)
    except SettingsError:
        return {}
