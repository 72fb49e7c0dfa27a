"""The optimiser of the tiny policy: Muon for matrices, AdamW for the rest, warm start and linear or cosine end."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

CLIP_NORM = 1.0
"""Largest norm of a step's gradient."""


class Optimiser:
    """Steps a network's weights with a learning rate that the caller gives each time."""

    def __init__(self, network: Any) -> None:
        """Sorts the weights: matrices of the layers to Muon, embeddings, biases and norms to AdamW."""
        named = list(network.named_parameters())
        matrices = [weight for name, weight in named if weight.dim() == 2 and "embed" not in name]
        rest = [weight for name, weight in named if weight.dim() != 2 or "embed" in name]
        self._weights = [*matrices, *rest]
        self._parts = (
            torch.optim.Muon(matrices, lr=0.0, weight_decay=0.0, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0),
        )

    def step(self, *, learning_rate: float) -> float:
        """Applies the gathered gradients, clears them, and returns their norm before clipping."""
        norm = float(torch.nn.utils.clip_grad_norm_(self._weights, CLIP_NORM))
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = learning_rate
            if math.isfinite(norm):
                part.step()
            part.zero_grad()
        return norm


def average_into(averaged: Iterable[Tensor], weights: Iterable[Tensor], *, decay: float) -> None:
    """Moves an exponential average of the weights one step on."""
    with torch.no_grad():
        for mean, weight in zip(averaged, weights, strict=True):
            mean.lerp_(weight, 1.0 - decay)
