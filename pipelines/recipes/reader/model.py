"""The base model with a LoRA adapter on all linear layers, and the loss of a tree of samples. Torch alone."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface, AutoModelForCausalLM

from memagent_batch.models.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from memagent_batch.training.learner.trees import Tree

RANK, ALPHA = 32, 64
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
COMPUTED = torch.float32 if torch.backends.cpu.get_cpu_capability() == "AVX2" else torch.bfloat16
"""What the layers compute in: a processor that has AVX2 and not AVX-512 is eight times as fast in float32."""


QUERIES = 128
"""Tokens of a tree whose attention is computed at once."""
FILLED = 64
"""On a GPU, trees are filled up to a multiple of so many tokens."""

Block = tuple[slice, torch.Tensor, torch.Tensor]
"""A run of tokens; what at least one of them sees, [num_seen]; what is added to scores, [num_tokens, num_seen]."""


def blocks(tree: Tree) -> list[Block]:
    """The runs of a tree's tokens: together they meet about a tenth of all pairs of its tokens."""
    found = []
    for start in range(0, len(tree.token_ids), QUERIES):
        sees = tree.sees[start : start + QUERIES]
        seen = np.flatnonzero(sees.any(axis=0))
        hidden = torch.from_numpy(~sees[:, seen])
        added = torch.zeros(hidden.shape, dtype=COMPUTED).masked_fill_(hidden, torch.finfo(COMPUTED).min)
        found.append((slice(start, start + QUERIES), torch.from_numpy(seen), added))
    return found


def tree_attention(
    module: nn.Module,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    attention_mask: None,
    *,
    scaling: float,
    blocks: list[Block],
    **_: object,
) -> tuple[torch.Tensor, None]:
    """What transformers calls: [1, num_heads, num_tokens, size] in, [1, num_tokens, num_heads, size] out."""
    num_kept, size = keys.shape[1], keys.shape[3]
    num_heads = queries.shape[1]
    grouped = (queries * scaling).view(num_kept, num_heads // num_kept, -1, size)
    outputs = []
    for run, seen, added in blocks:
        scores = grouped[:, :, run].flatten(1, 2) @ keys[0, :, seen].transpose(1, 2)
        shares = (scores.unflatten(1, (-1, len(added))) + added).softmax(-1)
        outputs.append((shares.flatten(1, 2).to(values.dtype) @ values[0, :, seen]).view(num_heads, -1, size))
    return torch.cat(outputs, dim=1).transpose(0, 1)[None], None


AttentionInterface.register("tree", tree_attention)


class LoraLinear(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """A frozen linear layer and a low-rank change of it: `x W + (alpha / rank) x A B`; float32 master weights."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.empty(RANK, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, RANK))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Shape [..., in_features] to [..., out_features]."""
        low = functional.linear(inputs, self.lora_A) * (ALPHA / RANK)  # the product of low rank is the smaller to scale
        return self.base(inputs) + functional.linear(low, self.lora_B)


class Reader(nn.Module):  # type: ignore[misc]
    """The model in training.

    Args:
        folder: of the base model.
        device: `cpu`, which skips the pairs of tokens that don't see each other; or `cuda`, which takes trees together.
    """

    def __init__(self, folder: str | Path, *, device: str = "cpu") -> None:
        super().__init__()
        self.device = torch.device(device)
        on_cpu = self.device.type == "cpu"
        self._computed = COMPUTED if on_cpu else torch.bfloat16
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=self._computed, attn_implementation="tree" if on_cpu else "sdpa"
        )
        self.model.requires_grad_(False)
        for name, layer in list(self.model.named_modules()):
            if name.endswith(TARGETS):
                parent, _, own = name.rpartition(".")
                setattr(self.model.get_submodule(parent), own, LoraLinear(layer))
        self.to(self.device)

    def loss(self, trees: Sequence[Tree]) -> torch.Tensor:
        """The sum of the losses of all targets; were long completions to count less, a reader would keep silent."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._computed is torch.bfloat16):
            states = torch.cat([*map(self._states, trees)] if self.device.type == "cpu" else [self._together(trees)])
            logits = self.model.lm_head(states)
        targets = torch.from_numpy(np.concatenate([tree.targets for tree in trees])).to(self.device)
        return functional.cross_entropy(logits.float(), targets, reduction="sum")

    def _states(self, tree: Tree) -> torch.Tensor:
        """What predicts the targets of a tree; shape [num_targets, hidden_size]."""
        states = self.model.model(
            input_ids=torch.from_numpy(tree.token_ids)[None],
            position_ids=torch.from_numpy(tree.positions)[None],
            use_cache=False,
            blocks=blocks(tree),
        ).last_hidden_state[0]
        return states[torch.from_numpy(tree.sources)]

    def _together(self, trees: Sequence[Tree]) -> torch.Tensor:
        """The same of several trees, filled up to one length; shape [num_targets, hidden_size]."""
        length = -(-max(len(tree.token_ids) for tree in trees) // FILLED) * FILLED
        filled = torch.zeros(3, len(trees), length, dtype=torch.long)
        filled[2] = torch.arange(1, length + 1)
        for number, tree in enumerate(trees):
            rows = (tree.token_ids, tree.positions, tree.ends)
            filled[:, number, : len(tree.token_ids)] = torch.from_numpy(np.stack(rows))
        token_ids, positions, ends = filled.to(self.device)
        places = torch.arange(length, device=self.device)
        sees = (places <= places[:, None]) & (places[:, None] < ends[:, None, None])
        states = self.model.model(
            input_ids=token_ids, position_ids=positions, attention_mask=sees, use_cache=False
        ).last_hidden_state.flatten(0, 1)
        sources = np.concatenate([number * length + tree.sources for number, tree in enumerate(trees)])
        return states[torch.from_numpy(sources).to(self.device)]

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The adapter's weights, by the names that peft gives them."""
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                module, _, half = name.rpartition(".")
                yield f"base_model.model.{module}.{half}.weight", parameter


def save_adapter(reader: Reader, folder: Path) -> None:
    """The adapter as peft writes it, in bfloat16: weights and configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: parameter.detach().to("cpu", torch.bfloat16).contiguous() for name, parameter in reader.trained()}
    save_file(weights, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    config: dict[str, Any] = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA}
    config |= {"lora_dropout": 0.0, "bias": "none", "target_modules": list(TARGETS), "inference_mode": True}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=1) + "\n")
