"""Identity of a model's weights, for the fingerprint: other weights can't pick up stale results."""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from memagent_batch.errors import SettingsError
from memagent_batch.loop.tokens.pretrained import hub_failure, names_folder

WEIGHT_ENDINGS = frozenset({".safetensors", ".bin", ".gguf", ".pt", ".pth"})
"""Endings of files that hold weights."""

CONFIG_FILES = ("config.json", "generation_config.json", "hf_quant_config.json", "quantize_config.json")
"""Files beside the weights that change what a model writes."""

WHOLE_FILE_BYTES = 64 * 1024 * 1024
"""Files up to this size are hashed whole, bytes; larger ones by samples, so that 140 GB take seconds, not minutes."""

EDGE_BYTES = 1024 * 1024
"""Hashed at each end of a larger file, bytes: its header, with names and shapes of the tensors, and its last tensor."""

NUM_BLOCKS = 64
"""Blocks hashed between the ends of a larger file, evenly spaced."""

BLOCK_BYTES = 64 * 1024
"""Size of such a block, bytes."""


def model_sha256(model: str) -> str:
    """Hash of a set of weights, 64 hex digits; of a file that has not changed it is computed once in a process.

    A folder is hashed by its config files and by name, size and content of every weight file at its top, so a copy has
    the same hash. Of a weight file over 64 MiB the content is sampled: the first and last MiB and 64 blocks between.
    Training, merging and quantising change nearly every byte and are seen; an edit within less than a 64th of a file
    that keeps its size may not be: name it in `weights_version`.

    A hub name is hashed by the commit that it stands for now; only its config file is fetched. Without network that is
    the commit in the local cache; without either, the name itself.

    Args:
        model: a folder, a weight file, or a hub name.

    Raises:
        SettingsError: the folder holds no weight file, the path does not exist, or a file can't be read.
    """
    path = Path(model)
    try:
        if path.is_dir():
            weights = sorted(file for file in path.iterdir() if file.suffix in WEIGHT_ENDINGS and file.is_file())
            if not weights:
                endings = ", ".join(sorted(WEIGHT_ENDINGS))
                raise SettingsError(
                    f"model: the folder {path} has no weight file ({endings}); copy the weights into it"
                )
            return _files_sha256([*(path / name for name in CONFIG_FILES if (path / name).is_file()), *weights])
        if path.is_file():
            return _files_sha256([path])
    except OSError as error:
        raise SettingsError(f"model: {error.filename} can't be read: {error.strerror}") from error
    if names_folder(model):
        raise SettingsError(f"model: there is no folder {model}; give a model folder or a hub name")
    return _hub_sha256(model)


def weights_version(sha256: str) -> str:
    """What tables call the weights with this hash, where the user gave them no name: its first 16 digits."""
    return sha256[:16]


def _files_sha256(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        content = _content_sha256(path, size=status.st_size, times=(status.st_mtime_ns, status.st_ctime_ns))
        digest.update(f"{path.name}\0{status.st_size}\0{content}\n".encode())
    return digest.hexdigest()


@lru_cache(maxsize=1024)
def _content_sha256(path: Path, *, size: int, times: tuple[int, int]) -> str:
    with path.open("rb") as stream:
        if size <= WHOLE_FILE_BYTES:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        return _sampled_sha256(stream, size=size)


def _sampled_sha256(stream: BinaryIO, *, size: int) -> str:
    """Hash of the two ends and of blocks whose starts divide what is between them evenly."""
    digest = hashlib.sha256(stream.read(EDGE_BYTES))
    between = size - 2 * EDGE_BYTES
    for index in range(NUM_BLOCKS):
        stream.seek(EDGE_BYTES + index * between // NUM_BLOCKS)
        digest.update(stream.read(BLOCK_BYTES))
    stream.seek(size - EDGE_BYTES)
    digest.update(stream.read(EDGE_BYTES))
    return digest.hexdigest()


@lru_cache(maxsize=8)
def _hub_sha256(model: str) -> str:
    from huggingface_hub import snapshot_download

    try:
        # The commit that an engine would load now; fetching its config keeps it known for a later run without network.
        snapshot = snapshot_download(model, allow_patterns=["config.json"], local_files_only=hub_failure() is not None)
    except (OSError, ValueError):
        return hashlib.sha256(f"hub name {model}".encode()).hexdigest()
    return hashlib.sha256(f"hub commit {Path(snapshot).name}".encode()).hexdigest()
