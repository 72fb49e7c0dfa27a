"""What is asked after each answer."""

from collections.abc import Iterable, Mapping
from typing import Self

from pydantic import model_validator

from memagent_batch.config.section import Count, Section
from memagent_batch.loop.follow_ups.answer_types import ValueType
from memagent_batch.loop.follow_ups.prompts import COMPLETION_TOKENS, EVIDENCE, SUPPORT, VALUE, FollowUpTokens
from memagent_batch.loop.follow_ups.values import completion_budget, format_instructions, guide_for
from memagent_batch.loop.guides import GuideKind

MAX_EVIDENCE_TOKENS = 1024
"""More sentences than these are shown only if that is asked for, tokens."""


class FollowUpConfig(Section):
    """What is asked after each answer; a value of a type is asked for where a question has one."""

    evidence: bool = False
    """Ask which sentences of the document the answer rests on; they are rows of the table `evidence`."""
    support: bool = False
    """Ask whether these sentences support the answer; needs `follow_ups.evidence`."""
    evidence_tokens: Count | None = None
    """Sentences that are shown to choose from, tokens at most; by default a quarter of `policy.chunk_tokens`, at least
    256 if a chunk has as many, at most 1,024."""
    json_tokens: Count = 512
    """Budget of a JSON value, tokens."""

    @model_validator(mode="after")
    def _check_support(self) -> Self:
        if self.support and not self.evidence:
            raise ValueError("follow_ups.support is asked of the sentences that follow_ups.evidence finds; set both")
        return self

    @property
    def shown_tokens(self) -> int:
        """Sentences that are shown, tokens at most."""
        return self.evidence_tokens or MAX_EVIDENCE_TOKENS

    def kinds(self) -> list[str]:
        """The kinds that are asked of every reading, in their order."""
        return [kind for kind, is_asked in ((EVIDENCE, self.evidence), (SUPPORT, self.support)) if is_asked]

    def guide_kinds(self, types: Iterable[ValueType]) -> frozenset[GuideKind]:
        """The kinds of guides that an engine must obey for these types and the turns that are asked."""
        guides = [guide.kind for value_type in types if (guide := guide_for(value_type)) is not None]
        of_kind = {EVIDENCE: GuideKind.REGEX, SUPPORT: GuideKind.CHOICE}
        return frozenset([*guides, *(of_kind[kind] for kind in self.kinds())])

    def largest_turns(
        self, tokens: FollowUpTokens, *, types: Iterable[ValueType], memory_tokens: int, answer_tokens: int
    ) -> Mapping[str, int]:
        """Tokens of the largest turn of each kind, its completion included and its question left out."""
        fixed = {kind: template.num_fixed_tokens for kind, template in tokens.templates.items()}
        values = [
            len(tokens.encode(format_instructions(value_type)))
            + completion_budget(value_type, json_tokens=self.json_tokens)
            for value_type in types
            if guide_for(value_type) is not None
        ]
        largest = {VALUE: fixed[VALUE] + memory_tokens + answer_tokens + max(values)} if values else {}
        shown = self.shown_tokens + answer_tokens
        return largest | {kind: fixed[kind] + shown + COMPLETION_TOKENS[kind] for kind in self.kinds()}
