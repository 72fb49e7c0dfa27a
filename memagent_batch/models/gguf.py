"""A model in one GGUF file becomes a folder that vLLM and the tokeniser read; vLLM itself reads no GGUF.

Models of the llama family, whose weights and settings the file holds whole. Quantised weights are read as the numbers
that they stand for, and rounded to bfloat16.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memagent_batch.errors import SettingsError, require_extra
from memagent_batch.logs import quiet_libraries

if TYPE_CHECKING:
    from torch import Tensor

ARCHITECTURE = "llama"

MODEL_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
"""Weights of the whole model: their names in GGUF and in transformers."""
OF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Weights of each layer."""


class GgufFile:
    """A GGUF file of the llama family; its weights have the names and the order of rows that transformers expects.

    Raises:
        SettingsError: the file can't be read, is of another family, or holds what the folder could not say.
    """

    def __init__(self, path: Path) -> None:
        require_extra("reader", package="gguf")
        from gguf import GGUFReader

        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise SettingsError(f"model: {path} is not a whole GGUF file: {error}") from error
        self.path = path
        architecture = self._value("general.architecture")
        if architecture != ARCHITECTURE:
            raise SettingsError(
                f"model: {path.name} is a GGUF file of the family {architecture!r}; only {ARCHITECTURE!r} is "
                "converted. Give the folder of the original model"
            )
        if (scaling := self._value("llama.rope.scaling.type", "none")) != "none":
            raise SettingsError(
                f"model: {path.name} has scaled positions ({scaling}), which are not converted; give the folder of the "
                "original model"
            )
        self._tensors = {self._name(tensor.name): tensor for tensor in self._reader.tensors}

    def weights(self) -> dict[str, "Tensor"]:
        """The weights in bfloat16, by their names in transformers."""
        import torch
        from gguf.quants import dequantize

        found = {}
        for name, tensor in self._tensors.items():
            shape = [int(size) for size in reversed(tensor.shape)]
            weight = torch.tensor(dequantize(tensor.data, tensor.tensor_type)).reshape(shape)
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                weight = _as_halves(weight, heads=self._heads if "q_proj" in name else self._kv_heads)
            found[name] = weight.to(torch.bfloat16)
        return found

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        hidden = self._value("llama.embedding_length")
        # The shortest decimal of the float32, which is what the model's authors wrote.
        epsilon, theta = (
            float(str(self._reader.fields[f"llama.{name}"].parts[-1][0]))
            for name in ("attention.layer_norm_rms_epsilon", "rope.freq_base")
        )
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "dtype": "bfloat16",
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": self._value("llama.feed_forward_length"),
            "num_hidden_layers": self._value("llama.block_count"),
            "num_attention_heads": self._heads,
            "num_key_value_heads": self._kv_heads,
            "head_dim": self._value("llama.attention.key_length", hidden // self._heads),
            "max_position_embeddings": self._value("llama.context_length"),
            "rms_norm_eps": epsilon,
            "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
            "tie_word_embeddings": "lm_head.weight" not in self._tensors,
            "vocab_size": int(self._tensors["model.embed_tokens.weight"].shape[-1]),
            **self.token_ids(),
        }

    def token_ids(self) -> dict[str, int]:
        """The tokens that begin, end and fill a text, as both config files have them."""
        names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
        found = {key: self._value(f"tokenizer.ggml.{name}_token_id", None) for key, name in names.items()}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def _heads(self) -> int:
        return int(self._value("llama.attention.head_count"))

    @property
    def _kv_heads(self) -> int:
        return int(self._value("llama.attention.head_count_kv", self._heads))

    def _name(self, name: str) -> str:
        """The name of a weight in transformers."""
        layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
        if layer and layer[2] in OF_LAYER:
            return f"model.layers.{layer[1]}.{OF_LAYER[layer[2]]}.weight"
        if name not in MODEL_TENSORS:
            raise SettingsError(
                f"model: {self.path.name} holds {name!r}, which a plain model of the family {ARCHITECTURE!r} has not; "
                "give the folder of the original model"
            )
        return MODEL_TENSORS[name]

    def _value(self, key: str, *default: Any) -> Any:
        """A value of the file's header, or the default if there is one."""
        field = self._reader.get_field(key)
        if field is not None:
            return field.contents()
        if default:
            return default[0]
        raise SettingsError(f"model: {self.path.name} has no {key!r}, which a GGUF file of a model has")


def convert_gguf(path: Path, folder: Path) -> None:
    """Writes a GGUF file as the files of a model: weights in bfloat16, config files, tokeniser and chat template.

    Args:
        path: the file.
        folder: an empty folder.

    Raises:
        SettingsError: the file can't be converted; says why.
    """
    require_extra("reader", package="torch")
    from safetensors.torch import save_file

    file = GgufFile(path)
    save_file(file.weights(), folder / "model.safetensors", metadata={"format": "pt"})
    for name, content in (("config.json", file.config()), ("generation_config.json", file.token_ids())):
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    with quiet_libraries():
        from transformers import PreTrainedTokenizerFast

        try:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name)
        except (ValueError, KeyError) as error:
            raise SettingsError(f"model: {path.name} holds no tokeniser that can be read: {error}") from error
        tokenizer.save_pretrained(folder)


def _as_halves(weight: "Tensor", *, heads: int) -> "Tensor":
    """The rows of each head in the order of transformers: first halves of all rotated pairs, then second halves.

    GGUF has the two rows of a pair beside each other.
    """
    num_rows, num_columns = weight.shape
    pairs = weight.reshape(heads, num_rows // heads // 2, 2, num_columns)
    return pairs.swapaxes(1, 2).reshape(num_rows, num_columns)
