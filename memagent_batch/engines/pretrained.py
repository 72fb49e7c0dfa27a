"""Loads the tokeniser of a model's folder, or of the hub."""

from pathlib import Path
from typing import Any

from memagent_batch.engines.hub import hub_failure
from memagent_batch.engines.weights import names_folder
from memagent_batch.errors import SettingsError
from memagent_batch.logs import quiet_libraries


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
    local_files_only = failure is not None
    try:
        with quiet_libraries():  # without torch, transformers advises to install it
            kind = _tokenizer_class(model, local_files_only=local_files_only)
        tokenizer = kind.from_pretrained(model, local_files_only=local_files_only)
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


def _tokenizer_class(model: str, *, local_files_only: bool) -> Any:
    """The class that takes tokenizer.json as it stands; where there is none, the one that converts other files.

    The first imports in 2 s of CPU time, the second imports torch, 11 s: in every process that tokenises.
    """
    if not _has_tokenizer_json(model, local_files_only=local_files_only):
        from transformers import AutoTokenizer

        return AutoTokenizer
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast


def _has_tokenizer_json(model: str, *, local_files_only: bool) -> bool:
    if Path(model).exists():
        return (Path(model) / "tokenizer.json").is_file()
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(model, "tokenizer.json", local_files_only=local_files_only)
    except (OSError, ValueError):
        return False
    return True
