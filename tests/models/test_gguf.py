import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType
from gguf.quants import dequantize, quantize
from safetensors.torch import load_file

from memagent_batch.config.agent import AgentConfig
from memagent_batch.errors import SettingsError
from memagent_batch.loop.models.gguf import convert_gguf
from memagent_batch.run.wiring import make_template, make_tokenizer, resolve_model
from tests.models.gguf_models import HIDDEN, TOKENS, make_weights, write_gguf


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", [GGMLQuantizationType.F32, GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_1])
def test_converted_weights_are_those_of_the_file(tmp_path: Path, kind: GGMLQuantizationType) -> None:
    weights = make_weights()
    convert_gguf(write_gguf(tmp_path / "m.gguf", weights, kind=kind), tmp_path)
    converted = load_file(tmp_path / "model.safetensors")
    assert len(converted) == len(weights)
    pairs = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "model.layers.1.self_attn.q_proj.weight": "blk.1.attn_q.weight",
        "model.layers.0.self_attn.k_proj.weight": "blk.0.attn_k.weight",
        "model.layers.1.mlp.down_proj.weight": "blk.1.ffn_down.weight",
    }
    for name, source in pairs.items():
        expected = weights[source]
        if expected.ndim == 2 and kind is not GGMLQuantizationType.F32:
            expected = dequantize(quantize(expected, kind), kind).reshape(expected.shape)
        assert torch.equal(converted[name], torch.tensor(expected).to(torch.bfloat16))


def test_converted_config_has_the_settings_of_the_file(tmp_path: Path) -> None:
    convert_gguf(write_gguf(tmp_path / "m.gguf"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    expected = {"hidden_size": HIDDEN, "head_dim": 16, "num_key_value_heads": 2, "eos_token_id": 2}
    assert (expected | {"rms_norm_eps": 1e-05}).items() <= config.items()
    assert (config["vocab_size"], config["tie_word_embeddings"]) == (len(TOKENS), True)


def test_gguf_file_as_model_is_read_with_its_own_tokeniser_and_template(tmp_path: Path) -> None:
    agent = AgentConfig(model=str(write_gguf(tmp_path / "m.gguf")))
    assert (Path(resolve_model(agent.model)) / "model.safetensors").is_file()
    tokenizer = make_tokenizer(agent)
    assert tokenizer.decode(tokenizer.encode("Blåbær 42")) == "Blåbær 42"
    assert make_template(agent).render("hi", values={}) == "<|im_start|>hi<|im_end|>"


def test_gguf_file_of_other_weights_has_another_folder(tmp_path: Path) -> None:
    files = [write_gguf(tmp_path / f"{seed}.gguf", make_weights(seed)) for seed in (1, 2)]
    folders = [resolve_model(str(file)) for file in files]
    assert len(set(folders)) == 2
    assert resolve_model(str(files[0])) == folders[0]


STRANGE_WEIGHTS = make_weights() | {"rope_freqs.weight": np.ones(8, np.float32)}
LACKING_WEIGHTS = {name: each for name, each in make_weights().items() if name != "blk.1.attn_k.weight"}
LONGER_VOCABULARY = make_weights() | {"token_embd.weight": np.ones((len(TOKENS) + 1, HIDDEN), np.float32)}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"family": "gemma3"}, r"m\.gguf is a GGUF file of the family 'gemma3'; only 'llama'"),
        ({"weights": STRANGE_WEIGHTS}, r"holds 'rope_freqs\.weight'"),
        ({"weights": LACKING_WEIGHTS}, r"lacks the weight 'model\.layers\.1\.self_attn\.k_proj\.weight'"),
        ({"weights": LONGER_VOCABULARY}, r"holds 'token_embd\.weight' of the shape \[261, 64\]"),
        ({"scaling": RopeScalingType.YARN}, r"m\.gguf has scaled positions \(yarn\)"),
    ],
    ids=[
        "another family",
        "a strange weight",
        "a weight that is not there",
        "a weight of another shape",
        "scaled positions",
    ],
)
def test_gguf_file_that_can_not_be_converted_is_refused_by_what_it_has(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        resolve_model(str(write_gguf(tmp_path / "m.gguf", **settings)))


def test_gguf_file_without_a_setting_is_refused_rather_than_given_a_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GGUFWriter, "add_context_length", lambda *_: None)
    with pytest.raises(SettingsError, match=r"has no 'llama\.context_length'"):
        resolve_model(str(write_gguf(tmp_path / "m.gguf")))


def test_file_that_is_no_gguf_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF, or so it says, but it ends here")
    with pytest.raises(SettingsError, match="not a whole GGUF file"):
        resolve_model(str(tmp_path / "m.gguf"))
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
