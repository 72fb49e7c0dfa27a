"""The phases of the tiny policy's training: reading with ever longer chunks; the start weights copy already."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelines.recipes.tiny_policy.examples import PaddedExamples, make_batches
from pipelines.recipes.tiny_policy.training import Phase
from pipelines.recipes.tiny_policy.turns import ExampleKind, TurnMaker, TurnMixture

POOL_EXAMPLES = 160
"""Examples that are sorted by length together."""

ANSWER_BATCH_TOKENS = 700
"""Tokens of answer turns in each step: some six turns."""

UPDATES = {
    ExampleKind.FIND: 0.31,
    ExampleKind.RETAIN: 0.32,
    ExampleKind.NOTHING: 0.28,
    ExampleKind.CONFIRM: 0.04,
    ExampleKind.DIRECT: 0.03,
    ExampleKind.ABSENT: 0.02,
}
"""Share of each kind among the turns that show a chunk."""

GATED_UPDATES = {
    ExampleKind.FIND: 0.4,
    ExampleKind.RETAIN: 0.14,
    ExampleKind.NOTHING: 0.4,
    ExampleKind.CONFIRM: 0.06,
}
"""The same for gated turns: a memory that has its fact is kept by one word for every chunk."""

GATED_SHARE = 0.5
"""Part of the turns with a chunk that are gated."""

ANSWERS = {ExampleKind.ANSWER: 0.85, ExampleKind.UNANSWERED: 0.15}
"""Share of each kind among `answer` turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stretch of learning to read."""

    name: str
    """Name in the log."""
    part: float
    """Part of the whole time."""
    longest_tokens: int
    """Longest chunk."""
    long_share: float
    """Part of the chunks that are that long."""
    batch_tokens: int
    """Tokens of a batch, for each process."""
    first_rate: float
    """Learning rate at the start."""
    last_rate: float
    """Learning rate at the end."""


STAGES = (
    Stage(
        name="short",
        part=3 / 14,
        longest_tokens=220,
        long_share=0.0,
        batch_tokens=6_000,
        first_rate=2e-3,
        last_rate=1.5e-3,
    ),
    Stage(
        name="middle",
        part=5 / 14,
        longest_tokens=560,
        long_share=0.1,
        batch_tokens=8_000,
        first_rate=1.5e-3,
        last_rate=8e-4,
    ),
    Stage(
        name="long",
        part=6 / 14,
        longest_tokens=1_040,
        long_share=0.35,
        batch_tokens=10_000,
        first_rate=1e-3,
        last_rate=5e-5,
    ),
)
"""Chunks grow, and the learning rate falls."""

SHORTEST_CHUNK_TOKENS = 40
"""Shortest chunk: the last one of a document is often short."""


def phases(maker: TurnMaker, rng: random.Random, *, seconds: float) -> Iterator[Phase]:
    """The phases in order.

    Args:
        maker: makes the turns.
        rng: source of every choice.
        seconds: wall clock of all phases together.
    """
    for stage in STAGES:
        yield reading_phase(maker, rng, stage, seconds=stage.part * seconds)


def reading_phase(maker: TurnMaker, rng: random.Random, stage: Stage, *, seconds: float) -> Phase:
    """Turns with chunks up to a length."""
    mixture = TurnMixture(
        weights=UPDATES,
        gated_weights=GATED_UPDATES,
        gated_share=GATED_SHARE,
        shortest_tokens=SHORTEST_CHUNK_TOKENS,
        longest_tokens=stage.longest_tokens,
        long_share=stage.long_share,
    )
    return Phase(
        name=stage.name,
        steps=_steps(maker, rng, mixture, batch_tokens=stage.batch_tokens),
        seconds=seconds,
        first_rate=stage.first_rate,
        last_rate=stage.last_rate,
    )


def _steps(
    maker: TurnMaker, rng: random.Random, mixture: TurnMixture, *, batch_tokens: int
) -> Iterator[Sequence[PaddedExamples]]:
    """A batch of `update` turns and a small one of `answer` turns for each step."""
    answering = TurnMixture(
        weights=ANSWERS, gated_weights={}, gated_share=0.0, shortest_tokens=1, longest_tokens=1, long_share=1.0
    )
    updates = make_batches(maker.turns(rng, mixture), rng, batch_tokens=batch_tokens, pool=POOL_EXAMPLES)
    answers = make_batches(maker.turns(rng, answering), rng, batch_tokens=ANSWER_BATCH_TOKENS, pool=60)
    return zip(updates, answers, strict=False)
