"""The sentences that an answer rests on: which of a document's are shown, and which of them the model points at.

A span of evidence is that of a sentence of the document, so it is exact by construction: a model writes numbers alone.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from memagent_batch.loop.guides import Guide, number_regex, regex_guide
from memagent_batch.loop.texts.sentences import Sentences
from memagent_batch.loop.texts.words import folded_words, word_scores
from memagent_batch.types import Document, Prompt, Writes

MAX_SOURCES = 8
"""Most chunks whose sentences are shown."""
MAX_CHOSEN = 5
"""Most sentences that the model points at."""
NUMBERING_TOKENS = 8
"""Tokens that number and line end of a sentence take, at most."""
ANSWER_WEIGHT = 4
"""How much more a word of the memory counts that the answer has too, when chunks are chosen."""
NO_SENTENCE = "none"
"""What the model writes where no sentence supports the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRange:
    """A part of the document that a turn showed."""

    token_start: int
    token_end: int
    chunk_index: int | None = None
    """Position of the chunk that it is, from 0; None where it is another part."""


@dataclass(slots=True, kw_only=True)
class MemoryTrace:
    """Where the memory of a reading comes from, kept turn by turn: the one value here that changes.

    It holds the words of one memory, and of the notes where a policy writes some.
    """

    seen: dict[str, ShownRange | None] = field(default_factory=dict)
    """Words of the memory as it is, and the chunk at which each came into it and stayed; None where it was there
    from the start."""
    noted: dict[str, ShownRange] = field(default_factory=dict)
    """Words of notes that are not memory yet, each with the first chunk of the document that brought it."""
    shown: list[ShownRange] = field(default_factory=list)
    """What was shown of the document, in its order; parts that touch are one."""
    parts: tuple[ShownRange, ...] = ()
    """What the last turn showed that showed several parts."""

    def take(self, prompt: Prompt, *, written: str | None) -> None:
        """Adds a turn, with the memory or note that it wrote: None where it wrote none, or left the memory as it was.

        The trace of turns that run side by side does not depend on which of them ends first.
        """
        parts = tuple(ShownRange(token_start=start, token_end=end) for start, end in prompt.shown)
        sources = parts
        if prompt.span is not None:
            span = prompt.span
            sources = (ShownRange(token_start=span.token_start, token_end=span.token_end, chunk_index=span.index),)
        source = sources[0] if sources else None
        for each in sources:
            _join_in(self.shown, each)
        self.parts = parts or self.parts
        if written is None:
            return
        words = set(folded_words(written))
        if prompt.writes is Writes.MEMORY:
            self.seen = {  # a word comes from the last memory, the chunk that the turn showed, or a note
                word: self.seen[word] if word in self.seen else source or self.noted.get(word) for word in words
            }
        elif source is not None:
            for word in words:
                self.noted[word] = min(source, self.noted.get(word, source), key=_range_start)

    def coverage(self, num_tokens: int) -> float:
        """Share of a document of this length that was shown, 0 to 1; 1 for an empty one."""
        if num_tokens == 0:
            return 1.0
        return sum(source.token_end - source.token_start for source in self.shown) / num_tokens

    def sources(self, *, question: str, answer: str) -> tuple[ShownRange, ...]:
        """The parts of the document that the answer may rest on, in the order of the document.

        Those that were shown together, where no memory was kept. Else the chunks at which the words of the final memory
        came into it: words that the question has too say little of where they come from.
        """
        if self.parts and not any(self.seen.values()):
            return self.parts
        asked, answered = set(folded_words(question)), set(folded_words(answer))
        weights: Counter[ShownRange] = Counter()
        for word, source in self.seen.items():
            if source is not None:
                weights[source] += 0 if word in asked else ANSWER_WEIGHT if word in answered else 1
        sources = sorted(weights, key=lambda source: (-weights[source], source.token_start))
        telling = [source for source in sources if weights[source] > 0] or sources
        return tuple(sorted(telling[:MAX_SOURCES], key=_range_start))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A sentence that may be shown."""

    char_start: int
    char_end: int
    token_start: int
    """First token that holds a character of it."""
    token_end: int
    chunk_index: int | None
    """The first of the chunks that hold it; None where no chunk was shown."""

    @property
    def num_tokens(self) -> int:
        """Length as it is shown, its number included."""
        return self.token_end - self.token_start + NUMBERING_TOKENS


def candidates_of(document: Document, sentences: Sentences, sources: Iterable[ShownRange]) -> list[Candidate]:
    """The sentences of these parts of the document, each once and whole, in its order."""
    candidates: dict[int, Candidate] = {}
    for source in sources:
        if source.token_start >= source.token_end:
            continue
        char_start = int(document.token_chars[source.token_start])
        is_last = source.token_end >= document.num_tokens
        char_end = document.num_chars if is_last else int(document.token_chars[source.token_end])
        for index in sentences.within(char_start, char_end):
            if index not in candidates:
                start, end = sentences.span(index)
                tokens = sentences.tokens(index, document)
                candidates[index] = Candidate(
                    char_start=start,
                    char_end=end,
                    token_start=tokens[0],
                    token_end=tokens[1],
                    chunk_index=source.chunk_index,
                )
    return [candidates[index] for index in sorted(candidates)]


def choose_candidates(
    candidates: Sequence[Candidate],
    *,
    words: Sequence[list[str]],
    sought: Collection[str],
    max_tokens: int,
) -> list[Candidate]:
    """Those of the sentences that are shown, in the order of the document: the nearest ones that the budget holds."""
    scores = word_scores(words, list(dict.fromkeys(sought)))
    ranked = sorted(range(len(candidates)), key=lambda place: (-scores[place], place))
    if any(score > 0 for score in scores):
        ranked = [place for place in ranked if scores[place] > 0]
    chosen: list[int] = []
    room = max_tokens
    for place in ranked:
        if candidates[place].num_tokens <= room:
            chosen.append(place)
            room -= candidates[place].num_tokens
    return [candidates[place] for place in sorted(chosen)]


def evidence_guide(num_sentences: int) -> Guide:
    """What an evidence turn may write: up to five numbers of sentences that are shown, the best first, or `none`."""
    one = number_regex(num_sentences)
    return regex_guide(f"({one}(, {one}){{0,{min(MAX_CHOSEN, num_sentences) - 1}}}|{NO_SENTENCE})", example="1")


def evidence_of(text: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The sentences that an evidence turn points at, the best first. A number that is written again adds nothing.

    Raises:
        ValueError: it is not what the guide allows.
    """
    if not evidence_guide(max(1, len(candidates))).allows(text) or not candidates:
        raise ValueError(f"evidence {text!r} is not a list of sentence numbers up to {len(candidates)}")
    numbers = [] if text == NO_SENTENCE else list(dict.fromkeys(map(int, text.split(", "))))
    return [candidates[number - 1] for number in numbers]


def _range_start(source: ShownRange) -> int:
    return source.token_start


def _join_in(shown: list[ShownRange], source: ShownRange) -> None:
    """Adds a part to those that were shown; the parts that it touches or overlaps become one with it."""
    low = bisect_left(shown, source.token_start, key=lambda part: part.token_end)
    high = bisect_right(shown, source.token_end, key=_range_start)
    start, end = source.token_start, source.token_end
    if low < high:
        start, end = min(start, shown[low].token_start), max(end, shown[high - 1].token_end)
    shown[low:high] = [ShownRange(token_start=start, token_end=end)]
