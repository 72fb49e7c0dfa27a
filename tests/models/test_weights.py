import os
import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest

from memagent_batch.loop.models import weights
from memagent_batch.loop.models.weights import model_sha256

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER_COMMIT = "f" * 40


def save_model(folder: Path, **files: bytes) -> str:
    """A model folder; an underscore in a file's name here stands for its dot."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"config_json": b"{}", "model_safetensors": b"weights"} | files
    for name, content in contents.items():
        (folder / ".".join(name.rsplit("_", 1))).write_bytes(content)
    return str(folder)


def save_in_cache(cache: Path, commit: str) -> None:
    """What the hub's client leaves of a download of org/name."""
    repository = cache / "models--org--name"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
    save_model(repository / "snapshots" / commit)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, without network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    weights._hub_sha256.cache_clear()
    return tmp_path / "cache"


def test_model_sha256_of_a_copy_is_the_same(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", tokenizer_json=b"1")
    copy = shutil.copytree(model, tmp_path / "copy")
    (copy / "tokenizer.json").write_bytes(b"2")
    assert model_sha256(str(copy)) == model_sha256(model)
    assert len(bytes.fromhex(model_sha256(model))) == 32


@pytest.mark.parametrize(
    "files",
    [
        {"model_safetensors": b"Weights"},
        {"model_safetensors": b"weights."},
        {"config_json": b'{"a": 1}'},
        {"generation_config_json": b"{}"},
        {"more_bin": b"1"},
        {"more_gguf": b""},
    ],
)
def test_model_sha256_of_other_weights_or_config_differs(tmp_path: Path, files: dict[str, bytes]) -> None:
    assert model_sha256(save_model(tmp_path / "b", **files)) != model_sha256(save_model(tmp_path / "a"))


def test_model_sha256_sees_that_weights_were_written_again_in_the_same_process(tmp_path: Path) -> None:
    first = model_sha256(save_model(tmp_path))
    os.utime(tmp_path / "model.safetensors", (1, 1))
    assert model_sha256(str(tmp_path)) == first
    assert model_sha256(save_model(tmp_path, model_safetensors=b"trained")) != first


def test_model_sha256_of_a_renamed_weight_file_differs(tmp_path: Path) -> None:
    first, second = save_model(tmp_path / "a"), save_model(tmp_path / "b")
    (tmp_path / "b" / "model.safetensors").rename(tmp_path / "b" / "other.safetensors")
    assert model_sha256(first) != model_sha256(second)


@pytest.mark.parametrize("place", [0, 10, 64 * 100 + 5, 9_999])
def test_model_sha256_of_a_large_file_sees_a_change_as_long_as_the_gap(
    tmp_path: Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "WHOLE_FILE_BYTES", 1000)
    monkeypatch.setattr(weights, "EDGE_BYTES", 100)
    monkeypatch.setattr(weights, "BLOCK_BYTES", 10)
    gap = 9_800 // weights.NUM_BLOCKS + 1
    content = bytes(10_000)
    changed = content[:place] + b"\1" * gap + content[place + gap :]
    first = model_sha256(save_model(tmp_path / "a", model_safetensors=content))
    assert first != model_sha256(save_model(tmp_path / "b", model_safetensors=changed[:10_000]))


def test_model_sha256_of_one_weight_file_is_that_of_its_content(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        save_model(tmp_path / name, model_gguf=content)
    first, second, third = (model_sha256(str(tmp_path / name / "model.gguf")) for name in "abc")
    assert first == second != third


def test_model_sha256_of_a_hub_name_follows_the_commit(cache: Path) -> None:
    save_in_cache(cache, COMMIT)
    first = model_sha256("org/name")
    weights._hub_sha256.cache_clear()
    assert model_sha256("org/name") == first
    save_in_cache(cache, OTHER_COMMIT)
    weights._hub_sha256.cache_clear()
    assert model_sha256("org/name") != first


def test_model_sha256_of_a_hub_name_that_is_nowhere_is_that_of_the_name(cache: Path) -> None:
    assert not cache.exists()
    assert len({model_sha256("org/name"), model_sha256("org/other"), model_sha256("name")}) == 3
