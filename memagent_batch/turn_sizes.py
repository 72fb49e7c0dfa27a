"""What the largest turns of a policy are made of, in tokens."""

from collections.abc import Mapping

from memagent_batch.config.agent import AgentConfig
from memagent_batch.domain.prompts import PromptTokens
from memagent_batch.plugins import make_policy


def turn_sizes(agent: AgentConfig, *, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
    """Tokens of each part of the largest turn of each kind, its question and its completion included."""
    largest = make_policy(agent).largest_turns(prompts)
    return {turn: {"question": agent.policy.question_tokens, **parts} for turn, parts in largest.items()}


def largest_turn(agent: AgentConfig, *, prompts: PromptTokens) -> tuple[str, Mapping[str, int]]:
    """The kind and the parts of the turn that needs most of the window."""
    return max(turn_sizes(agent, prompts=prompts).items(), key=lambda turn: sum(turn[1].values()))


def sum_line(parts: Mapping[str, int]) -> str:
    """The parts as a sum, as a message shows it."""
    return f"{' + '.join(f'{name} {size:,}' for name, size in parts.items())} = {sum(parts.values()):,} tokens"
