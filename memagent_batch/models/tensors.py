"""Weights in safetensors files, as numpy arrays: numpy has no bfloat16, and torch is not needed to copy weights."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

DTYPES: Mapping[str, str] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Types of weights that are read, as safetensors and numpy name them; bfloat16 is read as its 16 bits."""

ALIGNED_BYTES = 8
"""The header's length is a multiple of this, bytes, as the format asks."""


class Weights(Protocol):
    """The weights of a model, one at a time, so that the memory for them is that of the largest."""

    @property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """Shape of each weight by its name."""

    def read(self, name: str) -> Floats:
        """One weight, as float32."""


class TensorFile:
    """A safetensors file of F32, F16 or BF16 weights; the same file gives the same arrays everywhere."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header: dict[str, Any] = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        self._start, self._header = 8 + length, header

    @property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """Shape of each weight by its name."""
        return {name: entry["shape"] for name, entry in self._header.items()}

    def read(self, name: str) -> Floats:
        """One weight, as float32.

        Raises:
            KeyError: the file has no such weight, or it is not of a type in `DTYPES`.
        """
        entry = self._header[name]
        dtype, (start, end) = np.dtype(DTYPES[entry["dtype"]]), entry["data_offsets"]
        values = np.fromfile(self.path, dtype, (end - start) // dtype.itemsize, offset=self._start + start)
        if entry["dtype"] == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32, copy=False).reshape(entry["shape"])


def write_bfloat16(path: Path, weights: Weights) -> None:
    """Writes weights to one safetensors file, rounded to bfloat16; the same weights give the same bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in sorted(weights.shapes.items()):
        end = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED_BYTES)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for data in _rounded(weights):
            data.tofile(stream)


def _rounded(weights: Weights) -> Iterator[NDArray[np.uint16]]:
    """The weights by name, each as the 16 bits of the nearest bfloat16; of two that are equally near, the even one."""
    for name in sorted(weights.shapes):
        bits = np.ascontiguousarray(weights.read(name), "<f4").view(np.uint32)
        yield ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
