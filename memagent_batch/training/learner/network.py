"""Any causal language model of `transformers`: log-probabilities of drawn tokens, and model folders in and out."""

import copy
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.models.weights import WEIGHT_ENDINGS, model_sha256, weights_version
from memagent_batch.training.learner.batches import ConversationBatch

TRAINING_FILE = "training.json"
"""Where weights come from: in every model folder that is written here."""

LEFT_BEHIND = frozenset({".md", ".jsonl", ".index", TRAINING_FILE})
"""Endings, and a name, of files that speak of the weights before."""


def load_network(folder: Path, *, device: torch.device) -> Any:
    """The model of a folder with weights in float32, as small steps need; without dropout, as it was sampled."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()


def num_weights(folder: Path) -> int:
    """Weights of the model of a folder, by its configuration; loads none."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return sum(parameter.numel() for parameter in network.parameters())


def response_logprobs(network: Any, batch: ConversationBatch) -> Tensor:
    """Log-probabilities of the responses' tokens, nats; shape [batch, width]. Logits are made for their places alone.

    Rows are padded on the right and a causal model looks left, so that no attention mask is needed.
    """
    kept = torch.unique(batch.places)
    logits = network(input_ids=batch.tokens, logits_to_keep=kept, use_cache=False).logits
    rows = torch.arange(len(batch.tokens), device=kept.device)[:, None]
    at_places = logits[rows, torch.searchsorted(kept, batch.places)]
    precise = at_places.to(torch.promote_types(at_places.dtype, torch.float32))
    chosen = precise.gather(-1, batch.responses[..., None]).squeeze(-1)
    return (chosen - precise.logsumexp(-1))[batch.text]


def write_model(network: Any, folder: Path, *, like: Path, record: Mapping[str, Any]) -> str:
    """Writes a whole model folder: weights in the number format of `like`, and its tokeniser and all else.

    Args:
        network: the model.
        folder: where; what is there must be part of the same model.
        like: the folder that it was loaded from.
        record: where the weights come from; goes into `training.json` with their version.

    Returns:
        The weights version, by which the tables of the next collection call them.
    """
    from transformers import AutoConfig

    dtype = AutoConfig.from_pretrained(like).dtype or torch.float32
    folder.mkdir(parents=True, exist_ok=True)
    rounded = network if dtype == network.dtype else copy.deepcopy(network).to(dtype)
    rounded.save_pretrained(folder)
    for path in sorted(like.iterdir()):
        if path.is_file() and not (folder / path.name).exists() and not _is_of_weights(path.name):
            shutil.copyfile(path, folder / path.name)
    version = weights_version(model_sha256(str(folder)))
    write_json(Location(uri=str(folder / TRAINING_FILE)), {"weights_version": version, **record})
    for path in folder.iterdir():
        shutil.copymode(like / "config.json", path)  # `save_pretrained` leaves weights to their owner alone
        sync(path)
    return version


def sync(path: Path) -> None:
    """Has what was written reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_of_weights(name: str) -> bool:
    return name.endswith((*WEIGHT_ENDINGS, *LEFT_BEHIND, ".index.json"))
