"""The tiny policy's network: a Qwen2 of four layers, and its training forward.

The forward gives logits at chosen places only, so that the last layer and the output layer run on a completion's few
tokens and not on its prompt of a thousand. It equals `transformers`' own, which inference engines use.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from pipelines.recipes.tiny_policy.start import start_weights
from pipelines.recipes.tiny_policy.vocabulary import MAX_LENGTH_TOKENS, VOCABULARY_SIZE

HIDDEN_SIZE = 128
NUM_HEADS = 4
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
        num_hidden_layers=4,
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


def logits_at(network: Any, tokens: Tensor, places: Tensor) -> Tensor:
    """Next-token logits at some places of each sequence.

    Args:
        network: a `Qwen2ForCausalLM`.
        tokens: token ids, padded on the right; shape [batch, length].
        places: positions that logits are wanted for, rising in each row; shape [batch, num_places].

    Returns:
        Logits of shape [batch, num_places, vocabulary].
    """
    model = network.model
    cos, sin = rotary_tables(tokens.shape[1])
    hidden = model.embed_tokens(tokens)
    for layer in model.layers[:-1]:
        hidden = _layer(layer, hidden, cos, sin)
    hidden = _last_layer(model.layers[-1], hidden, cos, sin, places)
    return functional.linear(_normed(model.norm, hidden), model.embed_tokens.weight)


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
    return projected.unflatten(-1, (NUM_HEADS, HEAD_SIZE)).transpose(1, 2)


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat([-second, first], dim=-1) * sin


def _layer(layer: Any, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    attention = layer.self_attn
    normed = _normed(layer.input_layernorm, hidden)
    projections: Sequence[Any] = (attention.q_proj, attention.k_proj, attention.v_proj)
    weight = torch.cat([projection.weight for projection in projections])
    bias = torch.cat([projection.bias for projection in projections])
    query, key, value = (_heads(part) for part in functional.linear(normed, weight, bias).chunk(3, dim=-1))
    seen = functional.scaled_dot_product_attention(
        _rotated(query, cos, sin), _rotated(key, cos, sin), value, is_causal=True
    )
    hidden = hidden + attention.o_proj(seen.transpose(1, 2).flatten(2))
    return hidden + layer.mlp(_normed(layer.post_attention_layernorm, hidden))


def _last_layer(layer: Any, hidden: Tensor, cos: Tensor, sin: Tensor, places: Tensor) -> Tensor:
    """The last layer at some places: keys and values of every token, all else of these places only."""
    attention = layer.self_attn
    normed = _normed(layer.input_layernorm, hidden)
    rows = torch.arange(len(places))[:, None]
    query = _rotated(_heads(attention.q_proj(normed[rows, places])), cos[places][:, None], sin[places][:, None])
    key = _rotated(_heads(attention.k_proj(normed)), cos, sin)
    scores = query @ key.transpose(-1, -2) / math.sqrt(HEAD_SIZE)
    hidden_keys = torch.arange(hidden.shape[1]) > places[:, None, :, None]
    seen = scores.masked_fill(hidden_keys, -torch.inf).softmax(dim=-1) @ _heads(attention.v_proj(normed))
    hidden = hidden[rows, places] + attention.o_proj(seen.transpose(1, 2).flatten(2))
    return hidden + layer.mlp(_normed(layer.post_attention_layernorm, hidden))
