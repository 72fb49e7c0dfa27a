"""The types that everything passes around: questions, prompts and completions, policies; documents are in `document`.

A policy cuts a document, asks turns of a model by `await turns(prompt)`, and returns an outcome.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from memagent_batch.document import Chunk as Chunk
from memagent_batch.document import ChunkSpan as ChunkSpan
from memagent_batch.document import Document as Document
from memagent_batch.document import num_shown_tokens as num_shown_tokens
from memagent_batch.document import token_windows as token_windows

if TYPE_CHECKING:
    from memagent_batch.loop.guides import Guide
    from memagent_batch.loop.prompts import Memory, PromptTokens


UPDATE = "update"
"""Kind of the turn that writes a new memory from question, memory and chunk."""
ANSWER = "answer"
READ = "read"
"""Kind of the turn that notes what one chunk says, beside those of the other chunks."""
MERGE = "merge"
"""Kind of the turn that merges notes into the memory."""
DIRECT = "direct"
"""Kind of the turn that answers the question from parts of the document, without a memory."""


class Writes(StrEnum):
    """What the completion of a turn becomes, where it is not an answer."""

    MEMORY = "memory"
    """The memory, or the part of it that this turn writes; one that is cut at its budget counts as a cut memory."""
    NOTE = "note"
    """A note that a later turn merges into the memory; one that is cut counts as well."""


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """The model ended it."""
    LENGTH = "length"
    """It was cut at its budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a policy asks of a model, with its address inside the reading."""

    path: str
    """Turn path: the address of this call in its reading, such as `update/12`; the same at every replay."""
    kind: str
    """What the turn is for: a word of the policy, which the tables show."""
    token_ids: Sequence[int]
    """The whole prompt, chat template included."""
    max_tokens: int
    """Budget of the completion, in tokens."""
    span: ChunkSpan | None = None
    writes: Writes | None = None
    """What the completion becomes; None where it is an answer."""
    memory_after: Callable[["Completion"], str] | None = field(default=None, compare=False, repr=False)
    """The text of the whole memory after this turn, for a policy whose memory is more than the last completion. It
    depends on the completion and on the turns before it alone. The log keeps it, and tables and evidence show it. None
    if the completion is the memory."""
    shown: Sequence[tuple[int, int]] = ()
    """Token ranges of the document that the prompt shows, where it shows several parts and no one chunk."""
    guide: "Guide | None" = None
    """What the completion may be; None where the model is free. A guided turn is decoded greedily."""
    fingerprint: str | None = None
    """The fingerprint under which the log keeps the turn, where it is not the reader's: that of a follow-up
    question."""
    number: int | None = None
    """Position of the turn in its reading, from 0, in the order in which the policy asks. Set by the reading, never by
    a policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the model returned for one prompt."""

    token_ids: Sequence[int]
    """Exactly the tokens that the engine returned, an end token included where it returned one."""
    text: str
    """Their text, without control tokens except for the tags of thoughts."""
    finish_reason: FinishReason
    logprobs: Sequence[float] | None = None
    """Log-probability of each token when it was sampled; None where they were not asked for. A choice has them."""
    menu_logprobs: Sequence[float] | None = None
    """Log-probability of each text of the guide's choices, over these alone; None where one takes several tokens."""
    num_prompt_tokens: int = 0
    num_cached_prompt_tokens: int = 0
    num_billed_tokens: int | None = None
    """Tokens of the completion by the count of an API, thoughts that it hides included; None where it gives none."""
    engine_seconds: float = 0.0
    replayed: bool = False

    @property
    def num_completion_tokens(self) -> int:
        """Tokens that the completion cost: `token_ids` may be fewer, where an API hides thoughts."""
        return len(self.token_ids) if self.num_billed_tokens is None else self.num_billed_tokens


Turns = Callable[[Prompt], Awaitable[Completion]]
"""All that a policy knows of a model: `completion = await turns(prompt)`."""


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
    memory: "Memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a reading will cost, before it is done."""

    num_chunks: int
    """Chunks into which the policy cuts the document, whether or not a turn shows them."""
    num_turns: int
    num_prompt_tokens: int
    """Prompt tokens of all turns, without question and memory."""
    num_completion_tokens: int
    """Completion tokens of all turns, at most."""
    min_prompt_tokens: int | None = None
    """Prompt tokens of a reading that stops as early as it may; None where each reading has the same turns."""
    num_steps: int | None = None
    """Turns in a row, each of which waits for the one before it, in most readings; None if no turns are side by side.
    It is the number of batches that a reading takes with an engine that sends batches."""
    max_steps: int | None = None
    """Turns in a row, at most; None if no turns are side by side."""


class Policy(Protocol):
    """How a document is read. A frozen dataclass whose fields are its settings."""

    @property
    def kind(self) -> str:
        """Name in settings and tables."""

    @property
    def prompt_set(self) -> str:
        """Name of the prompt set that it reads with where none is chosen."""

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: "PromptTokens", turns: Turns
    ) -> Outcome:
        """Reads a document for a question: cuts it, asks turns one after another or side by side, and answers.

        Turns of the same kind and prompt have the same budget: a changed document takes them from its last version.
        """

    def identity(self) -> Mapping[str, Any]:
        """What decides a result, as JSON values: its kind and its settings. It is hashed into the fingerprint."""

    def largest_turns(self, prompts: "PromptTokens") -> Mapping[str, Mapping[str, int]]:
        """Tokens of each part of the largest turn of each kind: its completion is one, its question is left out.

        A message that refuses a turn shows the parts by their names, as a sum.
        """

    def cost(self, prompts: "PromptTokens", *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        """What a reading of a document of this length costs. `breaks` are those of the document: `Document.breaks`."""
