"""The tiny policy's network: a Qwen2 of six layers, and its training forward.

The forward gives logits at chosen places only, so that the last layer and the output layer run on a completion's few
tokens and not on its prompt of a thousand. It equals `transformers`' own, which inference engines use.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from pipelines.recipes.tiny_policy.examples import PaddedExamples
from pipelines.recipes.tiny_policy.start import grow_weights, start_weights
from pipelines.recipes.tiny_policy.vocabulary import MAX_LENGTH_TOKENS, VOCABULARY_SIZE

HIDDEN_SIZE = 128
NUM_HEADS = 4
NUM_LAYERS = 6
HEAD_SIZE = HIDDEN_SIZE // NUM_HEADS
"""32: the smallest that vLLM's CPU attention is known to take."""

ROPE_THETA = 1e6
"""Leaves half of a head's dimensions almost unturned over a prompt, to match content at any distance."""


def build_network(*, seed: int, end_token_id: int, pad_token_id: int) -> Any:
    """A fresh `Qwen2ForCausalLM` in float32."""
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=HIDDEN_SIZE,
        intermediate_size=2 * HIDDEN_SIZE,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=NUM_HEADS,
        num_key_value_heads=NUM_HEADS,
        max_position_embeddings=MAX_LENGTH_TOKENS,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        bos_token_id=None,
        eos_token_id=end_token_id,
        pad_token_id=pad_token_id,
    )
    network = Qwen2ForCausalLM(config)
    network.generation_config = GenerationConfig(eos_token_id=end_token_id, pad_token_id=pad_token_id, do_sample=False)
    start_weights(network, frequencies=rotary_frequencies())
    return network


def load_network(folder: Path, *, end_token_id: int, pad_token_id: int) -> Any:
    """The network of a folder; one with fewer layers is grown, and computes the same."""
    from transformers import Qwen2ForCausalLM

    network = Qwen2ForCausalLM.from_pretrained(folder)
    if len(network.model.layers) == NUM_LAYERS:
        return network
    grown = build_network(seed=0, end_token_id=end_token_id, pad_token_id=pad_token_id)
    grow_weights(grown, network, frequencies=rotary_frequencies())
    return grown


def logits_at(network: Any, batch: PaddedExamples, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Next-token logits at the places of each row.

    Args:
        network: a `Qwen2ForCausalLM`.
        batch: examples, whose branches see the prefix and themselves.
        dtype: number format of products; sums and what the layers hand on stay in float32.

    Returns:
        Logits of shape [batch, num_places, vocabulary].
    """
    model = network.model
    layout = _layout(batch, dtype=dtype)
    hidden = [functional.embedding(tokens, model.embed_tokens.weight) for tokens in (batch.prefix, batch.tokens)]
    joined = torch.cat([part.flatten(0, 1) for part in hidden])
    for layer in model.layers[:-1]:
        joined = _layer(layer, joined, layout)
    last = _last_layer(model.layers[-1], joined, layout, batch.places)
    return functional.linear(_normed(model.norm, last), model.embed_tokens.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What all layers share. Layers hold the tokens of all prefixes, then of all branches; shape [num_tokens, size]."""

    prefix: tuple[int, int]
    """Examples, and tokens of a prefix."""
    branches: tuple[int, int]
    """Branches, and tokens of each."""
    examples: Tensor
    """The example of each branch."""
    cos: Tensor
    """Rotary cosines by token; shape [num_tokens, 1, HEAD_SIZE]."""
    sin: Tensor
    """Rotary sines, the same."""
    mask: Tensor
    """What a branch token sees: 0, or minus infinity; shape [batch, 1, length, prefix_length + length]."""
    dtype: torch.dtype
    """Number format of products."""

    def split(self, heads: Tensor) -> tuple[Tensor, Tensor]:
        """Prefixes and branches, each of shape [rows, heads, tokens, HEAD_SIZE]."""
        num = self.prefix[0] * self.prefix[1]
        first, second = heads[:num], heads[num:]
        return first.unflatten(0, self.prefix).transpose(1, 2), second.unflatten(0, self.branches).transpose(1, 2)

    def behind_prefix(self, heads: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the prefixes, and those of each branch behind those of its prefix."""
        of_prefix, of_branches = self.split(heads)
        return of_prefix, torch.cat([of_prefix.index_select(0, self.examples), of_branches], dim=2)


def _layout(batch: PaddedExamples, *, dtype: torch.dtype) -> _Layout:
    prefix, branches = tuple(batch.prefix.shape), tuple(batch.tokens.shape)
    positions = torch.cat([torch.arange(prefix[1]).expand(prefix).flatten(), batch.positions.flatten()])
    is_hidden = torch.arange(prefix[1]) >= batch.prefix_lengths[batch.examples][:, None]
    is_other = batch.owners[:, :, None] != batch.owners[:, None, :]
    is_later = torch.ones(branches[1], branches[1], dtype=torch.bool).triu(1)
    is_unseen = torch.cat([is_hidden[:, None, :].expand(-1, branches[1], -1), is_other | is_later], dim=2)
    cos, sin = rotary_tables(int(positions.max()) + 1)
    return _Layout(
        prefix=(prefix[0], prefix[1]),
        branches=(branches[0], branches[1]),
        examples=batch.examples,
        cos=cos[positions][:, None].to(dtype),
        sin=sin[positions][:, None].to(dtype),
        mask=torch.zeros(is_unseen.shape, dtype=dtype).masked_fill(is_unseen, -torch.inf)[:, None],
        dtype=dtype,
    )


def rotary_tables(length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding, each of shape [length, HEAD_SIZE]."""
    angles = torch.arange(length)[:, None] * rotary_frequencies()[None, :]
    doubled = torch.cat([angles, angles], dim=-1)
    return doubled.cos(), doubled.sin()


def rotary_frequencies() -> Tensor:
    """Radians for each token of distance, by pair of dimensions; shape [HEAD_SIZE / 2]."""
    return ROPE_THETA ** (-torch.arange(0, HEAD_SIZE, 2, dtype=torch.float32) / HEAD_SIZE)


def _normed(norm: Any, hidden: Tensor) -> Tensor:
    return functional.rms_norm(hidden, (hidden.shape[-1],), norm.weight, norm.variance_epsilon)


def _heads(projected: Tensor) -> Tensor:
    return projected.unflatten(-1, (NUM_HEADS, HEAD_SIZE))


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat([-second, first], dim=-1) * sin


def _linear(inputs: Tensor, projections: Sequence[Any], dtype: torch.dtype) -> Tensor:
    """Several projections of one input at once."""
    weight = torch.cat([projection.weight for projection in projections]).to(dtype)
    biases = [projection.bias for projection in projections if projection.bias is not None]
    return functional.linear(inputs.to(dtype), weight, torch.cat(biases).to(dtype) if biases else None)


def _fed(layer: Any, hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """What the feed-forward part adds."""
    mlp = layer.mlp
    gate, up = _linear(_normed(layer.post_attention_layernorm, hidden), (mlp.gate_proj, mlp.up_proj), dtype).chunk(
        2, dim=-1
    )
    return _linear(functional.silu(gate) * up, (mlp.down_proj,), dtype).float()


def _layer(layer: Any, hidden: Tensor, layout: _Layout) -> Tensor:
    attention, dtype = layer.self_attn, layout.dtype
    normed = _normed(layer.input_layernorm, hidden)
    projected = _linear(normed, (attention.q_proj, attention.k_proj, attention.v_proj), dtype)
    query, key, value = (_heads(part) for part in projected.chunk(3, dim=-1))
    prefix_query, branch_query = layout.split(_rotated(query, layout.cos, layout.sin))
    prefix_key, branch_key = layout.behind_prefix(_rotated(key, layout.cos, layout.sin))
    prefix_value, branch_value = layout.behind_prefix(value)
    of_prefix = functional.scaled_dot_product_attention(prefix_query, prefix_key, prefix_value, is_causal=True)
    of_branches = attend(branch_query, branch_key, branch_value, layout.mask)
    seen = torch.cat([part.transpose(1, 2).flatten(2).flatten(0, 1) for part in (of_prefix, of_branches)])
    hidden = hidden + _linear(seen, (attention.o_proj,), dtype).float()
    return hidden + _fed(layer, hidden, dtype)


def _last_layer(layer: Any, hidden: Tensor, layout: _Layout, places: Tensor) -> Tensor:
    """The last layer at some places: keys and values of every token, all else of these places only."""
    attention, dtype = layer.self_attn, layout.dtype
    normed = _normed(layer.input_layernorm, hidden)
    first = layout.prefix[0] * layout.prefix[1]
    rows = torch.arange(len(places))[:, None]
    asking = first + rows * layout.branches[1] + places
    key, value = (
        _heads(part) for part in _linear(normed, (attention.k_proj, attention.v_proj), dtype).chunk(2, dim=-1)
    )
    query = _heads(_linear(normed[asking], (attention.q_proj,), dtype))
    query = _rotated(query, layout.cos[asking], layout.sin[asking]).transpose(1, 2)
    seen = attend(
        query,
        layout.behind_prefix(_rotated(key, layout.cos, layout.sin))[1],
        layout.behind_prefix(value)[1],
        layout.mask[rows, 0, places][:, None],
    )
    last = hidden[asking] + _linear(seen.transpose(1, 2).flatten(2), (attention.o_proj,), dtype).float()
    return last + _fed(layer, last, dtype)


class _Attention(torch.autograd.Function):  # type: ignore[misc] # torch gives it no type
    """Attention by plain matrix products: on a CPU, in bfloat16, twice as fast as the fused one under a mask."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        scores = (query * HEAD_SIZE**-0.5) @ key.transpose(-1, -2)
        shares = scores.add_(mask).softmax(dim=-1)
        ctx.save_for_backward(query, key, value, shares)
        return shares @ value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, shares = ctx.saved_tensors
        (gradient,) = gradients
        of_shares = gradient @ value.transpose(-1, -2)
        of_scores = torch._softmax_backward_data(of_shares, shares, -1, shares.dtype).mul_(HEAD_SIZE**-0.5)
        return of_scores @ key, of_scores.transpose(-1, -2) @ query, shares.transpose(-1, -2) @ gradient, None


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attention under a mask that is added to the scores; each of shape [rows, heads, tokens, HEAD_SIZE]."""
    attended: Tensor = _Attention.apply(query, key, value, mask)
    return attended
