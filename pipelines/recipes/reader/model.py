"""The base model with a LoRA adapter on all linear layers, and the loss of a tree of samples. Torch alone."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from transformers import AutoModelForCausalLM

from memagent_batch.models.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from pipelines.recipes.reader.trees import Tree

RANK, ALPHA = 32, 64
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
COMPUTED = torch.float32 if torch.backends.cpu.get_cpu_capability() == "AVX2" else torch.bfloat16
"""What the layers compute in: a processor that has AVX2 and not AVX-512 is eight times as fast in float32."""


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
    """The model in training."""

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=COMPUTED, attn_implementation="sdpa")
        self.model.requires_grad_(False)
        for name, layer in list(self.model.named_modules()):
            if name.endswith(TARGETS):
                parent, _, own = name.rpartition(".")
                setattr(self.model.get_submodule(parent), own, LoraLinear(layer))

    def loss(self, tree: Tree) -> tuple[torch.Tensor, float]:
        """The sum of the weighted losses of all targets, and the sum of their weights."""
        sees = torch.from_numpy(tree.sees)
        mask = torch.zeros(sees.shape, dtype=COMPUTED).masked_fill_(~sees, torch.finfo(COMPUTED).min)
        with torch.autocast("cpu", torch.bfloat16, enabled=COMPUTED is torch.bfloat16):
            states = self.model.model(
                input_ids=torch.from_numpy(tree.token_ids)[None],
                position_ids=torch.from_numpy(tree.positions)[None],
                attention_mask=mask[None, None],
                use_cache=False,
            ).last_hidden_state[0]
            logits = self.model.lm_head(states[torch.from_numpy(tree.sources)])
        losses = functional.cross_entropy(logits.float(), torch.from_numpy(tree.targets), reduction="none")
        return (losses * torch.from_numpy(tree.weights)).sum(), float(tree.weights.sum())

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The adapter's weights, by the names that peft gives them."""
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                module, _, half = name.rpartition(".")
                yield f"base_model.model.{module}.{half}.weight", parameter


def save_adapter(reader: Reader, folder: Path) -> None:
    """The adapter as peft writes it, in bfloat16: weights and configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: parameter.detach().to(torch.bfloat16).contiguous() for name, parameter in reader.trained()}
    save_file(weights, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    config: dict[str, Any] = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA}
    config |= {"lora_dropout": 0.0, "bias": "none", "target_modules": list(TARGETS), "inference_mode": True}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=1) + "\n")
