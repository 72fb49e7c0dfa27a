"""What is asked after each answer."""

from typing import Self

from pydantic import model_validator

from memagent_batch.config.section import Count, Section

MAX_EVIDENCE_TOKENS = 1024
"""More sentences than these are shown only if that is asked for, tokens."""


class FollowUpConfig(Section):
    """What is asked after each answer; a value of a type is asked for where a question has one."""

    evidence: bool = False
    """Ask which sentences support the answer, for the table `evidence`."""
    support: bool = False
    """Ask whether these sentences support the answer; needs `follow_ups.evidence`."""
    evidence_tokens: Count | None = None
    """Budget of the sentences to choose from, tokens. Defaults to a quarter of `policy.chunk_tokens`, between 256 (if a
    chunk has as many) and 1,024."""
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
