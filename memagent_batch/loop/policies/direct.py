"""Baselines without a memory: one turn that answers from parts of the document itself."""

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from threading import Lock
from typing import Any, ClassVar

from memagent_batch.config.agent import BreakAt
from memagent_batch.document import num_shown_tokens, token_windows
from memagent_batch.loop.prompts import Memory, PromptTokens, Slot
from memagent_batch.loop.texts.words import WORD_FORM, WordIndex
from memagent_batch.types import DIRECT, Cost, Document, Outcome, Prompt, QuestionTokens, Turns

KEPT_INDEXES = 4
"""Documents whose indexes are kept: questions of one document are mostly read one after the other."""
NO_MEMORY = Memory(token_ids=(), text="")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectPolicy(ABC):
    """One `direct` turn with parts of the document that together have at most `chunk_tokens`."""

    kind: ClassVar[str]
    prompt_set: ClassVar[str] = "default"

    chunk_tokens: int
    """Tokens of the document that the prompt shows, at most."""
    overlap_tokens: int = 0
    """Tokens that a chunk, or a passage, shares with the one before it."""
    break_at: BreakAt | None = None
    """Where a part of the document may begin and end; None where its length alone decides."""
    answer_tokens: int

    @abstractmethod
    async def parts(
        self, document: Document, question: Sequence[int], *, prompts: PromptTokens
    ) -> list[tuple[int, int]]:
        """Token ranges to show of a document that is longer than `chunk_tokens`, with a gap between each two."""

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        """Shows a document that fits whole, else parts of it, and asks."""
        ranges = [(0, document.num_tokens)]
        if document.num_tokens > self.chunk_tokens:
            ranges = await self.parts(document, question.token_ids, prompts=prompts)
        shown: list[int] = []
        for start, end in ranges:
            shown += [*(prompts.gap if shown else ()), *document.tokens(start, end)]
        prompt = Prompt(
            path=DIRECT,
            kind=DIRECT,
            token_ids=prompts.direct.fill({Slot.QUESTION: question.token_ids, Slot.CHUNK: shown}),
            max_tokens=self.answer_tokens,
            shown=ranges,
        )
        completion = await turns(prompt)
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=NO_MEMORY)

    def identity(self) -> Mapping[str, Any]:
        """Kind and settings."""
        settings = asdict(self)
        if self.break_at in (None, BreakAt.LENGTH):
            del settings["break_at"]
        return {"kind": self.kind, **settings}

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        """The one turn."""
        template = prompts.direct.num_fixed_tokens
        return {DIRECT: {"chunk": self.chunk_tokens, "answer": self.answer_tokens, "template": template}}

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        """At most the same for every document that is longer than the prompt shows."""
        windows = token_windows(
            num_tokens, chunk_tokens=self.chunk_tokens, overlap_tokens=self.overlap_tokens, breaks=breaks
        )
        return Cost(
            num_chunks=len(windows),
            num_turns=1,
            num_prompt_tokens=prompts.direct.num_fixed_tokens + min(num_shown_tokens(windows), self.chunk_tokens),
            num_completion_tokens=self.answer_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievePolicy(DirectPolicy):
    """One `direct` turn with the best passages that it has room for, in the order of the document."""

    kind: ClassVar[str] = "retrieve"

    passage_tokens: int

    def __post_init__(self) -> None:
        """Checks the length of a passage."""
        if not self.overlap_tokens < self.passage_tokens <= self.chunk_tokens:
            raise ValueError("policy.passage_tokens must be above policy.overlap_tokens, and not above chunk_tokens")

    def identity(self) -> Mapping[str, Any]:
        """Kind and settings, and the package that ranks."""
        return {**DirectPolicy.identity(self), "rank": f"bm25s {version('bm25s')}"}

    async def parts(
        self, document: Document, question: Sequence[int], *, prompts: PromptTokens
    ) -> list[tuple[int, int]]:
        """Among equal passages the earlier goes first; those that overlap become one. What fits is shown whole."""
        return await asyncio.to_thread(self._best_passages, document, question, prompts=prompts)

    def _best_passages(
        self, document: Document, question: Sequence[int], *, prompts: PromptTokens
    ) -> list[tuple[int, int]]:
        num_tokens, overlap_tokens = document.num_tokens, self.overlap_tokens
        passages = token_windows(
            num_tokens, chunk_tokens=self.passage_tokens, overlap_tokens=overlap_tokens, breaks=document.breaks
        )
        index = _index_of(document, passages, decode=prompts.decode)
        scores = index.scores(_words(question, decode=prompts.decode))
        ranked = sorted(range(len(passages)), key=lambda index: (-scores[index], index))
        num_shown = max(self.chunk_tokens // (self.passage_tokens + len(prompts.gap)), 1)
        joined: list[tuple[int, int]] = []
        for start, end in sorted(passages[index] for index in ranked[:num_shown]):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        return joined


_indexes = deque[tuple[Document, Sequence[tuple[int, int]], WordIndex]](maxlen=KEPT_INDEXES)
_indexing = Lock()


def _index_of(
    document: Document, passages: Sequence[tuple[int, int]], *, decode: Callable[[Sequence[int]], str]
) -> WordIndex:
    """The index of these passages, which all questions of a document share; the first thread that asks makes it."""
    with _indexing:
        for indexed, ranges, index in _indexes:
            if indexed is document and ranges == passages:
                return index
        index = WordIndex([_words(document.token_ids[start:end], decode=decode) for start, end in passages])
        _indexes.append((document, passages, index))
        return index


def _words(token_ids: Sequence[int], *, decode: Callable[[Sequence[int]], str]) -> list[str]:
    return WORD_FORM.findall(decode(list(token_ids)).lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatePolicy(DirectPolicy):
    """One `direct` turn with the first and the last half of what it may show; all of a document that fits."""

    kind: ClassVar[str] = "truncate"

    async def parts(
        self, document: Document, question: Sequence[int], *, prompts: PromptTokens
    ) -> list[tuple[int, int]]:
        """The head and the tail of the document."""
        room = self.chunk_tokens - len(prompts.gap)
        head, tail = room - room // 2, document.num_tokens - room // 2
        breaks = document.breaks
        before, after = bisect_right(breaks, head), bisect_left(breaks, tail)
        head = breaks[before - 1] if before else head
        return [(0, head), (breaks[after] if after < len(breaks) else tail, document.num_tokens)]

    def identity(self) -> Mapping[str, Any]:
        """Kind and settings; no chunk shares anything with another one here."""
        return {name: value for name, value in DirectPolicy.identity(self).items() if name != "overlap_tokens"}
