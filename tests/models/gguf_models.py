"""A model of the llama family in one GGUF file, small enough to make in a test."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType
from gguf.quants import quantize
from numpy.typing import NDArray
from transformers.convert_slow_tokenizer import bytes_to_unicode

Floats = NDArray[np.float32]
HIDDEN, HEADS, KV_HEADS, INNER, LAYERS = 64, 4, 2, 96, 2
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *bytes_to_unicode().values(), "th"]
HEAD_ROWS = {"attn_q": HEADS, "attn_k": KV_HEADS}


def make_weights(seed: int = 0) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    narrow, square = (HIDDEN // HEADS * KV_HEADS, HIDDEN), (HIDDEN, HIDDEN)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,)}
    attention = {"attn_q": square, "attn_k": narrow, "attn_v": narrow, "attn_output": square}
    inner = {"ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN), "ffn_down": (HIDDEN, INNER)}
    norms = dict.fromkeys(("attn_norm", "ffn_norm"), (HIDDEN,))
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in {**norms, **attention, **inner}.items()}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    weights: Mapping[str, Floats] | None = None,
    *,
    family: str = "llama",
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    scaling: RopeScalingType = RopeScalingType.NONE,
) -> Path:
    """The file; matrices are quantised as `kind`."""
    writer = GGUFWriter(str(path), family)
    writer.add_block_count(LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100_000.0)
    writer.add_rope_scaling_type(scaling)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3, *[1] * 257])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, weight in (make_weights() if weights is None else weights).items():
        part = name.split(".")[-2]
        if part in HEAD_ROWS:  # as llama.cpp's conversion writes it: the two rows of a rotated pair beside each other
            rows, columns = weight.shape
            heads = HEAD_ROWS[part]
            weight = weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
        as_is = weight.ndim == 1 or kind is GGMLQuantizationType.F32
        writer.add_tensor(name, weight if as_is else quantize(weight, kind), raw_dtype=None if as_is else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
