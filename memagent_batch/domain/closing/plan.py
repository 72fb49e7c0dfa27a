"""Closing turns: what is asked after the answer. They put it into form, point at its sentences, and check it by them.

They do not belong to the reader: each kind has a fingerprint of its own, so that one that is added later reads nothing
again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from memagent_batch.domain.addresses import fingerprint
from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.domain.closing.evidence import MAX_CHOSEN, MAX_SOURCES
from memagent_batch.domain.closing.json_schemas import JsonValue
from memagent_batch.domain.closing.values import budget_of, form_of, guide_of
from memagent_batch.domain.guides import GuideKind, choice_of
from memagent_batch.domain.prompts import Decode, Encode, Slot, TokenTemplate, require_slots

VALUE = "value"
"""Kind and path of the turn that gives the answer as a typed value."""
EVIDENCE = "evidence"
"""Kind and path of the turn that points at the sentences that the answer rests on."""
SUPPORT = "support"
"""Kind and path of the turn that says whether these sentences bear the answer."""
WHOLE_OR_FAILED = frozenset({EVIDENCE, SUPPORT})
"""Kinds of turns that fail where they are cut, or write what their guide does not allow. A value is `invalid` then."""

CLOSING_SLOTS: Mapping[str, frozenset[Slot]] = {
    VALUE: frozenset({Slot.QUESTION, Slot.MEMORY, Slot.ANSWER, Slot.FORM}),
    EVIDENCE: frozenset({Slot.QUESTION, Slot.ANSWER, Slot.SENTENCES}),
    SUPPORT: frozenset({Slot.QUESTION, Slot.ANSWER, Slot.SENTENCES}),
}
"""What each text leaves open."""

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
class ClosingSet:
    """The texts of the closing turns; slots as in a prompt set."""

    version: str
    """Changes with every change of a text."""
    texts: Mapping[str, str]
    """Text of each kind; has the slots of `CLOSING_SLOTS`."""

    def __post_init__(self) -> None:
        """Refuses a set whose texts lack a slot, or hold an unknown one.

        Raises:
            PromptSetError: names the text and the slots.
        """
        for kind, slots in CLOSING_SLOTS.items():
            require_slots(self.texts[kind], slots, place=f"closing text {kind!r}")

    def fingerprint(self, kind: str) -> str:
        """What decides a closing turn beside reader, question, document and knobs, as 64 hex digits."""
        caps: JsonValue = [MAX_SOURCES, MAX_CHOSEN]
        return fingerprint({"version": self.version, "kind": kind, "text": self.texts[kind], "caps": caps})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingTokens:
    """A closing set as one tokeniser writes it."""

    templates: Mapping[str, TokenTemplate]
    """The turn of each kind."""
    encode: Encode
    """Token ids of a short text, read as plain text."""
    decode: Decode
    """Text of a document's tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingPlan:
    """Which closing turns are asked, and their budgets. The value turn comes with a question that asks for a type."""

    evidence: bool = False
    """Ask which sentences the answer rests on."""
    support: bool = False
    """Ask whether they bear it; needs `evidence`."""
    evidence_tokens: int = 1024
    """Sentences that are shown, tokens at most."""
    json_tokens: int = 512
    """Budget of a JSON value, tokens."""

    def __post_init__(self) -> None:
        """Checks that all belongs together.

        Raises:
            ValueError: support without evidence, or a budget below 1; names the knob.
        """
        if self.support and not self.evidence:
            raise ValueError("closing.support needs closing.evidence: it is asked of the sentences that were found")
        if self.evidence_tokens < 1 or self.json_tokens < 1:
            raise ValueError("closing.evidence_tokens and closing.json_tokens must be at least 1")

    def kinds(self) -> list[str]:
        """The kinds that are asked of every reading, in their order."""
        return [kind for kind, is_asked in ((EVIDENCE, self.evidence), (SUPPORT, self.support)) if is_asked]

    def guide_kinds(self, types: Iterable[ValueType]) -> frozenset[GuideKind]:
        """The kinds of guides that an engine must obey for these types and the turns of the plan."""
        guides = [guide.kind for value_type in types if (guide := guide_of(value_type)) is not None]
        of_kind = {EVIDENCE: GuideKind.REGEX, SUPPORT: GuideKind.CHOICE}
        return frozenset([*guides, *(of_kind[kind] for kind in self.kinds())])

    def fingerprint(self, kind: str, *, closings: ClosingSet, reader: str, value_type: ValueType | None = None) -> str:
        """What decides the result of a closing turn beside document and question, as 64 hex digits.

        Args:
            kind: the kind of turn.
            closings: its texts.
            reader: fingerprint of the reader, whose answer it is about.
            value_type: the type that the question asks for; for `value` alone.
        """
        parts: dict[str, JsonValue] = {"reader": reader, "kind": kind, "text": closings.texts[kind]}
        if kind == VALUE and value_type is not None:
            guide = guide_of(value_type)
            parts |= {
                "type": value_type.identity(),
                "form": form_of(value_type),
                "guide": None if guide is None else guide.identity(),
                "max_tokens": budget_of(value_type, json_tokens=self.json_tokens),
            }
        else:
            parts |= {"evidence_tokens": self.evidence_tokens, "caps": [MAX_SOURCES, MAX_CHOSEN]}
        return fingerprint(parts)

    def largest_turns(
        self, tokens: ClosingTokens, *, types: Iterable[ValueType], memory_tokens: int, answer_tokens: int
    ) -> Mapping[str, int]:
        """Tokens of the largest turn of each kind, its completion included and its question left out.

        Args:
            tokens: the texts.
            types: types that the questions ask for.
            memory_tokens: longest memory.
            answer_tokens: longest answer.
        """
        fixed = {kind: template.num_fixed_tokens for kind, template in tokens.templates.items()}
        values = [
            len(tokens.encode(form_of(value_type))) + budget_of(value_type, json_tokens=self.json_tokens)
            for value_type in types
            if guide_of(value_type) is not None
        ]
        largest = {VALUE: fixed[VALUE] + memory_tokens + answer_tokens + max(values)} if values else {}
        shown = self.evidence_tokens + answer_tokens
        budgets = {EVIDENCE: EVIDENCE_COMPLETION_TOKENS, SUPPORT: SUPPORT_COMPLETION_TOKENS}
        return largest | {kind: fixed[kind] + shown + budgets[kind] for kind in self.kinds()}

    def identity(self) -> Mapping[str, Any]:
        """The knobs, as JSON values."""
        return asdict(self)
