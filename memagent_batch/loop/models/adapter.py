"""A LoRA adapter merged into a model's weights: one folder, which every engine reads as fast as the model alone."""

import json
import shutil
from pathlib import Path
from typing import Any

from memagent_batch.errors import SettingsError, require_extra

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
"""Stands before the names of the model's weights in an adapter's."""
CHANGES_MORE = ("use_dora", "fan_in_fan_out", "modules_to_save", "alpha_pattern", "lora_bias")
"""Settings of `peft` by which an adapter is more than a product of two matrices for each weight."""


def merge_adapter(base: Path, adapter: Path, folder: Path) -> None:
    """Writes a model with an adapter added to its weights, in bfloat16: W + scale * B A.

    The sum is made in float64, so that machines whose libraries add in another order round it to the same bfloat16.

    Args:
        base: folder of the model, whose weights are in one model.safetensors.
        adapter: folder with `adapter_config.json` and `adapter_model.safetensors`, as `peft` saves them.
        folder: an empty folder.

    Raises:
        SettingsError: the adapter changes more, or other weights than the model has.
    """
    require_extra("reader", package="torch")
    import torch
    from safetensors.torch import load_file, save_file

    weights, added = load_file(base / "model.safetensors"), load_file(adapter / ADAPTER_WEIGHTS)
    config: dict[str, Any] = json.loads((adapter / ADAPTER_CONFIG).read_bytes())
    if more := [name for name in CHANGES_MORE if config.get(name)]:
        raise SettingsError(f"adapter: {adapter} was made with {', '.join(more)}; only plain LoRA can be merged")
    stems = {f"{PREFIX}{name.removesuffix('weight')}lora": name for name in weights}
    for name in added:
        stem, _, end = name.rpartition("_")
        if stem not in stems or end not in {"A.weight", "B.weight"}:
            raise SettingsError(f"adapter: {adapter} holds {name!r}, for which {base} has no weight")
    for stem in {name.rpartition("_")[0] for name in added}:
        down, up = (added[f"{stem}_{part}.weight"].double() for part in "AB")
        scale = config["lora_alpha"] / (len(down) ** 0.5 if config.get("use_rslora") else len(down))
        weights[stems[stem]] = (weights[stems[stem]].double() + scale * (up @ down)).float()
    rounded = {name: weight.to(torch.bfloat16) for name, weight in weights.items()}
    save_file(rounded, folder / "model.safetensors", metadata={"format": "pt"})
    for path in base.iterdir():
        if path.name != "model.safetensors":
            shutil.copyfile(path, folder / path.name)
