"""A reading: one document, one question, one sample; what goes into a policy and what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, cast

from memagent_batch.domain.document import BreakAt, Document
from memagent_batch.domain.prompts import Memory, PromptTokens
from memagent_batch.domain.turns import FinishReason, Turns


class Status(StrEnum):
    """How a reading ended."""

    OK = "ok"
    """Read to the end and answered."""
    FAILED = "failed"
    """Not finished; `error_type` and `error_message` say why."""
    NOT_READ = "not_read"
    """Could not be read now, for a cause that passes, which they give too; the next run reads it. Never in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question as it is asked."""

    question_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionTokens:
    """A question as a policy sees it."""

    token_ids: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a policy brings back from a document."""

    response: str
    """The text of the answer turn after its thoughts; empty where it ended inside one."""
    finish_reason: FinishReason
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a reading will cost, before it is done."""

    num_chunks: int
    num_turns: int
    num_prompt_tokens: int
    """Prompt tokens of all turns, without question and memory."""
    num_completion_tokens: int
    """Completion tokens of all turns, at most."""
    min_prompt_tokens: int | None = None
    """Prompt tokens of a reading that stops as early as it may; None where each reading has the same turns."""


class Policy(Protocol):
    """How a document is read. A frozen dataclass whose fields are its settings."""

    @property
    def kind(self) -> str:
        """Name in settings and tables."""

    @property
    def prompt_set(self) -> str:
        """Name of the prompt set that it reads with where none is chosen."""

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        """Reads a document for a question: cuts it, asks turns one after another or side by side, and answers.

        Turns of the same kind and prompt have the same budget: a changed document takes them from its last version.
        """

    def identity(self) -> Mapping[str, Any]:
        """What decides a result, as JSON values: its kind and its settings. It is hashed into the fingerprint."""

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        """Tokens of each part of the largest turn of each kind: its completion is one, its question is left out.

        A message that refuses a turn shows the parts by their names, as a sum.
        """

    def cost(self, prompts: PromptTokens, *, num_tokens: int) -> Cost:
        """What a reading of a document of this length costs."""


class BreakingPolicy(Policy, Protocol):
    """A policy with the setting `break_at`, whose documents have breaks: places where its chunks close."""

    @property
    def break_at(self) -> BreakAt | None:
        """Where chunks close; None where their length alone decides. Not part of the identity then."""

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        """As `Policy.cost`, of a document with these breaks."""


def cost_of(policy: Policy, prompts: PromptTokens, document: Document) -> Cost:
    """What a reading of a document costs."""
    if not document.breaks:
        return policy.cost(prompts, num_tokens=document.num_tokens)
    return cast(BreakingPolicy, policy).cost(prompts, num_tokens=document.num_tokens, breaks=document.breaks)
