import random
from collections.abc import Iterator

import pytest
import torch

from pipelines.recipes.tiny_policy.examples import IGNORED, Example, PaddedExamples, make_batches, pad_examples
from pipelines.recipes.tiny_policy.network import build_network, logits_at
from pipelines.recipes.tiny_policy.vocabulary import VOCABULARY_SIZE

pytestmark = pytest.mark.usefixtures("one_thread")

NETWORK = build_network(seed=0, end_token_id=2, pad_token_id=0)


def draw(rng: random.Random, num_tokens: int) -> list[int]:
    return [rng.randrange(3, VOCABULARY_SIZE) for _ in range(num_tokens)]


def copying_examples(rng: random.Random, *, length: int) -> Iterator[Example]:
    """Endless sequences of this many tokens: filler, a part, filler, a cue, and the part again to be predicted."""
    while True:
        part = draw(rng, rng.randint(12, 40))
        rival = part[: rng.randint(2, 5)] + draw(rng, rng.randint(4, 20))
        middle = [draw(rng, rng.randint(0, length // 4)), part, draw(rng, rng.randint(1, length // 4))]
        if rng.random() < 0.5:
            middle += [rival, draw(rng, rng.randint(1, 20))]
        cue = rng.randint(2, 3) if middle[-2] is part else 7
        context = [token for piece in middle for token in piece]
        context = draw(rng, max(length - len(context) - len(part), 0)) + context + part[:cue]
        yield Example(kind="copy", prompt=context, target=part[cue:])


def two_facts(rng: random.Random) -> Example:
    """Two facts that differ in key and value; between these stand the same four tokens. The first key is asked for."""
    start, link = draw(rng, 4), draw(rng, 4)
    keys, values = (draw(rng, 3), draw(rng, 3)), (draw(rng, 1), draw(rng, 1))
    facts = [start + key + link + value for key, value in zip(keys, values, strict=True)]
    asked = rng.randrange(2)
    context = draw(rng, 30) + facts[0] + draw(rng, 20) + facts[1] + draw(rng, 20)
    return Example(kind="fact", prompt=context + start + keys[asked] + link, target=values[asked])


def share_predicted(batch: PaddedExamples) -> float:
    with torch.inference_mode():
        predicted = logits_at(NETWORK, batch.tokens, batch.places).argmax(-1)
    learnt = batch.targets != IGNORED
    return float((predicted == batch.targets)[learnt].float().mean())


def test_logits_at_places_equal_the_ones_that_engines_compute() -> None:
    tokens = torch.tensor([draw(random.Random(row), 50) for row in range(3)])
    places = torch.tensor([[5, 20, 49]] * 3)

    with torch.inference_mode():
        ours = logits_at(NETWORK, tokens, places)
        theirs = NETWORK(tokens).logits[:, [5, 20, 49]]

    assert torch.allclose(ours, theirs, atol=1e-3)


def test_start_weights_on_recurring_random_tokens_copy_most_of_them() -> None:
    examples = copying_examples(random.Random(0), length=160)

    assert share_predicted(pad_examples([next(examples) for _ in range(16)])) > 0.7


def test_start_weights_on_two_facts_tell_the_value_of_the_key_asked_for() -> None:
    rng = random.Random(1)

    assert share_predicted(pad_examples([two_facts(rng) for _ in range(32)])) > 0.8


def test_batch_of_examples_asks_for_each_target_after_the_tokens_before_it() -> None:
    batch = pad_examples(
        [
            Example(kind="a", prompt=[5, 6, 7], target=[8, 9]),
            Example(kind="b", prompt=[10], target=[11, 12, 13], first_weight=8.0),
        ]
    )

    assert batch.tokens[:, :4].tolist() == [[5, 6, 7, 8], [10, 11, 12, 0]]
    assert batch.places.tolist() == [[2, 3, 3], [0, 1, 2]]
    assert batch.targets.tolist() == [[8, 9, IGNORED], [11, 12, 13]]
    assert batch.weights.tolist() == [[1.0, 1.0, 0.0], [8.0, 1.0, 1.0]]


@pytest.mark.parametrize("batch_tokens", [400, 2_000])
def test_batches_of_mixed_lengths_keep_to_their_size(batch_tokens: int) -> None:
    rng = random.Random(2)
    examples = (Example(kind="x", prompt=[4] * rng.randint(10, 200), target=[5]) for _ in range(600))

    made = [
        batch
        for batch, _ in zip(make_batches(examples, rng, batch_tokens=batch_tokens, pool=100), range(20), strict=False)
    ]

    assert all(batch.tokens.numel() <= batch_tokens + 32 * len(batch.kinds) for batch in made)
    assert sum(len(batch.kinds) for batch in made) > 20
