"""Which follow-up questions a configuration asks, what an engine must be able to do for them, and how long they are."""

from collections.abc import Iterable, Mapping

from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.loop.follow_ups.answer_types import ValueType
from memagent_batch.loop.follow_ups.prompts import COMPLETION_TOKENS, EVIDENCE, SUPPORT, VALUE, FollowUpTokens
from memagent_batch.loop.follow_ups.values import completion_budget, format_instructions, guide_for
from memagent_batch.loop.guides import GuideKind


def asked_kinds(config: FollowUpConfig) -> list[str]:
    """Returns the kinds that are asked of every reading, in their order."""
    return [kind for kind, is_asked in ((EVIDENCE, config.evidence), (SUPPORT, config.support)) if is_asked]


def guide_kinds(config: FollowUpConfig, types: Iterable[ValueType]) -> frozenset[GuideKind]:
    """Returns the kinds of guides that an engine must obey for these types and the turns that are asked."""
    guides = [guide.kind for value_type in types if (guide := guide_for(value_type)) is not None]
    of_kind = {EVIDENCE: GuideKind.REGEX, SUPPORT: GuideKind.CHOICE}
    return frozenset([*guides, *(of_kind[kind] for kind in asked_kinds(config))])


def largest_follow_ups(
    config: FollowUpConfig,
    tokens: FollowUpTokens,
    *,
    types: Iterable[ValueType],
    memory_tokens: int,
    answer_tokens: int,
) -> Mapping[str, int]:
    """Returns the tokens of the largest turn of each kind, its completion included and its question left out."""
    fixed = {kind: template.num_fixed_tokens for kind, template in tokens.templates.items()}
    values = [
        len(tokens.encode(format_instructions(value_type)))
        + completion_budget(value_type, json_tokens=config.json_tokens)
        for value_type in types
        if guide_for(value_type) is not None
    ]
    largest = {VALUE: fixed[VALUE] + memory_tokens + answer_tokens + max(values)} if values else {}
    shown = config.shown_tokens + answer_tokens
    return largest | {kind: fixed[kind] + shown + COMPLETION_TOKENS[kind] for kind in asked_kinds(config)}
