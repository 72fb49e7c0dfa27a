"""The training of the reader: trees have the loss of their samples; a stopped run goes on as if it had not stopped."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from memagent_batch.models import packaged
from memagent_batch.models.adapter import merge_adapter
from memagent_batch.models.gguf import convert_gguf
from memagent_batch.models.weights import model_sha256
from memagent_batch.training.learner.trees import Sample, packed, tree_of
from pipelines.recipes.reader import lengths, model, ship, train
from pipelines.recipes.reader.facts import FORMS
from pipelines.recipes.reader.model import Reader, save_adapter
from pipelines.recipes.reader.train import Trainer
from tests.evaluation.test_evaluation_report import write_output
from tests.models.gguf_models import write_gguf

VOCABULARY = 64


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers with random weights, and a tokeniser's files."""
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def _samples(num_samples: int, *, seed: int) -> list[Sample]:
    """Samples whose prompts begin with the same 30 tokens, half of them with the same 40."""
    rng = random.Random(seed)
    start = [rng.randrange(VOCABULARY) for _ in range(40)]
    return [
        Sample(
            prompt=start[: 30 + 10 * (number % 2)] + [rng.randrange(VOCABULARY) for _ in range(9)],
            response=[rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 6))],
        )
        for number in range(num_samples)
    ]


def _random_adapter(reader: Reader) -> None:
    torch.manual_seed(2)
    for _, parameter in reader.trained():
        parameter.data = torch.randn_like(parameter) * 0.1


def test_tree_has_the_loss_of_its_samples_one_by_one(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "QUERIES", 16)
    reader = Reader(base).float()
    _random_adapter(reader)
    samples = _samples(6, seed=1)
    with torch.no_grad():
        together = reader.loss([tree_of(samples)])
        single = [reader.loss([tree_of([sample])]) for sample in samples]
        states = torch.cat([reader._states(tree_of(part)) for part in (samples[:2], samples[2:])])
        reader.model.set_attn_implementation("sdpa")
        filled = reader._together([tree_of(samples[:2]), tree_of(samples[2:])])
    assert float(together) == pytest.approx(sum(map(float, single)), rel=2e-2)
    assert torch.allclose(filled, states, atol=1e-4)
    assert len(tree_of(samples).token_ids) < sum(len(each.prompt) + len(each.response) for each in samples) / 2


def test_packs_hold_all_samples_and_no_tree_is_too_long() -> None:
    samples = _samples(20, seed=2)
    packs = packed(samples, max_tokens=120)
    assert sorted(map(repr, samples)) == sorted(repr(each) for pack in packs for each in pack)
    assert all(len(tree_of(pack).token_ids) <= 120 for pack in packs)
    assert len(packs) < 10


def _run_folder(folder: Path) -> Path:
    (folder / "data").mkdir(parents=True)
    lines = [
        json.dumps({"turns": [{"prompt": each.prompt, "completion": each.response} for each in _samples(4, seed=seed)]})
        for seed in range(5)
    ]
    (folder / "data" / "a.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_stopped_run_goes_on_to_the_same_weights(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(train.STEPS, "cpu", replace(train.STEPS["cpu"], tokens=150))
    monkeypatch.setattr(train, "WARM_UP_STEPS", 1)
    whole = Trainer(_run_folder(tmp_path / "whole"), str(base), all_tokens=1500)
    whole.run()
    stopped = Trainer(_run_folder(tmp_path / "stopped"), str(base), all_tokens=1500)
    monkeypatch.setattr(stopped, "_stops", False)
    stopped._log(stopped._step())
    stopped._log(stopped._step())
    stopped._save()
    Trainer(tmp_path / "stopped", str(base), all_tokens=1500).run()
    logs = [
        [json.loads(line)["loss"] for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("whole", "stopped")
    ]
    assert logs[0] == logs[1]
    assert logs[0][-1] < logs[0][0]
    weights = [
        (tmp_path / name / "adapter" / "adapter_model.safetensors").read_bytes() for name in ("whole", "stopped")
    ]
    assert weights[0] == weights[1]
    begun = Trainer(_run_folder(tmp_path / "begun"), str(base), all_tokens=1500, adapter=tmp_path / "whole" / "adapter")
    begun._save()
    assert (tmp_path / "begun" / "adapter" / "adapter_model.safetensors").read_bytes() == weights[0]


def test_merged_model_writes_as_base_and_adapter_do(base: Path, tmp_path: Path) -> None:
    reader = Reader(base)
    _random_adapter(reader)
    save_adapter(reader, tmp_path / "adapter")
    (tmp_path / "merged").mkdir()
    merge_adapter(base, tmp_path / "adapter", tmp_path / "merged")
    merged = LlamaForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    tree = tree_of([Sample(prompt=[1, 5, 9, 33, 2], response=[40])])
    tokens = torch.from_numpy(tree.token_ids)[None]
    with torch.no_grad():
        theirs = merged(tokens).logits
        ours = reader.float().model(tokens, blocks=model.blocks(tree)).logits
        plain = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)(tokens).logits
    assert (theirs - ours).abs().max() < 0.2 * (plain - ours).abs().max()


def test_mean_of_adapters_counts_one_twice_that_is_named_twice(tmp_path: Path) -> None:
    for name, weight in {"first": 1.0, "second": 5.0}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text("{}")
        save_file({"a": torch.full((2, 3), weight)}, tmp_path / name / "adapter_model.safetensors")
    ship.write_mean([tmp_path / "first", tmp_path / "second", tmp_path / "first"], tmp_path / "mean")
    mean = load_file(tmp_path / "mean" / "adapter" / "adapter_model.safetensors")["a"]
    assert mean.tolist() == torch.full((2, 3), 7 / 3).tolist()


def test_shipped_run_is_installed_as_the_model_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(train.STEPS, "cpu", replace(train.STEPS["cpu"], tokens=150))
    (tmp_path / "small").mkdir()
    convert_gguf(write_gguf(tmp_path / "m.gguf"), tmp_path / "small")
    pinned = model_sha256(str(tmp_path / "small"))
    small = packaged.PackagedModel(requirement="", wheel_sha256="", gguf="", gguf_sha256="", model_sha256=pinned)
    monkeypatch.setattr(packaged, "PACKAGED_MODELS", {"small": small})
    base = packaged.model_place("small")
    base.parent.mkdir(parents=True)
    (tmp_path / "small").rename(base)
    run = _run_folder(tmp_path / "run")
    Trainer(run, str(base), all_tokens=300).run()
    measured = model_sha256(str(ship.merge(run, base)))
    assert measured != model_sha256(str(base))
    write_output(tmp_path / "evaluation", {"gated": 7})
    ship.ship(run, tokens=1_234_567, evaluation=tmp_path / "evaluation", to=tmp_path / "reader")
    card = (tmp_path / "reader" / "README.md").read_text()
    assert "with 1,234,567 training tokens" in card
    assert re.search(
        r"policy \| 2 chunks \| 8 chunks .*\| gated, real files \| 1.00 \(\S+–1.00\) n=4 \| 0.75", card, re.S
    )
    reader = packaged.AdaptedModel(base="small", adapter=tmp_path / "reader")
    monkeypatch.setattr(packaged, "PACKAGED_MODELS", {"reader": reader, "small": small})
    assert model_sha256(str(packaged.install_model("reader"))) == measured


def test_picture_has_each_policy_at_its_shares_and_names_apart(tmp_path: Path) -> None:
    write_output(tmp_path / "trained", {"gated": 7, "heads": 7}, task=FORMS[0])
    write_output(tmp_path / "untrained", {"gated": 2}, task=FORMS[0])
    picture = lengths.drawn(str(tmp_path / "trained"), untrained=str(tmp_path / "untrained"))
    lines = re.findall(r'points="(.*?) "', picture)
    whole, most, half, none = (lengths.height(share) for share in (1, 0.75, 0.5, 0))
    assert lines == [*[f"120,{whole} 540,{most}"] * 2, f"120,{half} 540,{none}"]
    names = re.findall(r'y="(\d+)">([a-z][a-z, ]+)</text>', picture)
    assert names == [(f"{most}", "gated"), (f"{most + 17}", "heads"), (f"{none}", "gated, before training")]
