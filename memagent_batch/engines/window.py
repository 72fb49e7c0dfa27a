"""How many tokens a model takes, by what its folder says."""

import json
from pathlib import Path

from memagent_batch.engines.hub import hub_failure

WINDOW_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
"""Where a model's config.json has its longest window, by the names that families of models use."""


def model_window(model: str) -> int | None:
    """The longest window of a model, tokens; None where its config.json names none, or stretches it by a factor.

    Args:
        model: a folder, or a hub name; only its config file is fetched.
    """
    path = _config_file(model)
    try:
        config = json.loads(path.read_bytes()) if path else None
    except (OSError, ValueError):
        return None  # the engine says what is wrong with it
    if not isinstance(config, dict):
        return None
    text = config.get("text_config")
    parts = [part for part in (text, config) if isinstance(part, dict)]
    scalings = [part.get("rope_scaling") or part.get("rope_parameters") for part in parts]
    if any(isinstance(scaling, dict) and "factor" in scaling for scaling in scalings):
        return None  # positions beyond the trained ones are scaled into them: the window is longer than it says
    windows = (part.get(key) for part in parts for key in WINDOW_KEYS)
    return next((window for window in windows if type(window) is int and window > 0), None)


def _config_file(model: str) -> Path | None:
    folder = Path(model)
    if folder.exists():
        return folder / "config.json" if (folder / "config.json").is_file() else None
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(model, "config.json", local_files_only=hub_failure() is not None))
    except (OSError, ValueError):
        return None
