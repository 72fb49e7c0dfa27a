"""A folder or file anywhere fsspec reaches: local disk, `s3://`, or any other file system."""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from memagent_batch.errors import StorageError


@dataclass(frozen=True, kw_only=True)
class Location:
    """A URI with the arguments of its file system. Pickles; connects when first used."""

    uri: str
    """Local path or fsspec URL."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of the fsspec file system; may hold secrets, so it is never shown."""

    @cached_property
    def _resolved(self) -> tuple[fsspec.AbstractFileSystem, str]:
        options = {**self.storage_options}
        if self.uri.startswith(("s3://", "s3a://")):
            options.setdefault("use_listings_cache", False)
        fs, path = fsspec.core.url_to_fs(self.uri, **options)
        return fs, path.rstrip("/") or path

    @property
    def fs(self) -> fsspec.AbstractFileSystem:
        """The file system."""
        return self._resolved[0]

    @property
    def path(self) -> str:
        """The place in the file system, without protocol."""
        return self._resolved[1]

    @property
    def is_local(self) -> bool:
        """Whether it lies on a disk of this machine."""
        return isinstance(self.fs, LocalFileSystem)

    def __getstate__(self) -> dict[str, Any]:
        """Drops the connection; the other process makes its own."""
        return {"uri": self.uri, "storage_options": dict(self.storage_options)}

    def __truediv__(self, name: str) -> "Location":
        """A place below this one."""
        return Location(uri=f"{self.uri.rstrip('/')}/{name}", storage_options=self.storage_options)

    def at(self, path: str) -> "Location":
        """The place `path`, as `files` and the file system write it, on the same file system."""
        return Location(uri=self.fs.unstrip_protocol(path), storage_options=self.storage_options)

    def exists(self) -> bool:
        """Whether a file or folder is there."""
        return bool(self.fs.exists(self.path))

    def is_folder(self) -> bool:
        """Whether it is a folder, or a prefix with keys below it."""
        return bool(self.fs.isdir(self.path))

    def files(self) -> list[str]:
        """Paths of all files below this folder, sorted; none where there is no folder; half-written ones left out."""
        if not self.fs.exists(self.path):
            return []
        return sorted(path for path in self.fs.find(self.path) if not Path(path).name.startswith(".tmp-"))

    def open(self) -> IO[bytes]:
        """Opens the file for reading, with seeking."""
        stream: IO[bytes] = self.fs.open(self.path, "rb")
        return stream

    def read_bytes(self) -> bytes:
        """The whole file."""
        return bytes(self.fs.cat_file(self.path))

    def write_bytes(self, data: bytes) -> None:
        """Writes the file whole or not at all, over one that is there.

        An object store's PUT is that already; on a disk a temporary file is synced and takes the name.

        Raises:
            StorageError: nothing was written; names the place and the cause.
        """
        try:
            if self.is_local:
                self._write_local(data)
            else:
                self.fs.pipe_file(self.path, data)
        except Exception as error:  # the boundary to every file system's own exceptions
            raise StorageError(f"{self.uri} can't be written: {type(error).__name__}: {error}") from error

    def _write_local(self, data: bytes) -> None:
        target = Path(self.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f".tmp-{uuid.uuid4().hex}"
        try:
            with temporary.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def delete(self) -> None:
        """Removes the file, or the folder with all below it; nothing where nothing is there."""
        if self.fs.exists(self.path):
            self.fs.rm(self.path, recursive=True)
