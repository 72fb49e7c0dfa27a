"""The weights that the tiny policy starts from: random, but for layers of heads that together copy.

Heads of the first layer look one to four tokens back and note what they see. Two of the second layer look further and
note those notes. Those of the third look farther still, and note nothing at first. The fourth layer looks for a place
that follows the same eight tokens as this one, and copies the token that followed. The tokens right before a value do
not depend on its key; only the tokens before those show which of several values the question asks for. Training from
there takes minutes; from random weights alone a network of this size does not learn to copy, and with fewer tokens to
look back on it does not learn which value belongs to which key.
"""

from typing import Any

import torch
from torch import Tensor

HEAD_SIZE = 32
"""Dimensions of a head."""

LOOK_BACK_TOKENS = (1, 2, 3, 4)
"""Distance at which the heads of the first layer look."""

LOOK_BACK_STRENGTH = 7.0
"""Size of the biases that make them look there; the nearest wrong place then weighs some e^-5."""

FAR_TOKENS = (7, 8, 11, 12)
"""Distance at which the heads of the third layer look."""

CONTENT = slice(0, 48)
"""Dimensions of the residual stream that hold the token itself."""

NOTE_SIZE = 12
"""Dimensions for each of the four tokens before."""

NOTES = slice(48, 96)
"""Where these stand, the nearest first."""

FAR_OF_NEXT, FAR_OF_THIS = slice(96, 112), slice(112, 128)
"""Where the tokens five to eight back stand, and those four to seven back: the same, seen from one token before."""

CARRY = 0.2
"""Size of a note in the residual stream, beside tokens of size 1."""

MATCH_SHARPNESS, FAR_SHARPNESS = 2.0, 4.0
"""Scales of the matching scores, for the last four tokens and for those before."""

COPY_STRENGTH = 8.0
"""Strength with which the third layer copies the token."""

COPYING_LAYERS, FAR_LAYER = (0, 1, 3), 2
"""Places of the layers that copy, and of the one that looks farther back."""

SMALL = 0.1
"""Factor on the random weights that should not disturb the copying at first."""


def start_weights(network: Any, *, frequencies: Tensor) -> None:
    """Sets every weight of a `Qwen2ForCausalLM` of 128 dimensions, four heads, and at least four layers.

    Args:
        network: its heads have twice as many dimensions as there are frequencies.
        frequencies: rotary frequencies, falling; shape [HEAD_SIZE / 2].
    """
    for name, weight in network.named_parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.data.mul_(SMALL)
    content = network.model.embed_tokens.weight.data
    torch.nn.init.normal_(content, std=_size(CONTENT) ** -0.5)
    content[:, CONTENT.stop :] = 0.0
    with torch.no_grad():
        attentions = [layer.self_attn for layer in network.model.layers]
        _copying_heads([attentions[place] for place in COPYING_LAYERS], frequencies)
        _silent_layer(network.model.layers[FAR_LAYER])
        for head, distance in enumerate(FAR_TOKENS):
            _look_back(attentions[FAR_LAYER], head, frequencies * distance)


def grow_weights(network: Any, smaller: Any, *, frequencies: Tensor) -> None:
    """Gives a network the weights of one with fewer layers; those in between and behind add nothing at first.

    Args:
        network: what `start_weights` takes.
        smaller: the same with four layers.
        frequencies: as there.
    """
    start_weights(network, frequencies=frequencies)
    network.model.embed_tokens.load_state_dict(smaller.model.embed_tokens.state_dict())
    network.model.norm.load_state_dict(smaller.model.norm.state_dict())
    kept = [place for place in range(len(network.model.layers)) if place != FAR_LAYER]
    for layer in network.model.layers:
        _silent_layer(layer)
    for place, layer in zip(kept, smaller.model.layers, strict=False):
        network.model.layers[place].load_state_dict(layer.state_dict())


def _silent_layer(layer: Any) -> None:
    """Has a layer add nothing, until it learns."""
    with torch.no_grad():
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()


def _copying_heads(attentions: list[Any], frequencies: Tensor) -> None:
    first, second, third = attentions
    note = _projection(NOTE_SIZE, _size(CONTENT))
    far = _projection(_size(FAR_OF_NEXT), _size(NOTES))
    for head, distance in enumerate(LOOK_BACK_TOKENS):
        _look_back(first, head, frequencies * distance)
        _carry(first, head, note, source=CONTENT, target=_note_of(distance))
    for head, distance, target in ((2, 4, FAR_OF_NEXT), (3, 3, FAR_OF_THIS)):
        _look_back(second, head, frequencies * distance)
        _carry(second, head, far, source=NOTES, target=target)
    for head in range(len(LOOK_BACK_TOKENS)):
        _match(third, head, note)
        _copy(third, head)


def _size(columns: slice) -> int:
    return int(columns.stop) - int(columns.start)


def _projection(rows: int, columns: int) -> Tensor:
    """A part of a random orthonormal matrix."""
    size = max(rows, columns)
    return torch.linalg.qr(torch.randn(size, size))[0][:rows, :columns]


def _rows_of(head: int) -> slice:
    return slice(HEAD_SIZE * head, HEAD_SIZE * (head + 1))


def _note_of(distance: int) -> slice:
    start = NOTES.start + NOTE_SIZE * (distance - 1)
    return slice(start, start + NOTE_SIZE)


def _look_back(attention: Any, head: int, turn: Tensor) -> None:
    """Makes a head look a fixed number of tokens back for any content: the rotations of its biases match there."""
    start, half = HEAD_SIZE * head, len(turn)
    attention.q_proj.weight[_rows_of(head)] *= SMALL
    attention.k_proj.weight[_rows_of(head)] *= SMALL
    attention.k_proj.bias[start : start + half] = LOOK_BACK_STRENGTH
    attention.q_proj.bias[start : start + half] = LOOK_BACK_STRENGTH * turn.cos()
    attention.q_proj.bias[start + half : start + HEAD_SIZE] = -LOOK_BACK_STRENGTH * turn.sin()


def _carry(attention: Any, head: int, reading: Tensor, *, source: slice, target: slice) -> None:
    """Makes a head read some dimensions where it looks, and note them here."""
    values = slice(HEAD_SIZE * head, HEAD_SIZE * head + len(reading))
    attention.v_proj.weight[_rows_of(head)] = 0.0
    attention.v_proj.weight[values, source] = reading
    attention.o_proj.weight[:, _rows_of(head)] = 0.0
    attention.o_proj.weight[target, values] = CARRY * torch.eye(len(reading))


def _match(attention: Any, head: int, note: Tensor) -> None:
    """Makes a head look for the place after the same eight tokens, however far away.

    Only the half of its dimensions that the rotary embedding hardly turns over a prompt is used.
    """
    start, quarter = HEAD_SIZE * head, HEAD_SIZE // 4
    slow = [*range(start + quarter, start + 2 * quarter), *range(start + 3 * quarter, start + 4 * quarter)]
    key = torch.zeros(len(slow), attention.k_proj.weight.shape[1])
    query = torch.zeros_like(key)
    for distance in LOOK_BACK_TOKENS:
        mix = MATCH_SHARPNESS**0.5 * _projection(len(slow), NOTE_SIZE)
        key[:, _note_of(distance)] = mix
        query[:, CONTENT if distance == 1 else _note_of(distance - 1)] = mix @ note if distance == 1 else mix
    mix = FAR_SHARPNESS**0.5 * _projection(len(slow), _size(FAR_OF_NEXT))
    key[:, FAR_OF_NEXT] = mix
    query[:, FAR_OF_THIS] = mix
    for projection, weight in ((attention.q_proj, query), (attention.k_proj, key)):
        projection.weight[_rows_of(head)] *= SMALL
        projection.weight[slow] += weight


def _copy(attention: Any, head: int) -> None:
    """Makes a head copy the token where it looks."""
    copied = _projection(HEAD_SIZE, _size(CONTENT))
    attention.v_proj.weight[_rows_of(head)] = 0.0
    attention.v_proj.weight[_rows_of(head), CONTENT] = copied
    attention.o_proj.weight[:, _rows_of(head)] = 0.0
    attention.o_proj.weight[CONTENT, _rows_of(head)] = COPY_STRENGTH * _size(CONTENT) ** -0.5 * copied.T
