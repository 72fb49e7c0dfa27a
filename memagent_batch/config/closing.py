"""What is asked after each answer."""

from typing import Self

from pydantic import model_validator

from memagent_batch.config.section import Count, Section


class ClosingConfig(Section):
    """What is asked after each answer; a value of a type is asked for where a question has one."""

    evidence: bool = False
    """Ask which sentences of the document the answer rests on; they are rows of the table `evidence`."""
    support: bool = False
    """Ask whether these sentences bear the answer; needs `closing.evidence`."""
    evidence_tokens: Count | None = None
    """Sentences that are shown to choose from, tokens at most; by default a quarter of `policy.chunk_tokens`, but
    at least 256 where a chunk is longer, and at most 1,024."""
    json_tokens: Count = 512
    """Budget of a JSON value, tokens."""

    @model_validator(mode="after")
    def _check_support(self) -> Self:
        if self.support and not self.evidence:
            raise ValueError("closing.support is asked of the sentences that closing.evidence finds; set both")
        return self
