"""Turns to be learnt: what the memory and the chunk hold, and the memory or answer that should be written."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memagent_batch.domain.prompts import AnswerForm, PromptSet, PromptTokens, Slot
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.facts import Needle, Split, make_needle, make_rival
from memagent_batch.prompts.built_in import DEFAULT_PROMPTS, GATED_PROMPTS
from pipelines.recipes.tiny_policy.examples import Example
from pipelines.recipes.tiny_policy.streams import Stream, slice_chunk

NOT_STATED = "not stated"
"""What the answer turn boxes when the memory holds nothing."""

CUT_SHARE = 0.08
"""Part of the chunks with the needle that are read with a cut value in the memory: the chunk goes before the memory."""

FIRST_SHARE = 0.35
"""Part of the turns without anything noted that are the first ones of their document."""


GATE_WEIGHT = 8.0
"""Weight of the token that keeps or begins a memory, in `gated` turns: it is the only one that needs the chunk looked
through before anything is written. At the weight of the others, three minutes of training did not teach it."""


class ExampleKind(StrEnum):
    """What a turn asks of the policy."""

    FIND = "find"
    """Nothing noted, the needle is in the chunk: note it."""
    RETAIN = "retain"
    """The needle is noted, the chunk is of no use: keep it."""
    NOTHING = "nothing"
    """Nothing noted, the chunk is of no use: note what is looked for, and that it was not met."""
    CONFIRM = "confirm"
    """The needle is noted and is in the chunk too: keep it."""
    ANSWER = "answer"
    """The needle is noted: box its value."""
    UNANSWERED = "unanswered"
    """Nothing is noted: box `NOT_STATED`."""
    DIRECT = "direct"
    """No memory, the needle is in the chunk: write it as a note, and box its value."""
    ABSENT = "absent"
    """No memory, the chunk is of no use: write what is looked for, and that it is not stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMixture:
    """Shares of the kinds of turns in training, and the lengths of their chunks."""

    weights: dict[ExampleKind, float]
    """Relative frequency of each kind, in turns of the default prompt set."""
    gated_weights: dict[ExampleKind, float]
    """The same, in turns of the gated prompt set."""
    gated_share: float
    """Part of the turns that are gated."""
    shortest_tokens: int
    """Shortest chunk."""
    longest_tokens: int
    """Longest chunk."""
    long_share: float
    """Part of the chunks that have the longest length; the others spread evenly in the logarithm."""


class TurnMaker:
    """Makes turns of the training split, with a boxed answer, for the policies `overwrite` and `gated`.

    A gated turn has the memory name what is looked for at the first chunk; from then on it is kept by a word, but
    where the needle is met.
    """

    def __init__(self, tokenizer: Tokenizer, streams: Sequence[tuple[float, Stream]]) -> None:
        """Takes the tokeniser of the model folder, and the streams with their shares."""
        self._tokenizer = tokenizer
        self._prompts = self._tokens_of(DEFAULT_PROMPTS)
        self._gated = self._tokens_of(GATED_PROMPTS)
        self._first = list(self._prompts.first_memory.token_ids)
        self._shares = [share for share, _ in streams]
        self._streams = [stream for _, stream in streams]
        self._end = [tokenizer.end_token_id or 0]

    def turns(self, rng: random.Random, mixture: TurnMixture) -> Iterator[Example]:
        """Endless turns drawn from a mixture."""
        while True:
            gated = rng.random() < mixture.gated_share
            weights = mixture.gated_weights if gated else mixture.weights
            kind = rng.choices(list(weights), list(weights.values()))[0]
            yield self.turn(rng, kind, num_tokens=_chunk_tokens(rng, mixture), gated=gated)

    def turn(self, rng: random.Random, kind: ExampleKind, *, num_tokens: int, gated: bool = False) -> Example:
        """One turn of a kind, with a chunk of this many tokens where it has one, in the gated prompt set or not."""
        needle = make_needle(rng, split=Split.TRAINING)
        values = {Slot.QUESTION: self._tokenizer.encode(needle.question)}
        if kind not in (ExampleKind.ANSWER, ExampleKind.UNANSWERED):
            values[Slot.CHUNK] = self._chunk(rng, kind, needle, num_tokens=num_tokens)
        if kind in (ExampleKind.DIRECT, ExampleKind.ABSENT):
            statement = needle.note if kind is ExampleKind.DIRECT else needle.blank
            target = f"{statement} {_boxed(needle, stated=kind is ExampleKind.DIRECT)}"
            return self._example(kind, self._prompts.direct.fill(values), target)
        values[Slot.MEMORY] = self._memory(rng, kind, needle)
        if kind in (ExampleKind.ANSWER, ExampleKind.UNANSWERED):
            return self._example(
                kind, self._prompts.answer.fill(values), _boxed(needle, stated=kind is ExampleKind.ANSWER)
            )
        target = needle.blank if kind is ExampleKind.NOTHING else needle.note
        if not gated:
            return self._example(kind, self._prompts.update.fill(values), target)
        if kind is not ExampleKind.FIND and values[Slot.MEMORY] != self._first:
            target = self._gated.keep_word
        return self._example(kind, self._gated.update.fill(values), target, first_weight=GATE_WEIGHT)

    def _tokens_of(self, prompt_set: PromptSet) -> PromptTokens:
        return self._tokenizer.prompt_tokens(prompt_set, answer_form=AnswerForm.BOXED)

    def _example(self, kind: ExampleKind, prompt: list[int], target: str, *, first_weight: float = 1.0) -> Example:
        completion = self._tokenizer.encode(target) + self._end
        return Example(kind=kind, prompt=prompt, target=completion, first_weight=first_weight)

    def _memory(self, rng: random.Random, kind: ExampleKind, needle: Needle) -> list[int]:
        """What is noted before the turn; now and then a value that was cut where the chunk before ended."""
        if kind in (ExampleKind.RETAIN, ExampleKind.CONFIRM, ExampleKind.ANSWER):
            return self._tokenizer.encode(needle.note)
        if kind is ExampleKind.FIND and rng.random() < CUT_SHARE:
            lost = rng.randint(1, len(needle.answer) - 1)
            return self._tokenizer.encode(needle.note.removesuffix(".")[:-lost] + ".")
        return self._first if rng.random() < FIRST_SHARE else self._tokenizer.encode(needle.blank)

    def _chunk(self, rng: random.Random, kind: ExampleKind, needle: Needle, *, num_tokens: int) -> list[int]:
        rivals = [make_rival(rng, needle, split=Split.TRAINING).sentence for _ in range(_num_rivals(rng, num_tokens))]
        sentences = [needle.sentence] * (kind in (ExampleKind.FIND, ExampleKind.CONFIRM, ExampleKind.DIRECT)) + rivals
        inserts = [self._tokenizer.encode(rng.choice((" ", "\n")) + sentence) for sentence in sentences]
        stream = rng.choices(self._streams, self._shares)[0]
        chunk = slice_chunk(rng, stream, inserts, num_tokens=num_tokens)
        if rng.random() < 0.05:
            cut = needle.sentence if rng.random() < 0.5 else make_rival(rng, needle, split=Split.TRAINING).sentence
            chunk = _with_cut(rng, chunk, self._tokenizer.encode(" " + cut))
        return chunk


def _boxed(needle: Needle, *, stated: bool) -> str:
    return f"\\boxed{{{needle.answer if stated else NOT_STATED}}}"


def _with_cut(rng: random.Random, chunk: list[int], sentence: list[int]) -> list[int]:
    """The chunk with the last part of a sentence at its beginning, or with a first part, value cut, at its end."""
    if rng.random() < 0.5:
        return sentence[rng.randint(len(sentence) // 2, len(sentence) - 1) :] + chunk
    return chunk + sentence[: rng.randint(1, len(sentence) - 3)]


def _num_rivals(rng: random.Random, num_tokens: int) -> int:
    """None in a third of the chunks, else up to four, fewer in short ones."""
    most = 1 if num_tokens < 120 else 2 if num_tokens < 240 else 4
    return 0 if rng.random() < 0.3 else rng.randint(1, most)


def _chunk_tokens(rng: random.Random, mixture: TurnMixture) -> int:
    if rng.random() < mixture.long_share:
        return mixture.longest_tokens
    growth: float = (mixture.longest_tokens / mixture.shortest_tokens) ** rng.random()
    return round(mixture.shortest_tokens * growth)
