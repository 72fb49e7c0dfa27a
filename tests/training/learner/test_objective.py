import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from memagent_batch.config.training import LearnerConfig
from memagent_batch.errors import InputError
from memagent_batch.training.learner import learner as learners
from memagent_batch.training.learner.batches import Conversation, batches, conversations
from memagent_batch.training.learner.learner import Learner

pytestmark = pytest.mark.usefixtures("one_thread")
VOCABULARY = 13


def network_of(seed: int) -> Any:
    """A GPT-2 of two small layers with random weights, all of it in float64, which Qwen2's norms are not."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=64)
    network = GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.3)
    return network


NETWORK, REFERENCE = network_of(1), network_of(2)


def all_logprobs(network: Any, item: Conversation) -> torch.Tensor:
    """Log-probabilities of the response's tokens, by a forward over this conversation alone."""
    told = torch.tensor([[*item.prompt, *item.response]])
    every = network(told).logits[0, len(item.prompt) - 1 : -1].log_softmax(-1)
    return torch.stack([every[place, int(token)] for place, token in enumerate(item.response)])


def reference_loss(
    items: Sequence[Conversation],
    *,
    low: float,
    high: float,
    weight: float,
    dual: float | None = 3.0,
    limit: float | None = 10.0,
) -> torch.Tensor:
    """The objective, token by token, as the docs write it."""
    terms = []
    for item in items:
        for place, now in enumerate(all_logprobs(NETWORK, item)):
            if item.mask[place]:
                ratio = torch.exp(now - float(item.logprobs[place]))
                clipped = ratio.clamp(1 - low, 1 + high)
                term = -min(ratio * item.advantage, clipped * item.advantage)
                gap = all_logprobs(REFERENCE, item)[place].detach() - now
                if dual is not None and item.advantage < 0 and float(term.detach()) > -dual * item.advantage:
                    term = torch.tensor(-dual * item.advantage, dtype=torch.float64)
                estimate = torch.exp(gap) - gap - 1
                if limit is not None and float(estimate.detach()) > limit:
                    estimate = torch.tensor(limit, dtype=torch.float64)
                terms.append(term + weight * estimate)
    return torch.stack(terms).sum() / len(terms)


def conversation(rng: np.random.Generator, *, spread: float, masked: float) -> Conversation:
    """Random tokens; drawn log-probabilities are `spread` nats away from those now, to either side."""
    num_prompt, num_response = rng.integers(1, 9), rng.integers(1, 6)
    item = Conversation(
        prompt=rng.integers(0, VOCABULARY, num_prompt),
        response=rng.integers(0, VOCABULARY, num_response),
        logprobs=np.zeros(num_response),
        mask=(rng.random(num_response) >= masked).astype(np.int8),
        advantage=float(rng.normal()),
    )
    with torch.no_grad():
        now = all_logprobs(NETWORK, item).numpy()
    drawn = now.astype(np.float32) + rng.normal(size=num_response).astype(np.float32) * np.float32(spread)
    return Conversation(
        prompt=item.prompt, response=item.response, logprobs=drawn, mask=item.mask, advantage=item.advantage
    )


def gradients() -> torch.Tensor:
    return torch.cat([weight.grad.flatten() for weight in NETWORK.parameters()])


def learner(**settings: Any) -> Learner:
    chosen = LearnerConfig(**settings)
    NETWORK.zero_grad()
    return Learner(NETWORK, reference=REFERENCE if chosen.kl_weight else None, settings=chosen)


@pytest.mark.parametrize("in_trees", [False, True])
@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize("spread", [0.1, 2.0])
@pytest.mark.parametrize(("high", "batch_tokens", "masked"), [(0.2, 1, 0.0), (0.28, 15, 0.4), (0.2, 1000, 0.4)])
def test_learner_loss_and_gradient_equal_the_formula(
    spread: float,
    masked: float,
    weight: float,
    high: float,
    batch_tokens: int,
    in_trees: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if in_trees:
        monkeypatch.setattr(learners, "TREE_MODELS", {"gpt2"})
    rng = np.random.default_rng([int(10 * spread), int(1000 * weight), batch_tokens])
    items = [conversation(rng, spread=spread, masked=masked) for _ in range(4)]
    items = [item for item in items if item.mask.any()] or [conversation(rng, spread=spread, masked=0.0)]
    items += [replace(item, advantage=-0.5, logprobs=item.logprobs + np.float32(0.1)) for item in items[:2]]
    items += [replace(item, prompt=items[0].prompt, advantage=0.4) for item in items[1:3]]
    sums = learner(kl_weight=weight, clip_low=0.2, clip_high=high, batch_tokens=batch_tokens).accumulate(items)
    found = gradients()
    NETWORK.zero_grad()
    loss = reference_loss(items, low=0.2, high=high, weight=weight)
    loss.backward()
    assert sums["loss"] == pytest.approx(float(loss.detach()), abs=1e-9)
    assert torch.allclose(found, gradients(), atol=1e-9)


@pytest.mark.parametrize(
    ("dual", "limit"), [(3.0, 10.0), (None, None), (1.5, None), (None, 0.05), (1.5, 0.05)], ids=str
)
def test_learner_dual_clip_and_divergence_limit_equal_the_formula(dual: float | None, limit: float | None) -> None:
    rng = np.random.default_rng(17)
    items = [conversation(rng, spread=2.0, masked=0.0) for _ in range(8)]
    items = [replace(item, advantage=-abs(item.advantage)) for item in items[:5]] + items[5:]
    learner(kl_weight=0.5, dual_clip=dual, kl_limit=limit, batch_tokens=15).accumulate(items)
    found = gradients()
    NETWORK.zero_grad()
    reference_loss(items, low=0.2, high=0.2, weight=0.5, dual=dual, limit=limit).backward()
    assert torch.allclose(found, gradients(), atol=1e-9)
    if (dual, limit) != (None, None):
        NETWORK.zero_grad()
        reference_loss(items, low=0.2, high=0.2, weight=0.5, dual=None, limit=None).backward()
        assert not torch.allclose(found, gradients(), atol=1e-3)


@pytest.mark.parametrize(
    ("advantage", "drawn_lower", "clipped"), [(1.0, 1.0, 1), (1.0, -1.0, 0), (-1.0, 1.0, 0), (-1.0, -1.0, 1)]
)
def test_learner_clips_only_what_has_moved_far_enough_already(
    advantage: float, drawn_lower: float, clipped: int
) -> None:
    item = conversation(np.random.default_rng(5), spread=0.0, masked=0.0)
    moved = Conversation(
        prompt=item.prompt,
        response=item.response[:1],
        logprobs=item.logprobs[:1] - np.float32(drawn_lower),
        mask=np.ones(1, np.int8),
        advantage=advantage,
    )
    sums = learner(kl_weight=0.0).accumulate([moved])
    assert sums["clipped"] == clipped
    assert bool(gradients().abs().max() == 0) == bool(clipped)
    bound = {1.0: 1.2, -1.0: 0.8}[drawn_lower] if clipped else math.exp(drawn_lower)
    assert sums["loss"] == pytest.approx(-advantage * bound, rel=1e-6)


def test_text_that_no_network_drew_is_learnt_by_its_log_likelihood() -> None:
    items = [conversation(np.random.default_rng(seed), spread=0.0, masked=0.3) for seed in range(3)]
    items = [replace(item, advantage=1.0, logprobs=np.full_like(item.logprobs, np.nan)) for item in items]
    sums = learner(kl_weight=0.0, batch_tokens=15).accumulate(items)
    found = gradients()
    NETWORK.zero_grad()
    learnt = [all_logprobs(NETWORK, item)[torch.from_numpy(item.mask != 0)] for item in items]
    negative_log_likelihood = -torch.cat(learnt).mean()
    negative_log_likelihood.backward()
    assert torch.allclose(found, gradients(), atol=1e-9)
    assert sums["nll"] == pytest.approx(float(negative_log_likelihood.detach()), abs=1e-9)


def test_drawn_log_probability_that_is_no_number_is_refused() -> None:
    columns = {"prompt_token_ids": [[1]], "response_token_ids": [[2]], "response_mask": [[1]], "advantage": [0.5]}
    with pytest.raises(InputError, match="a log-probability is not a number"):
        conversations(pa.table({**columns, "response_logprobs": [[math.nan]]}))


def test_batches_keep_every_conversation_within_the_tokens() -> None:
    rng = np.random.default_rng(3)
    items = [conversation(rng, spread=0.0, masked=0.0) for _ in range(30)]
    made = list(batches(items, batch_tokens=40))
    assert sum(len(batch.tokens) for batch in made) == 30
    assert max(batch.tokens.numel() for batch in made) <= 40
    assert sum(int(batch.mask.sum()) for batch in made) == sum(len(item.response) for item in items)


def test_batches_show_the_network_a_text_once_however_often_it_was_drawn() -> None:
    rng = np.random.default_rng(6)
    first, second = (conversation(rng, spread=0.0, masked=0.0) for _ in range(2))
    again = replace(first, advantage=-first.advantage)
    (batch,) = batches([first, second, again], batch_tokens=40)
    assert (len(batch.tokens), len(batch.logprobs)) == (2, 3)
    (alone,) = batches([again] * 8, batch_tokens=1)
    assert (len(alone.tokens), len(alone.advantages)) == (1, 8)


def test_batches_of_trees_hold_a_start_that_texts_share_once() -> None:
    rng = np.random.default_rng(8)
    one, other = (conversation(rng, spread=0.0, masked=0.0) for _ in range(2))
    items = [replace(each, prompt=np.array([*range(12), end])) for each in (one, other) for end in (1, 2)]
    (batch,) = batches(items, batch_tokens=100, in_trees=True)
    assert batch.tokens.numel() <= 12 + sum(1 + len(item.response) for item in items)
    assert len(batch.sources) == sum(len(item.response) for item in items)
