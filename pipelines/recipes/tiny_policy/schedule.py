"""The phases of the tiny policy's training: reading with ever longer chunks; the start weights copy already."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelines.recipes.tiny_policy.examples import Aside, Branch, Example, PaddedExamples, make_batches
from pipelines.recipes.tiny_policy.lessons.closings import ClosingMaker
from pipelines.recipes.tiny_policy.lessons.turns import Lengths, TurnMaker
from pipelines.recipes.tiny_policy.training import Phase

POOL_EXAMPLES = 48
"""Examples that are sorted by length together."""

SHORTEST_CHUNK_TOKENS = 40
"""Shortest chunk: the last one of a document is often short."""

CHOICE_WEIGHT = 8.0
"""Weight of the first token of a closing turn, mostly the only one, and of all tokens where it writes the numbers of
sentences. At 6, all closing turns together were a twentieth of a step, and three hundred steps taught none of them."""


FOUND_WEIGHT, LINE_WEIGHT = 4.0, 0.4
"""Weights of what is told at the ends of the lines of a closing turn's list: that a line is meant, and all else.
No engine writes it. From the chosen number alone, ten thousand turns did not teach the choice."""

CLOSING_SHARES = {"support": 0.3, "value text": 0.1, "value number": 0.1, "value bool": 0.3}
"""Parts of the closing turns that are learnt from, by the beginning of their kinds: these are easy, and many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stretch of learning."""

    name: str
    """Name in the log."""
    part: float
    """Part of the whole time."""
    longest_tokens: int
    """Longest chunk."""
    long_share: float
    """Part of the chunks that are that long."""
    num_questions: int
    """Questions to a section that is shown first."""
    shared_tokens: int
    """Tokens of such sections in a step, with their questions, for each process."""
    single_tokens: int
    """Tokens of prompts with the question before the section."""
    answer_tokens: int
    """Tokens of answer turns, and as many of merge turns."""
    closing_tokens: int
    """Tokens of closing turns."""
    first_rate: float
    """Learning rate at the start."""
    last_rate: float
    """Learning rate at the end."""


STAGES = (
    Stage(
        name="short",
        part=0.15,
        longest_tokens=220,
        long_share=0.0,
        num_questions=8,
        shared_tokens=4_500,
        single_tokens=1_600,
        answer_tokens=1_000,
        closing_tokens=6_000,
        first_rate=1.5e-3,
        last_rate=1.2e-3,
    ),
    Stage(
        name="closing",
        part=0.2,
        longest_tokens=160,
        long_share=0.0,
        num_questions=8,
        shared_tokens=2_000,
        single_tokens=700,
        answer_tokens=600,
        closing_tokens=8_500,
        first_rate=1.5e-3,
        last_rate=1.2e-3,
    ),
    Stage(
        name="middle",
        part=0.2,
        longest_tokens=520,
        long_share=0.1,
        num_questions=12,
        shared_tokens=6_000,
        single_tokens=2_400,
        answer_tokens=1_000,
        closing_tokens=5_600,
        first_rate=1.2e-3,
        last_rate=8e-4,
    ),
    Stage(
        name="near",
        part=0.15,
        longest_tokens=320,
        long_share=0.1,
        num_questions=8,
        shared_tokens=6_000,
        single_tokens=9_000,
        answer_tokens=800,
        closing_tokens=5_600,
        first_rate=8e-4,
        last_rate=6e-4,
    ),
    Stage(
        name="long",
        part=0.3,
        longest_tokens=1_040,
        long_share=0.3,
        num_questions=16,
        shared_tokens=8_000,
        single_tokens=6_500,
        answer_tokens=1_000,
        closing_tokens=5_600,
        first_rate=6e-4,
        last_rate=5e-5,
    ),
)
"""Chunks grow, and the learning rate falls. Closing turns come in early, in a stretch that is mostly theirs. Before the
longest chunks come many short ones, where keys that share a part are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Makers:
    """What makes the examples."""

    turns: TurnMaker
    """Turns of reading."""
    closings: ClosingMaker
    """Closing turns."""


def phases(makers: Makers, rng: random.Random, *, seconds: float) -> Iterator[Phase]:
    """The phases in order.

    Args:
        makers: make the examples.
        rng: source of every choice.
        seconds: wall clock of all phases together.
    """
    for stage in STAGES:
        yield Phase(
            name=stage.name,
            steps=_steps(makers, rng, stage),
            seconds=stage.part * seconds,
            first_rate=stage.first_rate,
            last_rate=stage.last_rate,
        )


def _steps(makers: Makers, rng: random.Random, stage: Stage) -> Iterator[Sequence[PaddedExamples]]:
    """For each step a batch of each kind."""
    lengths = Lengths(
        shortest_tokens=SHORTEST_CHUNK_TOKENS, longest_tokens=stage.longest_tokens, long_share=stage.long_share
    )
    turns = makers.turns
    sources = (
        (turns.shared_sections(rng, lengths, num_questions=stage.num_questions), stage.shared_tokens),
        (turns.single_sections(rng, lengths), stage.single_tokens),
        (turns.answers(rng, num=stage.answer_tokens // 100), stage.answer_tokens),
        (turns.merges(rng, num=stage.answer_tokens // 150), stage.answer_tokens),
        (_closings(makers.closings, rng, longest_tokens=stage.longest_tokens + 200), stage.closing_tokens),
    )
    batches = [make_batches(source, rng, batch_tokens=tokens, pool=POOL_EXAMPLES) for source, tokens in sources]
    return zip(*batches, strict=False)


def _closings(maker: ClosingMaker, rng: random.Random, *, longest_tokens: int) -> Iterator[Example]:
    for turn in maker.turns(rng):
        share = next((share for kind, share in CLOSING_SHARES.items() if turn.kind.startswith(kind)), 1.0)
        if len(turn.prompt) <= longest_tokens and rng.random() < share:
            target = maker.completion(turn)
            branch = Branch(
                kind=turn.kind,
                prompt=turn.prompt[1:],
                target=target,
                weights=(CHOICE_WEIGHT,) * (len(target) if turn.kind.startswith("evidence") else 1),
                asides=tuple(
                    Aside(
                        place=mark.place - 1, target=mark.token_id, weight=FOUND_WEIGHT if mark.found else LINE_WEIGHT
                    )
                    for mark in maker.marks(turn)
                ),
            )
            yield Example(prefix=turn.prompt[:1], branches=(branch,))
