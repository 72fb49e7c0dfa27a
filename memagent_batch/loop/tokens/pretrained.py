"""What a model's folder, or the hub, has beside weights: its tokeniser and its window.

The hub's own client would try a name for more than a minute before it gives up, so it is asked once whether it answers.
"""

import json
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from memagent_batch.errors import SettingsError
from memagent_batch.logs import quiet_libraries

HUB_TRIES = 3
HUB_PAUSE_SECONDS = 1.0
HUB_ANSWER_SECONDS = 5.0
WINDOW_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
"""Where a model's config.json has its longest window, by the names that families of models use."""


def load_pretrained(model: str) -> Any:
    """The fast tokeniser of `transformers` for a model's folder or hub name.

    Raises:
        SettingsError: there is none, or it can't be loaded; says why.
    """
    folder = Path(model)
    if folder.exists() and not (folder / "tokenizer.json").exists() and not (folder / "tokenizer_config.json").exists():
        raise SettingsError(
            f"model: the folder {model} has no tokenizer.json; copy the model's tokenizer files into it"
        )
    if not folder.exists() and names_folder(model):
        raise SettingsError(f"model: there is no folder {model} on this machine; check the path on every node")
    failure = None if folder.exists() else hub_failure()
    try:
        with quiet_libraries():  # without torch, transformers advises to install it
            kind = _tokenizer_class(model)
        tokenizer = kind.from_pretrained(model, local_files_only=failure is not None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        if failure is not None:
            raise SettingsError(
                f"model: there is no folder {model} here, this machine keeps no copy from the hub, and the hub can't "
                f"be reached ({failure}); give a model folder"
            ) from error
        raise SettingsError(
            f"model: no tokeniser can be loaded from {model}: {' '.join(str(error).split())}"
        ) from error
    if not tokenizer.is_fast:
        raise SettingsError(f"model: {model} has no fast tokeniser (tokenizer.json), which character spans need")
    return tokenizer


def model_window(model: str) -> int | None:
    """The longest window of a model, tokens; None where its config.json names none, or stretches it by a factor."""
    path = _model_file(model, "config.json")
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


@lru_cache(maxsize=1)
def hub_failure() -> str | None:
    """Why the hub can't be reached, checked once in a process; None where it answers, with any status.

    Asked with the hub's own client, which knows the proxies, certificates and offline mode that the user has set.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    failure = ""
    for attempt in range(HUB_TRIES):
        time.sleep(HUB_PAUSE_SECONDS if attempt else 0.0)
        try:
            get_session().head(constants.ENDPOINT, timeout=HUB_ANSWER_SECONDS)
        except Exception as error:  # noqa: BLE001 - the boundary to the hub's client, whose errors share no base
            failure = f"{constants.ENDPOINT}: {' '.join(str(error).split()) or type(error).__name__}"
        else:
            return None
    return failure


def names_folder(model: str) -> bool:
    """Whether the name of a model is plainly a path, and no name at a hub (`owner/model`)."""
    return Path(model).is_absolute() or model.startswith((".", "~")) or model.count("/") > 1 or model.endswith("/")


def _tokenizer_class(model: str) -> Any:
    """The class that takes tokenizer.json as it is; if there is none, the one that converts other files.

    The first imports in 2 s of CPU time, the second imports torch, 11 s: in every process that tokenises.
    """
    if _model_file(model, "tokenizer.json") is None:
        from transformers import AutoTokenizer

        return AutoTokenizer
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast


def _model_file(model: str, name: str) -> Path | None:
    """A file of a model's folder, or of its copy from the hub; None if there is none."""
    if Path(model).exists():
        file = Path(model) / name
        return file if file.is_file() else None
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(model, name, local_files_only=hub_failure() is not None))
    except (OSError, ValueError):
        return None
