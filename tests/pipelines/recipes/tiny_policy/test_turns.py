import random
from itertools import islice

import numpy as np
import pytest

from memagent_batch.engines.tokenizer import Tokenizer
from pipelines.recipes.tiny_policy.schedule import phases
from pipelines.recipes.tiny_policy.streams import Stream
from pipelines.recipes.tiny_policy.turns import GATE_WEIGHT, ExampleKind, TurnMaker


@pytest.fixture
def maker(tiny_tokenizer: Tokenizer) -> TurnMaker:
    tokens = np.full(500, tiny_tokenizer.encode(" the")[0], np.int32)
    return TurnMaker(tiny_tokenizer, [(1.0, Stream(tokens=tokens, borders=np.arange(0, 500, 10)))])


@pytest.mark.parametrize("kind", [ExampleKind.RETAIN, ExampleKind.CONFIRM])
def test_gated_turn_without_news_writes_the_keep_word(
    kind: ExampleKind, maker: TurnMaker, tiny_tokenizer: Tokenizer
) -> None:
    gated = maker.turn(random.Random(1), kind, num_tokens=60, gated=True)
    written = maker.turn(random.Random(1), kind, num_tokens=60)
    assert list(gated.target) == [*tiny_tokenizer.encode("keep"), tiny_tokenizer.end_token_id]
    assert len(written.target) > len(gated.target)
    assert (gated.first_weight, written.first_weight) == (GATE_WEIGHT, 1.0)


def test_gated_turn_that_meets_the_fact_writes_what_overwrite_writes(maker: TurnMaker) -> None:
    gated = maker.turn(random.Random(2), ExampleKind.FIND, num_tokens=60, gated=True)
    assert gated.target == maker.turn(random.Random(2), ExampleKind.FIND, num_tokens=60).target


def test_gated_turn_names_what_is_looked_for_at_the_first_chunk_alone(
    maker: TurnMaker, tiny_tokenizer: Tokenizer
) -> None:
    rng = random.Random(3)
    turns = [maker.turn(rng, ExampleKind.NOTHING, num_tokens=60, gated=True) for _ in range(40)]
    texts = [
        (tiny_tokenizer.decode(list(turn.prompt)), tiny_tokenizer.decode(list(turn.target[:-1]))) for turn in turns
    ]
    assert {target == "keep" for _, target in texts} == {True, False}
    for prompt, target in texts:
        assert (target == "keep") == ("<memory>\nNothing noted yet.\n</memory>" not in prompt)


def test_phases_teach_every_kind_of_turn(maker: TurnMaker) -> None:
    first = next(phases(maker, random.Random(4), seconds=1.0))
    drawn = islice(first.steps, 30)
    assert {kind for batches in drawn for batch in batches for kind in batch.kinds} == set(ExampleKind)
