"""Follow-up questions: what is asked after the answer. They put it into form, point at its sentences, and check it by
them.

They do not belong to the reader: each kind has its own fingerprint, so that one that is added later reads nothing
again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.loop.follow_ups.answer_types import ValueType
from memagent_batch.loop.follow_ups.values import completion_budget, format_instructions, guide_for
from memagent_batch.loop.guides import GuideKind, choice_guide
from memagent_batch.loop.prompts import Decode, Encode, TokenTemplate

VALUE = "value"
"""Kind and path of the turn that gives the answer as a typed value."""
EVIDENCE = "evidence"
"""Kind and path of the turn that points at the sentences that the answer rests on."""
SUPPORT = "support"
"""Kind and path of the turn that says whether these sentences support the answer."""
WHOLE_OR_FAILED = frozenset({EVIDENCE, SUPPORT})
"""Kinds of turns that fail where they are cut, or write what their guide does not allow. A value is `invalid` then."""

COMPLETION_TOKENS: Mapping[str, int] = {EVIDENCE: 32, SUPPORT: 4}
"""Budgets, tokens, each token a digit or comma, and an end token: five numbers of four digits; one digit."""


class Support(StrEnum):
    """Whether the sentences support the answer."""

    SUPPORTED = "supported"
    """They say so."""
    PARTLY = "partly"
    """They say a part of it."""
    CONTRADICTED = "contradicted"
    """They say otherwise."""
    NOT_ENOUGH = "not enough"
    """They say too little."""


SUPPORT_MENU: Mapping[str, Support] = {str(number): support for number, support in enumerate(Support, start=1)}
"""Numbers that stand for the choices."""
SUPPORT_GUIDE = choice_guide(*SUPPORT_MENU)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUpTokens:
    """The texts of the follow-up questions, as one tokeniser writes them."""

    templates: Mapping[str, TokenTemplate]
    encode: Encode
    """Token ids of a short text, read as plain text."""
    decode: Decode


FOLLOW_UP_TEXTS: Mapping[str, str] = {
    VALUE: (
        "Give the answer as a value.\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<memory>\n{memory}\n</memory>\n\n"
        "<answer>\n{answer}\n</answer>\n\n"
        "{form}"
    ),
    EVIDENCE: (
        "Which sentences does the answer rest on?\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<answer>\n{answer}\n</answer>\n\n"
        "<sentences>\n{sentences}</sentences>\n\n"
        "Write the numbers of up to five sentences, the best first, or none."
    ),
    SUPPORT: (
        "Do the sentences support the answer?\n\n"
        "<question>\n{question}\n</question>\n\n"
        "<answer>\n{answer}\n</answer>\n\n"
        "<sentences>\n{sentences}</sentences>\n\n"
        "Write one number:\n" + "\n".join(f"{number} = {support}" for number, support in SUPPORT_MENU.items())
    ),
}
"""Text of each kind of turn; slots as in a prompt set."""


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
