"""A LoRA adapter merged into a model's weights: one folder, which every engine reads as fast as the model alone."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memagent_batch.errors import SettingsError
from memagent_batch.models.tensors import Floats, TensorFile, write_bfloat16

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
"""Stands before the names of the model's weights in an adapter's."""

CHANGES_MORE = ("use_dora", "fan_in_fan_out", "modules_to_save", "alpha_pattern", "lora_bias")
"""Settings of `peft` by which an adapter is more than a product of two matrices for each weight."""


class MergedWeights:
    """The weights of a model with those of an adapter added: W + scale * B A.

    The sum is made in float64, so that machines whose libraries add in another order round it to the same bfloat16.

    Raises:
        SettingsError: the adapter changes more, or other weights than the model has.
    """

    def __init__(self, base: Path, adapter: Path) -> None:
        self._base = TensorFile(base / "model.safetensors")
        self._adapter = TensorFile(adapter / ADAPTER_WEIGHTS)
        self._config: dict[str, Any] = json.loads((adapter / ADAPTER_CONFIG).read_bytes())
        if more := [name for name in CHANGES_MORE if self._config.get(name)]:
            raise SettingsError(f"adapter: {adapter} was made with {', '.join(more)}; only plain LoRA can be merged")
        ends = {"lora_A.weight", "lora_B.weight"}
        for name in self._adapter.shapes:
            weight = name.removeprefix(PREFIX)
            if f"{weight[:-13]}weight" not in self.shapes or weight[-13:] not in ends:
                raise SettingsError(f"adapter: {adapter} holds {name!r}, for which {base} has no weight")

    @property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """Those of the model."""
        return self._base.shapes

    def read(self, name: str) -> Floats:
        """One weight, as float32."""
        weight = self._base.read(name)
        stem = f"{PREFIX}{name.removesuffix('weight')}"
        if f"{stem}lora_A.weight" not in self._adapter.shapes:
            return weight
        down, up = (self._adapter.read(f"{stem}lora_{part}.weight").astype(np.float64) for part in "AB")
        rank = len(down)
        scale = self._config["lora_alpha"] / (np.sqrt(rank) if self._config.get("use_rslora") else rank)
        merged: Floats = (weight + scale * (up @ down)).astype(np.float32)
        return merged


def merge_adapter(base: Path, adapter: Path, folder: Path) -> None:
    """Writes a model with an adapter merged into it.

    Args:
        base: folder of the model, whose weights are in one model.safetensors.
        adapter: folder with `adapter_config.json` and `adapter_model.safetensors`, as `peft` saves them.
        folder: an empty folder.

    Raises:
        SettingsError: the adapter is not one for this model.
    """
    write_bfloat16(folder / "model.safetensors", MergedWeights(base, adapter))
    for path in base.iterdir():
        if path.name != "model.safetensors":
            shutil.copyfile(path, folder / path.name)
