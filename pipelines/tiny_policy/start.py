"""The weights that the tiny policy starts from: random, but for two layers of heads that together copy.

Heads of the first layer look one, two and three tokens back and write down what they see. Heads of the second look for
a place whose three tokens before are the last three here, and tell the token that followed. Training from there takes
minutes; from random weights alone a network of this size does not find out how to copy.
"""

from typing import Any

import torch
from torch import Tensor

LOOK_BACK_TOKENS = (1, 2, 3)
"""Distance at which the first heads of the first layer look."""

LOOK_BACK_STRENGTH = 7.0
"""Size of the biases that make them look there; the nearest wrong place then weighs some e^-5."""

CONTENT_SIZE = 64
"""Dimensions of the residual stream that hold the token itself; the others hold the tokens before."""

NOTE_SIZE = 21
"""Dimensions for each of the tokens before."""

MATCH_SHARPNESS = 2.0
"""Scale of the matching scores."""

COPY_STRENGTH = 6.0
"""How strongly the second layer tells what it found."""

SMALL = 0.1
"""Factor on the random weights of what should not disturb the copying at first."""


def start_weights(network: Any, *, frequencies: Tensor) -> None:
    """Sets every weight of a `Qwen2ForCausalLM`.

    Args:
        network: whose heads are of twice as many dimensions as there are frequencies.
        frequencies: rotary frequencies, falling; shape [head_size / 2].
    """
    layers = network.model.layers
    for name, weight in network.named_parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.data.mul_(SMALL if "layers.0" in name or "layers.1" in name else (2 * len(layers)) ** -0.5)
    content = network.model.embed_tokens.weight.data
    torch.nn.init.normal_(content, std=CONTENT_SIZE**-0.5)
    content[:, CONTENT_SIZE:] = 0.0
    note = _projection(NOTE_SIZE, CONTENT_SIZE)
    with torch.no_grad():
        for head, distance in enumerate(LOOK_BACK_TOKENS):
            _look_back(layers[0].self_attn, head, frequencies * distance, note)
        for head in range(network.config.num_attention_heads):
            _match(layers[1].self_attn, head, note, half=len(frequencies))


def _projection(rows: int, columns: int) -> Tensor:
    """Random orthonormal rows."""
    return torch.linalg.qr(torch.randn(columns, columns))[0][:rows]


def _note_columns(distance: int) -> slice:
    start = CONTENT_SIZE + NOTE_SIZE * (distance - 1)
    return slice(start, start + NOTE_SIZE)


def _look_back(attention: Any, head: int, turn: Tensor, note: Tensor) -> None:
    """Makes a head look a fixed number of tokens back, whatever the content, and note the token there."""
    half = len(turn)
    start = head * 2 * half
    rows = slice(start, start + 2 * half)
    attention.q_proj.weight[rows] *= SMALL
    attention.k_proj.weight[rows] *= SMALL
    attention.k_proj.bias[start : start + half] = LOOK_BACK_STRENGTH
    attention.q_proj.bias[start : start + half] = LOOK_BACK_STRENGTH * turn.cos()
    attention.q_proj.bias[start + half : start + 2 * half] = -LOOK_BACK_STRENGTH * turn.sin()
    values = slice(start, start + NOTE_SIZE)
    attention.v_proj.weight[values] = 0.0
    attention.v_proj.weight[values, :CONTENT_SIZE] = note
    scale = (2.0 * CONTENT_SIZE) ** -0.5
    attention.o_proj.weight[:, values] = 0.0
    attention.o_proj.weight[_note_columns(head + 1), values] = scale * torch.eye(NOTE_SIZE)


def _match(attention: Any, head: int, note: Tensor, *, half: int) -> None:
    """Makes a head find the place after the same three tokens, and tell the token there.

    Only the dimensions that the rotary embedding hardly turns are used, so that distance does not matter.
    """
    start = head * 2 * half
    slow = [*range(start + half // 2, start + half), *range(start + half + half // 2, start + 2 * half)]
    attention.q_proj.weight[start : start + 2 * half] *= SMALL
    attention.k_proj.weight[start : start + 2 * half] *= SMALL
    for distance in LOOK_BACK_TOKENS:
        mix = MATCH_SHARPNESS**0.5 * _projection(len(slow), NOTE_SIZE)
        key = torch.zeros(len(slow), attention.k_proj.weight.shape[1])
        query = torch.zeros_like(key)
        key[:, _note_columns(distance)] = mix
        if distance == 1:
            query[:, :CONTENT_SIZE] = mix @ note
        else:
            query[:, _note_columns(distance - 1)] = mix
        attention.k_proj.weight[slow] += key
        attention.q_proj.weight[slow] += query
    values = slice(start, start + 2 * half)
    told = _projection(2 * half, CONTENT_SIZE)
    attention.v_proj.weight[values] = 0.0
    attention.v_proj.weight[values, :CONTENT_SIZE] = told
    attention.o_proj.weight[:, values] = 0.0
    attention.o_proj.weight[:CONTENT_SIZE, values] = COPY_STRENGTH * CONTENT_SIZE**-0.5 * told.T
