"""Closing turns: what is asked after the answer. They put it into form, point at its sentences, and check it by them.

They do not belong to the reader: each kind has a fingerprint of its own, so that one that is added later reads nothing
again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from memagent_batch.domain.guides import choice_of
from memagent_batch.domain.prompts import Decode, Encode, TokenTemplate

VALUE = "value"
"""Kind and path of the turn that gives the answer as a typed value."""
EVIDENCE = "evidence"
"""Kind and path of the turn that points at the sentences that the answer rests on."""
SUPPORT = "support"
"""Kind and path of the turn that says whether these sentences bear the answer."""
WHOLE_OR_FAILED = frozenset({EVIDENCE, SUPPORT})
"""Kinds of turns that fail where they are cut, or write what their guide does not allow. A value is `invalid` then."""

EVIDENCE_COMPLETION_TOKENS = 32
"""Budget of the evidence turn, tokens: five numbers of four digits, each digit and comma a token, and an end token."""
SUPPORT_COMPLETION_TOKENS = 4
"""Budget of the support turn, tokens: a digit and an end token."""


class Support(StrEnum):
    """Whether the sentences bear the answer."""

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
SUPPORT_GUIDE = choice_of(*SUPPORT_MENU)
"""What the support turn may write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingTokens:
    """The texts of the closing turns, as one tokeniser writes them."""

    templates: Mapping[str, TokenTemplate]
    """The turn of each kind."""
    encode: Encode
    """Token ids of a short text, read as plain text."""
    decode: Decode
    """Text of a document's tokens."""
