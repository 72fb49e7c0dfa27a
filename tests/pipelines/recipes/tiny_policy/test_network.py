import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pipelines.recipes.tiny_policy.examples import (
    IGNORED,
    Aside,
    Branch,
    Example,
    PaddedExamples,
    make_batches,
    pad_examples,
)
from pipelines.recipes.tiny_policy.network import build_network, load_network, logits_at
from pipelines.recipes.tiny_policy.training import exact_branches
from pipelines.recipes.tiny_policy.vocabulary import VOCABULARY_SIZE

pytestmark = pytest.mark.usefixtures("one_thread")

NETWORK = build_network(seed=0, end_token_id=2, pad_token_id=0)


def draw(rng: random.Random, num_tokens: int) -> list[int]:
    return [rng.randrange(3, VOCABULARY_SIZE) for _ in range(num_tokens)]


def example(prompt: list[int], target: list[int], *, kind: str = "any") -> Example:
    return Example(prefix=prompt[:-1], branches=(Branch(kind=kind, prompt=prompt[-1:], target=target),))


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
        yield example(context, part[cue:])


def two_facts(rng: random.Random) -> Example:
    """Two facts that differ in key and value; between these stand the same four tokens. The first key is asked for."""
    start, link = draw(rng, 4), draw(rng, 4)
    keys, values = (draw(rng, 3), draw(rng, 3)), (draw(rng, 1), draw(rng, 1))
    facts = [start + key + link + value for key, value in zip(keys, values, strict=True)]
    asked = rng.randrange(2)
    context = draw(rng, 30) + facts[0] + draw(rng, 20) + facts[1] + draw(rng, 20)
    return example(context + start + keys[asked] + link, values[asked])


def share_predicted(batch: PaddedExamples) -> float:
    with torch.inference_mode():
        predicted = logits_at(NETWORK, batch).argmax(-1)
    learnt = batch.targets != IGNORED
    return float((predicted == batch.targets)[learnt].float().mean())


def branched(rng: random.Random) -> list[Example]:
    """Prompts of different lengths that share a beginning, three of each."""
    return [
        Example(
            prefix=draw(rng, 20 + 9 * row),
            branches=tuple(
                Branch(kind=f"{row} {n}", prompt=draw(rng, 4 + 3 * n), target=draw(rng, 2 + n)) for n in range(3)
            ),
        )
        for row in range(4)
    ]


def test_logits_of_branches_equal_those_that_engines_compute_for_whole_prompts() -> None:
    examples = branched(random.Random(5))
    batch = pad_examples(examples)
    owners = batch.owners.gather(1, batch.places)
    with torch.inference_mode():
        logits = logits_at(NETWORK, batch)
        for each in examples:
            for branch in each.branches:
                whole = torch.tensor([[*each.prefix, *branch.prompt, *branch.target[:-1]]])
                theirs = NETWORK(whole).logits[0, -len(branch.target) :]
                is_own = (owners == batch.kinds.index(branch.kind)) & (batch.targets != IGNORED)
                assert torch.allclose(logits[is_own], theirs, atol=1e-3)
                assert batch.targets[is_own].tolist() == list(branch.target)


def test_branches_are_exact_where_every_token_is_the_likeliest() -> None:
    examples = branched(random.Random(6))
    batch = pad_examples(examples)
    logits = torch.nn.functional.one_hot(batch.targets.clamp(min=0), VOCABULARY_SIZE).float()
    row, place = torch.nonzero(batch.targets != IGNORED)[0].tolist()
    logits[row, place] = 0.0
    wrong = int(batch.owners[row, batch.places[row, place]])
    exact = exact_branches(logits, batch).tolist()
    assert [number for number, is_exact in enumerate(exact) if not is_exact] == [wrong]


def test_asides_are_learnt_where_they_stand_and_decide_no_exactness() -> None:
    rng = random.Random(9)
    prompt = draw(rng, 20)
    asides = tuple(Aside(place=place, target=target, weight=0.5) for place, target in ((3, 70), (11, 71)))
    branch = Branch(kind="any", prompt=prompt[1:], target=[80, 81], weights=(8.0,), asides=asides)
    batch = pad_examples([*branched(rng), Example(prefix=prompt[:1], branches=(branch,))])
    told = torch.nonzero(~batch.written & (batch.targets != IGNORED)).tolist()
    with torch.inference_mode():
        logits = logits_at(NETWORK, batch)
        theirs = NETWORK(torch.tensor([prompt])).logits[0, [4, 12]]
    assert torch.allclose(torch.stack([logits[row, place] for row, place in told]), theirs, atol=1e-3)
    assert [float(batch.weights[row, place]) for row, place in told] == [0.5, 0.5]
    hits = torch.nn.functional.one_hot(batch.targets.clamp(min=0), VOCABULARY_SIZE).float()
    for row, place in told:
        hits[row, place] = 0.0
    assert exact_branches(hits, batch).all()


def test_gradients_in_bfloat16_point_where_those_in_float32_do() -> None:
    batch = pad_examples(branched(random.Random(7)))
    gradients = []
    for dtype in (torch.float32, torch.bfloat16):
        NETWORK.zero_grad()
        logits_at(NETWORK, batch, dtype=dtype).logsumexp(-1).sum().backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in NETWORK.parameters()]))
    NETWORK.zero_grad(set_to_none=True)
    assert float(torch.nn.functional.cosine_similarity(*gradients, dim=0)) > 0.98


def test_network_of_fewer_layers_grows_without_a_change_of_what_it_computes(tmp_path: Path) -> None:
    network = build_network(seed=1, end_token_id=2, pad_token_id=0)
    del network.model.layers[4:]
    network.config.num_hidden_layers = 4
    network.config.layer_types = network.config.layer_types[:4]
    network.save_pretrained(tmp_path)
    grown = load_network(tmp_path, end_token_id=2, pad_token_id=0)
    tokens = torch.tensor([draw(random.Random(8), 40)])
    with torch.inference_mode():
        assert torch.allclose(network(tokens).logits, grown(tokens).logits, atol=1e-5)
    assert len(grown.model.layers) > 4


def test_start_weights_on_recurring_random_tokens_copy_most_of_them() -> None:
    examples = copying_examples(random.Random(0), length=160)

    assert share_predicted(pad_examples([next(examples) for _ in range(16)])) > 0.7


def test_start_weights_on_two_facts_tell_the_value_of_the_key_asked_for() -> None:
    rng = random.Random(1)

    assert share_predicted(pad_examples([two_facts(rng) for _ in range(32)])) > 0.8


@pytest.mark.parametrize("batch_tokens", [400, 2_000])
def test_batches_of_mixed_lengths_keep_to_their_size(batch_tokens: int) -> None:
    rng = random.Random(2)
    examples = (example([4] * rng.randint(10, 200), [5]) for _ in range(600))

    made = [
        batch
        for batch, _ in zip(make_batches(examples, rng, batch_tokens=batch_tokens, pool=100), range(20), strict=False)
    ]

    assert all(batch.prefix.numel() <= batch_tokens + 32 * len(batch.kinds) for batch in made)
    assert sum(len(batch.kinds) for batch in made) > 20
