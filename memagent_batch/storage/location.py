"""A folder or file anywhere fsspec reaches: local disk, `s3://`, or any other file system."""

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from memagent_batch.errors import MemagentError, StorageError, StorageOutageError

S3_RETRIES = {"mode": "standard", "max_attempts": 8}
"""Tries of one request to S3, on 5xx, throttling and broken connections: up to about a minute with their pauses. What
lasts longer is an outage, which the turn log waits out."""

LASTING_ERRORS = (PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
"""What another try can't mend. A full disk is not among them: room may be made."""


@dataclass(frozen=True, kw_only=True)
class Location:
    """A URI with the arguments of its file system. Pickles; connects when first used."""

    uri: str
    """Local path or fsspec URL."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of the fsspec file system; may hold secrets, so it is never shown."""
    neighbour: str | None = None
    """URI of a place on the same file system, where `listed_path` names this one; `uri` is then for people only."""
    listed_path: str | None = None
    """Path as the file system lists it: in a URI, characters such as `::`, `?` or `#` would mean something else."""

    @cached_property
    def _resolved(self) -> tuple[fsspec.AbstractFileSystem, str]:
        options = {**self.storage_options}
        uri = self.uri if self.neighbour is None else self.neighbour
        if uri.startswith(("s3://", "s3a://")):
            _retry_throttled_s3()
            options.setdefault("use_listings_cache", False)
            options.setdefault("max_concurrency", 1)  # else it asks for the size of each file before it reads it
            options["config_kwargs"] = {"retries": S3_RETRIES, **options.get("config_kwargs", {})}
        fs, path = fsspec.core.url_to_fs(uri, **options)
        return fs, (path.rstrip("/") or path) if self.listed_path is None else self.listed_path

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
        return {
            "uri": self.uri,
            "storage_options": dict(self.storage_options),
            "neighbour": self.neighbour,
            "listed_path": self.listed_path,
        }

    def __truediv__(self, name: str) -> "Location":
        """A place below this one."""
        path = None if self.listed_path is None else f"{self.listed_path.rstrip('/')}/{name}"
        return replace(self, uri=f"{self.uri.rstrip('/')}/{name}", listed_path=path)

    def at(self, path: str) -> "Location":
        """The place `path`, as `files` and the file system write it, on the same file system.

        No name in it is parsed, so a file called `a::b.txt` is that file. It shares the connection of this location.
        """
        place = replace(
            self,
            uri=self._uri_at(path),
            neighbour=self.uri if self.neighbour is None else self.neighbour,
            listed_path=path,
        )
        place.__dict__["_resolved"] = (self.fs, path)
        return place

    def _uri_at(self, path: str) -> str:
        """How `path` is shown to people: with its host, and the archive that it lies in."""
        if self.neighbour is not None:
            return Location(uri=self.neighbour, storage_options=self.storage_options)._uri_at(path)
        head, chain, target = self.uri.partition("::")
        if "://" not in head:  # simplecache::s3://bucket/key
            head, chain, target = self.uri, "", ""
        head = head.rstrip("/") if self.path else head
        if self.is_local or not head.endswith(self.path):
            return str(self.fs.unstrip_protocol(path))
        return head.removesuffix(self.path) + path + chain + target

    def exists(self) -> bool:
        """Whether a file or folder is there."""
        return bool(self.fs.exists(self.path))

    def is_folder(self) -> bool:
        """Whether it is a folder, or a prefix with keys below it."""
        return bool(self.fs.isdir(self.path))

    def files(self, *, begins: str = "") -> list[str]:
        """Paths of all files below this folder, sorted; none where there is no folder; half-written ones left out.

        `begins` names how the names of wanted files begin; an object store then lists those alone, others list all.
        """
        if not self.fs.exists(self.path):
            return []
        found = self.fs.find(self.path, **({"prefix": begins} if begins else {}))
        return sorted(path for path in found if not Path(path).name.startswith(".tmp-"))

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
        with storage_errors(self.uri, done="written"):
            if self.is_local:
                with self._temporary(data) as temporary:
                    temporary.replace(self.path)
            else:
                self.fs.pipe_file(self.path, data)

    def create(self, data: bytes) -> bool:
        """Writes the file whole, unless one is there; tells whether this very file is there now.

        Of several that try, one succeeds: by a hard link on a disk, by a conditional PUT on S3 and Google's store. On
        other file systems and mounted buckets, two that try in the same moment may both believe that they did.

        Raises:
            StorageError: nothing was written; names the place and the cause.
        """
        with storage_errors(self.uri, done="written"):
            try:
                if self.is_local:
                    with self._temporary(data) as temporary:
                        self._link(temporary)
                else:
                    self.fs.pipe_file(self.path, data, mode="create")
            except OSError:  # of stores that refuse a conditional PUT, not all say FileExistsError
                if not self.exists():
                    raise
                return self.read_bytes() == data  # a PUT whose answer was lost is sent again, and finds itself
        return True

    def _link(self, temporary: Path) -> None:
        try:
            os.link(temporary, self.path)
        except OSError:  # it is there, or this disk knows no hard links, as buckets that are mounted like a disk
            if self.exists():
                raise
            temporary.replace(self.path)

    @contextlib.contextmanager
    def _temporary(self, data: bytes) -> Iterator[Path]:
        """The data in a synced file beside the place; gone when the block ends."""
        folder = Path(self.path).parent
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".tmp-{uuid.uuid4().hex}"
        try:
            with temporary.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    def delete(self) -> None:
        """Removes the file, or the folder with all below it; nothing where nothing is there."""
        with storage_errors(self.uri, done="removed"), contextlib.suppress(FileNotFoundError):
            if self.fs.exists(self.path):
                self.fs.rm(self.path, recursive=True)


def _retry_throttled_s3() -> None:
    """Has s3fs try again what botocore does not: an answer 429 without a body that names an error."""
    from botocore.exceptions import ClientError
    from s3fs.core import set_custom_error_handler

    def is_throttled(error: Exception) -> bool:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 0
        return bool(status == 429)

    set_custom_error_handler(is_throttled)


@contextlib.contextmanager
def storage_errors(uri: str, *, done: str = "read") -> Iterator[None]:
    """Turns what a file system raises while the block uses `uri` into a StorageError.

    Raises:
        StorageError: the place is refused or not there.
        StorageOutageError: the store does not answer, is overloaded or full.
    """
    try:
        yield
    except MemagentError:
        raise
    except Exception as error:  # the boundary to every file system's own exceptions
        kind = StorageError if isinstance(error, LASTING_ERRORS) else StorageOutageError
        raise kind(f"{uri} can't be {done}: {type(error).__name__}: {error}") from error
