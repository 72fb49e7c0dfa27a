"""Finds the input files and cuts them into shards, each of which one task indexes."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from memagent_batch.errors import InputError
from memagent_batch.options import Options
from memagent_batch.settings import InputSettings
from memagent_batch.storage.columnar import open_grouped
from memagent_batch.storage.formats import Format, format_of
from memagent_batch.storage.location import Location
from memagent_batch.storage.records import reading

_SHARD_BYTES = 128 * 1024 * 1024
"""Size that a shard is aimed at, bytes: a second or two of reading and hashing."""
_SHARD_FILES = 256
"""Most files of a shard: each costs a request to an object store."""
_FOOTER_THREADS = 16
"""Footers of large files that are read at once."""
_MAGIC = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file of the input."""

    path: str
    """Full URI."""
    name: str
    """Path below the folder or glob root that was asked for; the id of a text document."""
    size_bytes: int
    """Size, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Part of the documents that one task indexes: some files of one format, or some row groups of one file."""

    paths: tuple[str, ...]
    """Full URIs of the files."""
    names: tuple[str, ...]
    """Their paths below the folder or glob root that was asked for; the ids of text documents."""
    format: Format
    """Their format."""
    size_bytes: int
    """Size in the files, bytes; about right for row groups."""
    groups: tuple[int, int] | None = None
    """First row group and the one after the last, of the one file; all by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FormattedFile:
    file: InputFile
    format: Format


def list_shards(documents: Location, *, settings: InputSettings) -> list[Shard]:
    """Shards of the documents, in the order of their paths within each format.

    Args:
        documents: A file, a folder (read with all below it) or a glob. Hidden files, and names that start with `_`,
            are left out of folders and globs.
        settings: Format of the files; `auto` goes by each file's ending.

    Raises:
        InputError: there is no file, or one whose ending is not known, or a large one that can't be opened.
    """
    remedy = "move it away, or say what the files are with --input.format"
    formatted = [
        _FormattedFile(
            file=file,
            format=format_of(file.name, where=file.path, remedy=remedy)
            if settings.format == "auto"
            else Format(settings.format),
        )
        for file in list_files(documents)
    ]
    formatted.sort(key=attrgetter("format"))
    large = [item for item in formatted if _is_large(item)]
    with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
        sizes = threads.map(_group_bytes, large, [documents.storage_options] * len(large))
        split = {item.file.path: list(_split(item, sizes=size)) for item, size in zip(large, sizes, strict=True)}
    shards: list[Shard] = []
    for format_, items in groupby(formatted, key=attrgetter("format")):
        small: list[InputFile] = []
        for item in items:
            if item.file.path in split:
                shards.extend(split[item.file.path])
            else:
                small.append(item.file)
        shards.extend(_packed(small, format_=format_))
    return shards


def list_files(location: Location) -> list[InputFile]:
    """Files of a file, folder or glob, sorted by path.

    Raises:
        InputError: there is none, or the location can't be reached.
    """
    with reading(location.uri):
        info = _info(location)
        fs, path = location.fs, location.path
        if info is not None and info["type"] != "directory":
            return [_input_file(location, info={**info, "name": path}, root=posixpath.dirname(path).rstrip("/") + "/")]
        if info is None and not _MAGIC & set(path):
            raise InputError(f"{location.uri}: no such file or folder; check the path")
        root = f"{path}/" if info is not None else _glob_root(path)
        found = fs.find(path, detail=True) if info is not None else _expand(location)
        files = [
            _input_file(location, info=entry, root=root) for entry in found.values() if _is_shown(entry, root=root)
        ]
    if not files:
        raise InputError(f"{location.uri} holds no files (hidden ones and names that start with _ are left out)")
    return sorted(files, key=attrgetter("path"))


def _info(location: Location) -> Mapping[str, Any] | None:
    """What is at the location itself; None where nothing is. The first touch of its file system.

    Raises:
        InputError: there is no such file system, or not with these options.
    """
    try:
        info: Mapping[str, Any] = location.fs.info(location.path)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{location.uri}: its file system can't be used ({error}); check the protocol and --storage_options"
        ) from error
    return info


def _expand(location: Location) -> dict[str, Mapping[str, Any]]:
    """What a glob matches; folders with all below them, so that no document is left out unseen.

    Raises:
        InputError: the pattern is malformed.
    """
    found: dict[str, Mapping[str, Any]] = {}
    try:
        matches = location.fs.glob(location.path, detail=True)
    except ValueError as error:
        raise InputError(f"{location.uri}: {error}; correct the pattern") from error
    for path, info in matches.items():
        found.update(location.fs.find(path, detail=True) if info["type"] == "directory" else {path: info})
    return found


def _glob_root(path: str) -> str:
    """The folders of a glob before its first wildcard, up to a slash."""
    parts = path.split("/")
    fixed = next(index for index, part in enumerate(parts) if _MAGIC & set(part))
    return "".join(f"{part}/" for part in parts[:fixed])


def _is_shown(info: Mapping[str, Any], *, root: str) -> bool:
    parts = str(info["name"]).removeprefix(root).split("/")
    return bool(parts[-1]) and not any(part.startswith((".", "_")) for part in parts)


def _input_file(location: Location, *, info: Mapping[str, Any], root: str) -> InputFile:
    name = str(info["name"])
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InputError(f"{location.uri}: the file name {name!r} is not valid UTF-8; rename it")
    if info["type"] != "file":
        info = location.fs.info(name)
        if info["type"] == "directory":
            raise InputError(f"{name} is a link to a folder; name that folder itself, or copy it here")
    return InputFile(
        path=_uri(location, name=name), name=name.removeprefix(root), size_bytes=int(info.get("size") or 0)
    )


def _uri(location: Location, *, name: str) -> str:
    """The URI of a file of the location that any process can open: with its host, and the archive it lies in."""
    head, chain, target = location.uri.partition("::")
    if "://" not in head:  # simplecache::s3://bucket/key
        head, chain, target = location.uri, "", ""
    head = head.rstrip("/") if location.path else head
    if location.is_local or not head.endswith(location.path):
        return str(location.fs.unstrip_protocol(name))
    return head.removesuffix(location.path) + name + chain + target


def _is_large(item: _FormattedFile) -> bool:
    return item.format in (Format.PARQUET, Format.ARROW) and item.file.size_bytes > _SHARD_BYTES


def _group_bytes(item: _FormattedFile, storage_options: Options) -> tuple[int, ...]:
    """Size of each row group, bytes."""
    with open_grouped(Location(uri=item.file.path, storage_options=storage_options)) as file:
        return file.group_bytes


def _split(item: _FormattedFile, *, sizes: Sequence[int]) -> Iterator[Shard]:
    """Shards of a large file, of as many row groups as come to `_SHARD_BYTES`."""
    start = 0
    num_bytes = 0
    for group, size in enumerate(sizes):
        num_bytes += size
        if num_bytes >= _SHARD_BYTES or group == len(sizes) - 1:
            yield Shard(
                paths=(item.file.path,),
                format=item.format,
                names=(item.file.name,),
                size_bytes=num_bytes,
                groups=(start, group + 1),
            )
            start, num_bytes = group + 1, 0


def _packed(files: Iterable[InputFile], *, format_: Format) -> Iterator[Shard]:
    """Shards of small files, several together."""
    pack: list[InputFile] = []
    for file in files:
        num_bytes = sum(other.size_bytes for other in pack)
        if pack and (len(pack) == _SHARD_FILES or num_bytes + file.size_bytes > _SHARD_BYTES):
            yield _pack(pack, format_=format_)
            pack = []
        pack.append(file)
    if pack:
        yield _pack(pack, format_=format_)


def _pack(files: Sequence[InputFile], *, format_: Format) -> Shard:
    return Shard(
        paths=tuple(file.path for file in files),
        names=tuple(file.name for file in files),
        format=format_,
        size_bytes=sum(file.size_bytes for file in files),
    )
