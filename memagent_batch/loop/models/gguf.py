"""A model in one GGUF file becomes a folder that vLLM and the tokeniser read; vLLM itself reads no GGUF.

Models of the llama family, whose weights and settings the file holds whole. Quantised weights are read as the numbers
that they stand for, and rounded to bfloat16.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memagent_batch.errors import SettingsError, require_extra
from memagent_batch.logs import quiet_libraries

if TYPE_CHECKING:
    from torch import Tensor

ARCHITECTURE = "llama"
REQUIRED = (
    *("context_length", "embedding_length", "block_count", "feed_forward_length"),
    *("attention.head_count", "attention.layer_norm_rms_epsilon"),
)
"""Settings that the file must have; for a missing one transformers takes a default."""
CONFIG = (
    *("hidden_act", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim"),
    *("num_key_value_heads", "max_position_embeddings", "rope_parameters", "tie_word_embeddings", "vocab_size"),
)
"""Settings in config.json as transformers reads them; the defaults of others differ between its versions."""
TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
"""The tokens that begin, end and fill a text; both config files have them."""


def convert_gguf(path: Path, folder: Path) -> None:
    """Writes a GGUF file as the files of a model: weights in bfloat16, config files, tokeniser and chat template.

    Args:
        path: the file.
        folder: an empty folder.

    Raises:
        SettingsError: the file can't be converted; says why.
    """
    for package in ("torch", "gguf"):
        require_extra("reader", package=package)
    from huggingface_hub.errors import StrictDataclassError
    from safetensors.torch import save_file

    reader = _reader(path)
    with quiet_libraries():
        from transformers import LlamaConfig, PreTrainedTokenizerFast

        try:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name)
            config = LlamaConfig.from_pretrained(path.parent, gguf_file=path.name)
        except (ValueError, KeyError, StrictDataclassError) as error:
            raise SettingsError(
                f"model: {path.name} holds settings or a tokeniser that can't be read: {error}"
            ) from error
        if (size := _value(reader, f"{ARCHITECTURE}.attention.key_length")) is not None:
            config.head_dim = int(size)  # which transformers does not read
        weights = _weights(reader, config, path=path)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)
    token_ids = {name: value for name in TOKEN_IDS if (value := getattr(tokenizer, name)) is not None}
    for name, content in (("config.json", _settings(config) | token_ids), ("generation_config.json", token_ids)):
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _reader(path: Path) -> Any:
    """The file, opened by gguf.

    Raises:
        SettingsError: the file can't be read, is of another family, or its header says what the folder could not.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise SettingsError(f"model: {path} is not a whole GGUF file: {error}") from error
    architecture = _value(reader, "general.architecture")
    if architecture != ARCHITECTURE:
        raise SettingsError(
            f"model: {path.name} is a GGUF file of the family {architecture!r}; only {ARCHITECTURE!r} is converted. "
            "Give the folder of the original model"
        )
    if (scaling := _value(reader, f"{ARCHITECTURE}.rope.scaling.type")) not in (None, "none"):
        raise SettingsError(
            f"model: {path.name} has scaled positions ({scaling}), which are not converted; give the folder of the "
            "original model"
        )
    for key in (f"{ARCHITECTURE}.{name}" for name in REQUIRED):
        if _value(reader, key) is None:
            raise SettingsError(f"model: {path.name} has no {key!r}, which a GGUF file of a model has")
    return reader


def _value(reader: Any, key: str) -> Any:
    """A value of the file's header; None if it has none."""
    field = reader.get_field(key)
    return None if field is None else field.contents()


def _settings(config: Any) -> dict[str, Any]:
    """The content of config.json, without the token ids."""
    epsilon = float(f"{config.rms_norm_eps:.6g}")  # the decimal that the authors wrote; the file has its float32
    kept = {name: getattr(config, name) for name in CONFIG}
    family = {"architectures": ["LlamaForCausalLM"], "model_type": ARCHITECTURE, "dtype": "bfloat16"}
    return kept | family | {"rms_norm_eps": epsilon}


def _weights(reader: Any, config: Any, *, path: Path) -> dict[str, "Tensor"]:
    """The weights in bfloat16, with the names and the order of rows that transformers expects.

    Raises:
        SettingsError: the file lacks a weight, or holds one that a model with these settings has not.
    """
    import torch
    from gguf import MODEL_ARCH, get_tensor_name_map
    from gguf.quants import dequantize
    from transformers import LlamaForCausalLM

    with torch.device("meta"):
        expected = LlamaForCausalLM(config).state_dict()
    in_gguf = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    names = {in_gguf.get_name(name, (".weight",)): name for name in expected}
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    weights = {}
    for tensor in reader.tensors:
        name, shape = names.get(tensor.name), [int(size) for size in reversed(tensor.shape)]
        if name is None or shape != [*expected[name].shape]:
            raise SettingsError(
                f"model: {path.name} holds {tensor.name!r} of the shape {shape}, which a plain model of the family "
                f"{ARCHITECTURE!r} with its settings has not; give the folder of the original model"
            )
        weight = torch.tensor(dequantize(tensor.data, tensor.tensor_type)).reshape(shape)
        if num_heads := heads.get(name.split(".")[-2]):
            # GGUF has the two rows of a rotated pair side by side; transformers first halves, then second halves
            pairs = weight.reshape(num_heads, shape[0] // num_heads // 2, 2, shape[1])
            weight = pairs.swapaxes(1, 2).reshape(shape)
        weights[name] = weight.to(torch.bfloat16)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    if missing := expected.keys() - weights.keys() - tied:
        raise SettingsError(
            f"model: {path.name} lacks the weight {min(missing)!r} and has no whole model; get the file again"
        )
    return weights
