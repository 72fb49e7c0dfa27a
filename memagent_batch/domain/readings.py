"""A reading: one document, one question, one sample; what goes into a policy and what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from memagent_batch.domain.chunking import Chunk
from memagent_batch.domain.prompts import Memory, PromptTokens
from memagent_batch.domain.turns import FinishReason, Generate


class Status(StrEnum):
    """How a reading ended."""

    OK = "ok"
    """Read to the end and answered."""
    FAILED = "failed"
    """Not finished; `error_type` and `error_message` say why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a policy brings back from a document."""

    response: str
    """The whole text of the answer turn."""
    finish_reason: FinishReason
    """Why the answer turn ended."""
    memory: Memory
    """The memory that the answer was given from."""


class Policy(Protocol):
    """How a document is read. A frozen dataclass with its knobs; adding one is one file and one name."""

    @property
    def kind(self) -> str:
        """Name in settings and tables."""

    async def read(
        self, chunks: Sequence[Chunk], question: Sequence[int], *, prompts: PromptTokens, generate: Generate
    ) -> Outcome:
        """Reads a document's chunks for a question (token ids) with the model behind `generate`."""
