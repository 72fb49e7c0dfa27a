"""The types that everything passes around: documents and their chunks, questions, prompts and completions, policies.

A policy cuts a document, asks turns of a model by `await turns(prompt)`, and returns an outcome.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from memagent_batch.errors import DocumentError

if TYPE_CHECKING:
    from memagent_batch.loop.guides import Guide
    from memagent_batch.loop.prompts import Memory, PromptTokens


class BreakAt(StrEnum):
    """Where a chunk closes before it is full, when what comes next would not fit."""

    SENTENCES = "sentences"
    """At the end of a sentence. A longer sentence closes between words, and never inside a number that fits."""
    ROWS = "rows"
    """At the end of a row of a document of many rows; a longer row at the end of a sentence."""
    LINES = "lines"
    """At the end of a line of the text; a longer line at the end of a sentence."""
    LENGTH = "length"
    """Nowhere: its length alone decides, as in the published code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSpan:
    """Where a chunk lies in its document; ends are exclusive."""

    index: int
    token_start: int
    token_end: int
    char_start: int
    """First character (code point) of the text in the chunk."""
    char_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A slice of a document's tokens, with its place in the document."""

    span: ChunkSpan
    token_ids: Sequence[int]
    """The tokens, `span.token_end - span.token_start` of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The tokens of a document and where each begins in its text.

    The sequences may be views of an Arrow buffer: a slice is copied when it is asked for, the document never.
    """

    token_ids: Sequence[int]
    """Shape [num_tokens]."""
    token_chars: Sequence[int]
    """First character (code point) of each token in the text, not decreasing; shape [num_tokens]."""
    num_chars: int
    """Length of the text, code points."""
    breaks: Sequence[int] = ()
    """Tokens at which a chunk may close, ascending; none where chunks close by their length alone."""
    error: DocumentError | None = None
    """Why there is no text to read; a reading of this document ends with it."""

    @property
    def num_tokens(self) -> int:
        """Length of the document."""
        return len(self.token_ids)

    def tokens(self, start: int, end: int) -> list[int]:
        """The tokens `[start, end)`."""
        return list(self.token_ids[start:end])

    def chunks(self, size_tokens: int, *, overlap_tokens: int = 0) -> Iterator[Chunk]:
        """The document cut into chunks of this size, in order; each shares up to `overlap_tokens` with the one before.

        Where the document has breaks, a chunk closes at the last one that it reaches. A chunk reaches to the first
        character of the token after it, so that without overlap the spans tile the text: nothing is lost or doubled,
        also where a character is spread over several tokens, or a tokeniser drops spaces.

        Raises:
            ValueError: `size_tokens` is not above `overlap_tokens`, or one of them is negative.
        """
        windows = token_windows(
            self.num_tokens, chunk_tokens=size_tokens, overlap_tokens=overlap_tokens, breaks=self.breaks
        )
        for index, (start, end) in enumerate(windows):
            span = ChunkSpan(
                index=index,
                token_start=start,
                token_end=end,
                char_start=self._char_at(start),
                char_end=self._char_at(end),
            )
            yield Chunk(span=span, token_ids=self.tokens(start, end))

    def _char_at(self, token: int) -> int:
        """Where a chunk that begins with this token begins in the text; the text's own ends at the document's ends."""
        if token == 0:
            return 0
        return self.num_chars if token >= self.num_tokens else int(self.token_chars[token])


def token_windows(
    num_tokens: int, *, chunk_tokens: int, overlap_tokens: int = 0, breaks: Sequence[int] = ()
) -> list[tuple[int, int]]:
    """Token ranges `[start, end)` of the chunks of a document.

    Without overlap and breaks there are ceil(num_tokens / chunk_tokens) of them, none for an empty document. With
    overlap each range begins `overlap_tokens` before the end of the one before, or at the first break behind that
    place, and none lies wholly inside its neighbour. With breaks a range that is not the last ends at the last break
    that it reaches, if that takes it further than the one before; else it has all of its `chunk_tokens`.

    Raises:
        ValueError: `chunk_tokens` is not above `overlap_tokens`, or one of them is negative.
    """
    if overlap_tokens < 0 or chunk_tokens <= overlap_tokens:
        raise ValueError(f"chunk_tokens ({chunk_tokens}) must be above overlap_tokens ({overlap_tokens} >= 0)")
    windows, start = [], 0
    while start + chunk_tokens < num_tokens:
        end = start + chunk_tokens
        place = bisect_right(breaks, end)
        if place and breaks[place - 1] > start + overlap_tokens:
            end = breaks[place - 1]
        windows.append((start, end))
        start = end - overlap_tokens
        place = bisect_left(breaks, start)
        if place < len(breaks) and breaks[place] < end:
            start = breaks[place]
    return [*windows, (start, num_tokens)] if num_tokens else []


def num_shown_tokens(windows: Sequence[tuple[int, int]]) -> int:
    """Tokens of all ranges, overlaps counted as often as they are in one."""
    return sum(end - start for start, end in windows)


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

    def cost(self, prompts: "PromptTokens", *, num_tokens: int) -> Cost:
        """What a reading of a document of this length costs."""


class BreakingPolicy(Policy, Protocol):
    """A policy with the setting `break_at`, whose documents have breaks: places where its chunks close."""

    @property
    def break_at(self) -> BreakAt | None:
        """Where chunks close; None where their length alone decides. Not part of the identity then."""

    def cost(self, prompts: "PromptTokens", *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        """As `Policy.cost`, of a document with these breaks."""


def cost_of(policy: Policy, prompts: "PromptTokens", document: Document) -> Cost:
    """What a reading of a document costs."""
    if not document.breaks:
        return policy.cost(prompts, num_tokens=document.num_tokens)
    return cast(BreakingPolicy, policy).cost(prompts, num_tokens=document.num_tokens, breaks=document.breaks)


class Extraction(StrEnum):
    """How the answer is taken out of the response."""

    AUTO = "auto"
    """Boxed if there is a box, else the sentence."""
    BOXED = "boxed"
    r"""The content of the last complete `\boxed{...}`."""
    SENTENCE = "sentence"
    """What follows the last "the answer is", up to the end of its line, without Markdown emphasis and full stop; the
    next line that says anything where a colon ends that one."""
    RAW = "raw"
    """The whole response, without a thought and white space around it."""
