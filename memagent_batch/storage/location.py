"""A folder or file anywhere fsspec reaches: local disk, `s3://`, or any other file system."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from memagent_batch.errors import MemagentError, StorageError, StorageOutageError
from memagent_batch.masking import shown
from memagent_batch.options import Options, StorageOptions

S3_RETRIES = {"mode": "standard", "max_attempts": 8}
"""Tries of one request to S3, on 5xx, throttling and broken connections: up to about a minute with their pauses. What
lasts longer is an outage, which the turn log waits out."""

LASTING_ERRORS = (PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
"""What another try can't mend. A full disk is not among them: room may be made."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Location:
    """A URI with the arguments of its file system. Pickles; connects when first used. Its text hides its secrets."""

    uri: str
    """Local path or fsspec URL, with the secrets that it may hold; for people take `str` of the location."""
    storage_options: Options = field(default_factory=StorageOptions)
    """Arguments of the fsspec file system."""

    def __post_init__(self) -> None:
        """Keeps the arguments where nothing shows them."""
        object.__setattr__(self, "storage_options", StorageOptions(self.storage_options))

    def __repr__(self) -> str:
        """Shows the place without secrets."""
        return f"Location({shown(self.uri)!r})"

    def __str__(self) -> str:
        """The place for messages: without secrets."""
        return shown(self.uri)

    def cause(self, error: Exception) -> Exception | None:
        """What a message about this place is raised `from`; nothing if a traceback of it would show a secret."""
        return cause(error, uri=self.uri)

    @cached_property
    def _resolved(self) -> tuple[fsspec.AbstractFileSystem, str]:
        options = {**self.storage_options}
        if self.uri.startswith(("s3://", "s3a://")):
            _retry_throttled_s3()
            options.setdefault("use_listings_cache", False)
            options["config_kwargs"] = {"retries": S3_RETRIES, **options.get("config_kwargs", {})}
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
        return {"uri": self.uri, "storage_options": self.storage_options}

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
    except Exception as error:  # noqa: BLE001 - the boundary to every file system's own exceptions
        kind = StorageError if isinstance(error, LASTING_ERRORS) else StorageOutageError
        message = f"{shown(uri)} can't be {done}: {type(error).__name__}: {error}"
        raise kind(message) from cause(error, uri=uri)


def cause(error: Exception, *, uri: str) -> Exception | None:
    """What a message about `uri` is raised `from`: nothing if a traceback of `error` could show a secret of the URI."""
    return error if shown(uri) == uri else None
