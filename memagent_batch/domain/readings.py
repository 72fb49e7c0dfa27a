"""A reading: one document, one question, one sample; what goes into a policy and what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from memagent_batch.domain.chunking import Chunk
from memagent_batch.domain.prompts import Memory, PromptTokens
from memagent_batch.domain.turns import FinishReason, Generate, TurnKind


class Status(StrEnum):
    """How a reading ended."""

    OK = "ok"
    """Read to the end and answered."""
    FAILED = "failed"
    """Not finished; `error_type` and `error_message` say why."""
    NOT_READ = "not_read"
    """Could not be read now, for a cause that passes, which they say too; the next run reads it. Never in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a policy brings back from a document."""

    response: str
    """The text of the answer turn after its thoughts; empty where it ended inside one."""
    finish_reason: FinishReason
    """Why the answer turn ended."""
    memory: Memory
    """The memory that the answer was given from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a reading will cost, before it is done."""

    num_turns: int
    """Turns."""
    num_prompt_tokens: int
    """Prompt tokens of all turns, without question and memory."""
    num_completion_tokens: int
    """Completion tokens of all turns, at most."""


class Policy(Protocol):
    """How a document is read. A frozen dataclass with its knobs; adding one is one file and one name."""

    @property
    def kind(self) -> str:
        """Name in settings and tables."""

    async def read(
        self, chunks: Sequence[Chunk], question: Sequence[int], *, prompts: PromptTokens, generate: Generate
    ) -> Outcome:
        """Reads a document's chunks for a question (token ids) with the model behind `generate`."""

    def largest_turns(self, prompts: PromptTokens) -> Mapping[TurnKind, int]:
        """Tokens of the largest turn of each kind, its completion included and its question left out."""

    def cost(self, prompts: PromptTokens, *, num_chunks: int, num_chunk_tokens: int) -> Cost:
        """What a reading of a document costs; `num_chunk_tokens` are those of all chunks, overlaps counted twice."""
