"""Cuts the input files into shards. One task indexes a shard."""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from fsspec.utils import glob_translate

from memagent_batch.config import InputConfig, OnBadFile
from memagent_batch.errors import InputError, InputUnreachableError
from memagent_batch.files.location import Location
from memagent_batch.inputs.columnar import open_grouped
from memagent_batch.inputs.formats import UNKNOWN_REMEDY, Format, format_of, is_named_text
from memagent_batch.inputs.listing import InputFile, list_places

_SHARD_BYTES = 128 * 1024 * 1024
"""Size that a shard is aimed at, bytes: a second or two of reading and hashing."""
_SHARD_FILES = 256
"""Most files of a shard: each costs a request to an object store."""
_FOOTER_THREADS = 16
"""Footers of large files that are read at once."""
_COLUMNED = frozenset({Format.PARQUET, Format.JSONL, Format.CSV, Format.ARROW})
"""Formats of many documents a file; a text file beside such a file is more likely a note than a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Part of the documents that one task indexes: some files of one format, or some row groups of one file."""

    documents: str
    """URI of the documents, or of one of their places: it names the file system of the paths."""
    root: str
    """What the paths begin with, up to the ids of text documents."""
    paths: tuple[str, ...]
    """Paths of the files on their file system; at a million files they are most of what the driver holds."""
    format: Format
    """Their format."""
    size_bytes: int
    """Size in the files, bytes; about right for row groups."""
    groups: tuple[int, int] | None = None
    """First row group and the one after the last, of the one file; all by default."""

    @property
    def names(self) -> tuple[str, ...]:
        """Paths below the folder or glob root that was asked for; the ids of text documents."""
        return tuple(path.removeprefix(self.root) for path in self.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundShards:
    """What there is to index."""

    shards: list[Shard]
    """The shards, in the order of their paths within each format."""
    left_out: tuple[str, ...] = ()
    """Names of text files that are left out, since they stand beside files with columns."""

    def num_files(self, format_: Format) -> int:
        """Files of a format."""
        return len({path for shard in self.shards if shard.format is format_ for path in shard.paths})


def list_shards(*documents: Location, settings: InputConfig) -> list[Shard]:
    """The shards of `find_shards`."""
    return find_shards(*documents, settings=settings).shards


def find_shards(*documents: Location, settings: InputConfig) -> FoundShards:
    """The files of the documents, cut into shards.

    Args:
        documents: Files, folders (read with all below them) or globs, all on one file system. Hidden files, and names
            that start with `_`, are left out of folders and globs.
        settings: Format of the files; `auto` goes by each file's ending.

    Raises:
        InputError: there is no file, or one whose ending is not known, or a large one that can't be opened (with
            `on_bad_file: record` only the first); or the places are on several file systems.
    """
    place = documents[0]
    shards: list[Shard] = []
    found = _by_format(list_places(documents), place, settings=settings)
    left_out: list[InputFile] = []
    if settings.format == "auto" and _COLUMNED & found.keys():
        texts = found.pop(Format.TEXT, [])
        left_out = [file for file in texts if not _is_named(file, documents)]
        found |= {Format.TEXT: named} if (named := [file for file in texts if file not in left_out]) else {}
    for format_, files in sorted(found.items()):
        large = [file for file in files if _is_large(file, format_=format_)]
        with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
            sizes = list(threads.map(partial(_group_bytes, place, settings=settings), large))
        for file, group_bytes in zip(large, sizes, strict=True):
            shards.extend(_split_file(place, file, format_=format_, sizes=group_bytes))
        small = [file for file in files if not _is_large(file, format_=format_)] if large else files
        shards.extend(_packed(place, small, format_=format_))
    return FoundShards(shards=shards, left_out=tuple(file.name for file in left_out))


def _is_named(file: InputFile, documents: Iterable[Location]) -> bool:
    """Whether one of the places names the text file, by its path or by a pattern with its ending."""
    named = (place.path for place in documents if is_named_text(place.path))
    return any(path == file.path or re.fullmatch(glob_translate(path), file.path) for path in named)


def _by_format(
    files: Iterable[InputFile], documents: Location, *, settings: InputConfig
) -> dict[Format, list[InputFile]]:
    known: dict[str, Format] = {}
    found: dict[Format, list[InputFile]] = defaultdict(list)
    for file in files:
        ending = posixpath.splitext(file.path)[1] if settings.format == "auto" else ""
        if ending not in known:
            known[ending] = _format(file, documents, settings=settings)
        found[known[ending]].append(file)
    return found


def _format(file: InputFile, documents: Location, *, settings: InputConfig) -> Format:
    if settings.format != "auto":
        return Format(settings.format)
    try:
        return format_of(file.path, where=documents.at(file.path).uri, remedy=UNKNOWN_REMEDY)
    except InputError:
        if settings.on_bad_file == OnBadFile.FAIL:
            raise
        return Format.UNKNOWN


def _is_large(file: InputFile, *, format_: Format) -> bool:
    return format_ in (Format.PARQUET, Format.ARROW) and file.size_bytes > _SHARD_BYTES


def _group_bytes(documents: Location, file: InputFile, *, settings: InputConfig) -> tuple[int, ...]:
    """Size of each row group, bytes; one group for a file that is damaged, so that the index finds and records it."""
    try:
        with open_grouped(documents.at(file.path)) as grouped:
            return grouped.group_bytes
    except InputUnreachableError:
        raise
    except InputError:
        if settings.on_bad_file == OnBadFile.FAIL:
            raise
        return (file.size_bytes,)


def _split_file(documents: Location, file: InputFile, *, format_: Format, sizes: Sequence[int]) -> Iterator[Shard]:
    """Shards of a large file, of as many row groups as come to `_SHARD_BYTES`."""
    start = 0
    num_bytes = 0
    for group, size in enumerate(sizes):
        num_bytes += size
        if num_bytes >= _SHARD_BYTES or group == len(sizes) - 1:
            shard = _pack(documents, [file], format_=format_)
            is_whole = (start, group + 1) == (0, len(sizes))
            yield replace(shard, size_bytes=num_bytes, groups=None if is_whole else (start, group + 1))
            start, num_bytes = group + 1, 0


def _packed(documents: Location, files: Iterable[InputFile], *, format_: Format) -> Iterator[Shard]:
    """Shards of small files, several together."""
    pack: list[InputFile] = []
    num_bytes = 0
    for file in files:
        if pack and (len(pack) == _SHARD_FILES or num_bytes + file.size_bytes > _SHARD_BYTES):
            yield _pack(documents, pack, format_=format_)
            pack, num_bytes = [], 0
        pack.append(file)
        num_bytes += file.size_bytes
    if pack:
        yield _pack(documents, pack, format_=format_)


def _pack(documents: Location, files: Sequence[InputFile], *, format_: Format) -> Shard:
    return Shard(
        documents=documents.uri,
        root=files[0].root,
        paths=tuple(file.path for file in files),
        format=format_,
        size_bytes=sum(file.size_bytes for file in files),
    )
