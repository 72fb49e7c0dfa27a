"""A Qwen2 of 55 M parameters with random weights and the tiny policy's tokeniser: what it writes means nothing, but it
takes the time of a model in which the engine is nearly all of the work.
"""

import shutil
from pathlib import Path

from memagent_batch.models.shipped import TINY_MODEL


def save_random_model(folder: Path, *, seed: int = 0) -> str:
    """Writes config, weights and tokeniser; returns the folder."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tiny = Qwen2Config.from_pretrained(TINY_MODEL)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=tiny.vocab_size,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=16,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=tiny.eos_token_id,
        pad_token_id=tiny.pad_token_id,
        dtype="bfloat16",
    )
    Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(TINY_MODEL / name, folder / name)
    return str(folder)
