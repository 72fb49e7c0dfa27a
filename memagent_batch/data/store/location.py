"""A folder or file anywhere fsspec reaches: local disk, `s3://`, or any other file system."""

import contextlib
import errno
import io
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from memagent_batch.config.storage import Options, StorageOptions
from memagent_batch.data.store.errors import storage_errors
from memagent_batch.masking import mask_url

S3_RETRIES: Mapping[str, Any] = {"mode": "standard", "max_attempts": 8}
"""Tries of one request to S3, on 5xx, throttling and broken connections: up to about a minute with their pauses. What
lasts longer is an outage, which the turn log waits out."""
CONFLICTS = frozenset({HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED})
"""What S3 answers to a conditional PUT when another object is there, or in the making."""
DELETE_THREADS = 16
"""Files removed at once, by a request each: s3fs drops what the answer to a bulk request says of a refused key."""
UNCACHED_PROTOCOLS = ("s3://", "s3a://", "gs://", "gcs://", "abfs://", "abfss://", "az://")
"""File systems that would answer from a listing of some seconds ago."""
UNSYNCABLE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF, errno.EACCES})
"""What a file system says that can't sync a folder."""
COPY_BYTES = 1 << 20
"""Bytes of a file that are held while it is copied."""
TEMPORARY = ".tmp-"
"""Beginning of the names of half-written files."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Location:
    """A URI with the arguments of its file system. Pickles; connects when first used. Its text hides its secrets.

    Methods that list, write or remove raise a StorageError that names the place and the cause.
    """

    uri: str
    """Local path or fsspec URL, with the secrets that it may hold; for people take `str` of the location."""
    storage_options: Options = field(default_factory=StorageOptions)
    neighbour: str | None = None
    """URI of a place on the same file system, where `listed_path` names this one; `uri` is then for people only."""
    listed_path: str | None = None
    """Path as the file system lists it: in a URI, characters such as `::`, `?` or `#` would mean something else."""

    def __post_init__(self) -> None:
        """Keeps the arguments where nothing shows them."""
        object.__setattr__(self, "storage_options", StorageOptions(self.storage_options))

    def __repr__(self) -> str:
        return f"Location({mask_url(self.uri)!r})"

    def __str__(self) -> str:
        """The place for messages: without secrets."""
        return mask_url(self.uri)

    @cached_property
    def _resolved(self) -> tuple[fsspec.AbstractFileSystem, str]:
        options = {**self.storage_options}
        uri = self.uri if self.neighbour is None else self.neighbour
        if uri.startswith(UNCACHED_PROTOCOLS):
            options.setdefault("use_listings_cache", False)
        if uri.startswith(("s3://", "s3a://")):
            _retry_throttled()
            options.setdefault("max_concurrency", 1)  # else it asks for the size of each file before it reads it
            config = {"retries": S3_RETRIES, **options.get("config_kwargs", {})}
            options["config_kwargs"] = config | {"retries": {**config["retries"]}}  # botocore writes into it
        fs, path = fsspec.core.url_to_fs(uri, **options)
        if uri.startswith(("s3://", "s3a://")):
            _parse_times_fast(fs)
        if self.listed_path is not None:
            return fs, self.listed_path
        path = path.rstrip("/") or path
        return fs, _normal_path(path) if isinstance(fs, LocalFileSystem) else path

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

    def __getstate__(self) -> dict[str, object]:
        """Drops the connection; the other process makes its own."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __truediv__(self, name: str) -> "Location":
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
        """Whether a file or folder is there.

        Raises:
            StorageError: nobody can tell. fsspec's own `exists` takes any error of a disk for a no.
        """
        with storage_errors(self.uri):
            return self._info() is not None

    def _info(self) -> Mapping[str, Any] | None:
        try:
            info: Mapping[str, Any] = self.fs.info(self.path)
        except (FileNotFoundError, NotADirectoryError):  # the second: below a file there is nothing
            return None
        return info

    def files(self, *, begins: str = "", temporary: bool = False) -> list[str]:
        """Paths of all files below this folder, sorted; none if there is no folder.

        An object store lists those alone whose names begin so; others list all. A disk may have half-written files,
        which are left out unless they are wanted.
        """
        paths: list[str] = []
        with storage_errors(self.uri):
            if self.is_s3:
                with contextlib.suppress(FileNotFoundError):  # the bucket does not exist
                    paths = [path for path, _ in self.keys_below(begins=begins)]
            elif self._info() is None:
                return []
            elif self.is_local:
                paths = _files_below(Path(self.path))
            else:
                paths = list(self.fs.find(self.path, **({"prefix": begins} if begins else {})))
        return sorted(path for path in paths if temporary or not path.rsplit("/", 1)[-1].startswith(TEMPORARY))

    def keys_below(self, *, begins: str = "", delimiter: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Path of each key of a bucket below this place, and what S3 says of it: a request for each 1,000.

        s3fs would first ask for a folder, which S3 does not have, and hold a kilobyte of each key. With the delimiter
        `/` only those directly below are listed.
        """
        bucket, folder, _ = self.fs.split_path(self.path)
        asked = {"Bucket": bucket, "Prefix": f"{folder}/{begins}" if folder else begins, "Delimiter": delimiter}
        while True:
            page = self.fs.call_s3("list_objects_v2", **asked)
            keys = ((f"{bucket}/{each['Key']}", each) for each in page.get("Contents", ()))
            yield from ((path, each) for path, each in keys if not path.endswith("/"))
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def open(self) -> IO[bytes]:
        """Opens the file for reading, with seeking."""
        stream: IO[bytes] = self.fs.open(self.path, "rb")
        return stream

    def copy_to(self, path: Path) -> None:
        """Copies the file to a local path. From S3 that is one request; reading through `open` would be two."""
        if self.is_s3:
            self.fs.get_file(self.path, str(path))
            return
        with self.open() as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, COPY_BYTES)

    def read_bytes(self) -> bytes:
        """The whole file."""
        return bytes(self.fs.cat_file(self.path))

    def read_bytes_if_there(self) -> bytes | None:
        """The content of the file; None if there is no file.

        Raises:
            StorageError: it can't be read.
        """
        with storage_errors(self.uri), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return self.read_bytes()  # the second: below a file there is nothing
        return None

    def write_bytes(self, data: bytes) -> None:
        """Writes the file whole or not at all, over one that is there.

        An object store's PUT is that already; on a disk a temporary file is synced and takes the name. Other file
        systems (SFTP, HDFS, SMB) may leave a part of the file if the connection breaks.
        """
        with storage_errors(self.uri, done="written"):
            if self.is_local:
                _write_whole(Path(self.path), io.BytesIO(data))
            else:
                self.fs.pipe_file(self.path, data)

    def write_file(self, file: Path) -> None:
        """Writes the content of a local file whole or not at all, without holding it in memory."""
        with storage_errors(self.uri, done="written"):
            if self.is_local:
                with file.open("rb") as source:
                    _write_whole(Path(self.path), source)
            else:
                self.fs.put_file(str(file), self.path)

    def create(self, data: bytes) -> bool:
        """Writes the file whole, unless one is there; returns whether this very file is there now.

        Of several that try, one succeeds: by a hard link on a disk, by a conditional PUT on S3 and Google's store. On
        other file systems and mounted buckets, two that try in the same moment may both believe that they did.
        """
        with storage_errors(self.uri, done="written"):
            try:
                if self.is_local:
                    _create_whole(Path(self.path), io.BytesIO(data))
                else:
                    self.fs.pipe_file(self.path, data, mode="create")
            except OSError as error:  # of stores that refuse a conditional PUT, not all say FileExistsError
                if _http_status(error) not in CONFLICTS and not self.exists():
                    raise
                return self._holds(data)  # a PUT whose answer was lost is sent again, and finds itself
        return True

    def _holds(self, data: bytes) -> bool:
        return self.exists() and self.read_bytes() == data

    @property
    def is_s3(self) -> bool:
        """Whether it lies in a bucket of an S3 API."""
        return "s3" in self.fs.protocol

    def delete(self) -> None:
        """Removes the file, or the folder with all below it; nothing where nothing is there."""
        with storage_errors(self.uri, done="removed"), contextlib.suppress(FileNotFoundError):
            if self._info() is None:
                return
            if self.is_local:
                self.fs.rm(self.path, recursive=True)
            else:
                self.delete_files(self.fs.find(self.path))

    def delete_files(self, paths: Collection[str]) -> None:
        """Removes files of this file system, by their paths as `files` lists them; those that are gone are passed over.

        A path is taken letter by letter: fsspec's `rm` would expand `[`, `*` and `?` in it.
        """
        with storage_errors(self.uri, done="removed"), ThreadPoolExecutor(DELETE_THREADS) as threads:
            for removal in [threads.submit(self._delete_file, path) for path in paths]:
                removal.result()

    def _delete_file(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(path)


def absolute(place: str | os.PathLike[str]) -> str:
    """A place as processes with another working directory find it: a URI as it is, a path from the root."""
    name = os.fspath(place)
    return name if "://" in name or "::" in name else str(Path(name).absolute())


def _http_status(error: OSError) -> int | None:
    """What S3 answered, where s3fs made an OSError of it."""
    answer = getattr(error.__cause__, "response", None) or {}
    status: int | None = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status


def _retry_throttled() -> None:
    """Has s3fs try again what botocore does not: an answer 429 without a body that names an error."""
    from botocore.exceptions import ClientError
    from s3fs.core import set_custom_error_handler

    def is_throttled(error: Exception) -> bool:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"] if isinstance(error, ClientError) else 0
        return bool(status == 429)

    set_custom_error_handler(is_throttled)


def _parse_times_fast(fs: Any) -> None:
    """Has a file system of S3 read ISO times by Python's own parser.

    botocore's would take 70 µs for that of each listed key, five times as long as for all else of it.
    """
    from aiobotocore.session import AioSession
    from botocore.utils import parse_timestamp

    def parse(value: Any) -> datetime:
        try:
            return datetime.fromisoformat(value)
        except (TypeError, ValueError):  # the date of a header, or seconds
            parsed: datetime = parse_timestamp(value)
            return parsed

    if fs.session is None:  # as s3fs would make it
        session = AioSession(**fs.kwargs)
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse)
        fs.session = session


def _normal_path(path: str) -> str:
    """The same place as listings write it: without `//`, `/./` and `..`.

    Links on the way to the last `..` are resolved, as the disk itself does.
    """
    path = str(Path(path))
    above, mark, below = f"{path}/".rpartition("/../")
    if not mark:
        return path
    return f"{os.path.realpath(above + mark).rstrip('/')}/{below}".rstrip("/") or "/"


def _files_below(path: Path) -> list[str]:
    """Paths of all files below a folder; the path itself where it is a file.

    fsspec's own walk passes over folders that can't be read, or from which a file vanishes meanwhile.

    Raises:
        OSError: a folder can't be listed.
    """
    if path.is_file():
        return [str(path)]

    def raise_unless_gone(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    walk = os.walk(path, onerror=raise_unless_gone)
    return [f"{folder}/{name}" for folder, _, names in walk for name in names]


def _write_whole(place: Path, source: IO[bytes]) -> None:
    """Writes a file whole or not at all, over one that is there; syncs the folder too, which has its name."""
    with _synced_temporary(place, source) as temporary:
        temporary.replace(place)
    _sync_folder(place.parent)


def _create_whole(place: Path, source: IO[bytes]) -> None:
    """Writes a file whole or not at all, durably.

    Raises:
        OSError: a file of this name is there.
    """
    with _synced_temporary(place, source) as temporary:
        try:
            os.link(temporary, place)
        except OSError:  # it is there, or this disk knows no hard links, as buckets that are mounted like a disk
            if os.path.lexists(place):
                raise
            temporary.replace(place)
    _sync_folder(place.parent)


@contextlib.contextmanager
def _synced_temporary(place: Path, source: IO[bytes]) -> Iterator[Path]:
    """What the source gives, in a synced file beside the place; gone when the block ends."""
    _make_folder(place.parent)
    temporary = place.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with temporary.open("wb") as stream:
            shutil.copyfileobj(source, stream)
            stream.flush()
            os.fsync(stream.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    """Makes the folder and those above it, durably."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        _sync_folder(made.parent)


def _sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable, where its file system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # a folder that may be written and not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSYNCABLE:
            raise
    finally:
        os.close(descriptor)
