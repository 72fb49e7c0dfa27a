"""One model call: the prompt that goes in, the completion that comes out. The seam between policies and engines."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Protocol, runtime_checkable

from memagent_batch.domain.document import ChunkSpan
from memagent_batch.domain.guides import Guide

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
    guide: Guide | None = None
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


def notes_of(kinds: Sequence[str]) -> list[bool]:
    """Whether each turn of a reading, in order, writes a note: of `merge` turns in a row, all but the last."""
    return [kind == READ or kind == following == MERGE for kind, following in pairwise([*kinds, None])]


Turns = Callable[[Prompt], Awaitable[Completion]]
"""All that a policy knows of a model: `completion = await turns(prompt)`."""


@runtime_checkable
class PlacedTurns(Protocol):
    """Turns that share places in an engine. A policy that asks many side by side makes a prompt when there is room."""

    async def room(self) -> None:
        """Returns when no turn of the reading waits for a place."""
