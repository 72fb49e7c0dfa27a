"""Cuts the input files into shards. One task indexes a shard."""

import posixpath
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fsspec.utils import glob_translate

from memagent_batch.config.sources import InputConfig, OnBadFile, Trust
from memagent_batch.config.storage import Options
from memagent_batch.data.documents.formats.columnar import open_grouped
from memagent_batch.data.documents.formats.formats import (
    GROUPED,
    UNKNOWN_REMEDY,
    Format,
    format_ending,
    format_of,
    is_named_text,
)
from memagent_batch.data.documents.inventory import read_inventory
from memagent_batch.data.documents.lake.table import (
    Table,
    TableColumns,
    TableFile,
    at_version,
    partition_values,
    table_name,
)
from memagent_batch.data.documents.lake.tables import documents_place, find_table
from memagent_batch.data.documents.listing import HIDDEN_NAME, InputFile, Listing, list_places, source_name
from memagent_batch.data.documents.slices import is_in_slice
from memagent_batch.data.documents.where import Condition, files_that_may_match, key_columns, matching_rows, parse_where
from memagent_batch.data.store.database import filter_to_disk, open_database, query_to_disk
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, InputUnreachableError
from memagent_batch.loop.texts.shares import quantity

Item = TypeVar("Item")
SHARD_BYTES = 128 * 1024 * 1024
"""Size that a shard is aimed at, bytes: a second or two of reading and hashing."""
_SHARD_FILES = 256
"""Most files of a shard: each costs a request to an object store."""
_FOOTER_THREADS = 16
_BY_ENDING = ("auto", "files")
"""Settings with which the ending of a data file says its format."""
_COLUMNED = frozenset({Format.PARQUET, Format.JSONL, Format.CSV, Format.TSV, Format.ARROW})
"""Formats of many documents a file; a text file beside such a file is more likely a note than a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Part of the documents that one task indexes: some files of one format, or some row groups of one file."""

    documents: str
    """URI of the documents, or of one of their places, at the version that is read: names the paths' file system."""
    root: str
    """What the paths begin with, up to the ids of text documents."""
    packed_paths: bytes
    """`paths` as `pack_paths` holds them: in ten million files they would be most of what the driver holds."""
    format: Format
    size_bytes: int
    groups: tuple[int, int] | None = None
    """First row group and the one after the last, of the one file; all by default."""
    table_files: Mapping[str, TableFile] = field(default_factory=dict)
    """What a table of a lake says of its files, by path; nothing for other files."""
    table_columns: TableColumns = field(default_factory=dict)
    number_keys: frozenset[str] | None = None
    """Keys of folders that are numbers in all files of the input, if its rows are filtered."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files on their file system."""
        return tuple(zlib.decompress(self.packed_paths).decode().split("\0"))

    @property
    def names(self) -> tuple[str, ...]:
        """Paths below the folder or glob root that was asked for; the ids of text documents."""
        return tuple(source_name(path, root=self.root) for path in self.paths)


def pack_paths(paths: Iterable[str]) -> bytes:
    """The paths in a tenth of their size."""
    return zlib.compress("\0".join(paths).encode(), level=1)


FOUND_FILES = pa.schema(
    [
        pa.field("path", pa.large_string(), nullable=False),
        pa.field("version", pa.large_string()),
        pa.field("num_bytes", pa.int64(), nullable=False),
    ]
)
"""Files; `version` differs with their content, and is null if nothing tells without opening them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundShards:
    """What there is to index."""

    shards: list[Shard]
    left_out: tuple[str, ...] = ()
    """Names of text files that are left out, since they stand beside files with columns."""
    table: Table | None = None
    """The table of a lake that the documents are, in the version that is read, with the files that the filter takes."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """Commits of data sets of the hub, by their URIs."""
    files: pa.Table = field(default_factory=FOUND_FILES.empty_table)
    """`FOUND_FILES`: a row for each path of each shard, in this order."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Version of the table, or commits of data sets of the hub, by the place as the user names it."""
        return self.commits if self.table is None else {self.table.uri: self.table.version}


def find_shards(*places: Location, settings: InputConfig) -> FoundShards:
    """The files of the documents in shards; opens none of them.

    Args:
        places: Files, folders (read with all below them) or globs, all on one file system; or one table of a lake.
            Hidden files, and names that start with `_`, are left out of folders and globs.
        settings: Format of the files; `auto` goes by each file's ending. Filter of the files.

    Raises:
        InputError: there is no file, or one whose ending is not known (unless `on_bad_file` is `record`); or the
            places are on several file systems, or one of several is a table.
    """
    documents: Sequence[Location] = places
    table = _find_table(documents)
    if table is None:
        return cut_listing(list_documents(places, settings=settings), settings=settings)
    if settings.inventory:
        raise InputError(f"input.inventory: {documents[0]} is a table, which lists its own files; leave it out")
    where = None if settings.where is None else parse_where(settings.where)
    return _table_shards(table, documents[0], where=where, settings=settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDocuments:
    """The files at the places of `documents`, before a condition, a slice or a limit is applied."""

    places: tuple[Location, ...]
    """Of data sets of the hub, at the commit that is read."""
    files: Listing
    """Hidden files and files that can't be taken too, with the reason."""
    commits: Mapping[str, str]
    """See `FoundShards.commits`."""


def list_documents(places: Sequence[Location], *, settings: InputConfig) -> ListedDocuments:
    """Lists the files of the documents; see `list_places`."""
    pins = {place.uri: pinned for place in places if (pinned := _pinned(place)) is not None}
    documents = tuple(pins[place.uri][0] if place.uri in pins else place for place in places)
    inventory = settings.inventory and Location(uri=settings.inventory, storage_options=documents[0].storage_options)
    read = partial(read_inventory, inventory=inventory) if inventory else None
    files = list_places(documents, keep_left_out=True, inventory=read)
    return ListedDocuments(places=documents, files=files, commits={uri: commit for uri, (_, commit) in pins.items()})


def cut_listing(listed: ListedDocuments, *, settings: InputConfig) -> FoundShards:
    """The data files of a listing in shards.

    Raises:
        InputError: there is none, or one can't be taken.
    """
    documents, place = listed.places, listed.places[0]
    where = None if settings.where is None else parse_where(settings.where)
    listing, _ = without_hidden(listed, settings=settings)
    refused = next((reason for reason in listing.files["left_out"].drop_null().to_pylist()), None)
    if refused is not None:
        raise InputError(refused)
    numbers = None
    if where is not None:
        folders = _folder_keys(listing)
        keys = [*folders.values()]
        numbers = frozenset(each.name for each in key_columns(keys).schema if pa.types.is_integer(each.type))
        listing = _of_folders(listing, [*folders], files_that_may_match(keys, where))
        _require_some(listing, settings=settings)
    found = _by_format(listing, place, settings=settings)
    left_out: tuple[str, ...] = ()
    if settings.format in _BY_ENDING and Format.TEXT in found and _COLUMNED & found.keys():
        texts = found[Format.TEXT]
        is_named = _each_file(texts, lambda file: _is_named(file, documents))
        found[Format.TEXT] = _taken(texts, is_named)
        left_out = tuple(file.name for file in _taken(texts, pc.invert(is_named)))
    if where is not None:
        filtered = partial(_filtered, where=where, numbers=numbers)
        found = {each: files if each in GROUPED else filtered(files) for each, files in found.items() if files}
    if settings.slice and Format.TEXT in found:
        texts = found[Format.TEXT]
        found[Format.TEXT] = _taken(texts, _each_file(texts, lambda file: is_in_slice(settings, file.name)))
    files = [(format_, each) for format_, each in sorted(found.items()) if each]
    _require_some(files, settings=settings)
    shards = (shard for format_, each in files for shard in _shards_of_files(place, each, format_=format_))
    return FoundShards(
        shards=[replace(shard, number_keys=numbers) for shard in shards],
        files=_found_files([each.files for _, each in files], commits=listed.commits, trust=settings.trust),
        left_out=left_out,
        commits=listed.commits,
    )


def select_files(
    listed: ListedDocuments, *, settings: InputConfig
) -> tuple[Listing, tuple[str, ...], frozenset[str] | None]:
    """Selects the files of a listing for `input.format: files`. Those that can't be taken have the reason.

    Returns:
        The files, the names of hidden ones, and `Shard.number_keys`.

    Raises:
        InputError: there is none.
    """
    where = None if settings.where is None else parse_where(settings.where)
    listing, hidden = without_hidden(listed, settings=settings)
    numbers = None
    if where is not None:
        keys = [*_folder_keys(listing).values()]
        numbers = frozenset(each.name for each in key_columns(keys).schema if pa.types.is_integer(each.type))
        listing = _filtered(listing, where=where, numbers=numbers)
    if settings.slice:
        listing = _taken(listing, _each_file(listing, lambda file: is_in_slice(settings, file.name)))
    _require_some(listing, settings=settings)
    return listing, hidden, numbers


def without_hidden(listed: ListedDocuments, *, settings: InputConfig) -> tuple[Listing, tuple[str, ...]]:
    """The files without hidden ones, and the names of these.

    Raises:
        InputError: all are hidden.
    """
    is_hidden = pc.fill_null(pc.equal(listed.files.files["left_out"], HIDDEN_NAME), False)
    if not pc.any(is_hidden, min_count=0).as_py():
        return listed.files, ()
    hidden = tuple(file.name for file in _taken(listed.files, is_hidden))
    files = _taken(listed.files, pc.invert(is_hidden))
    if not files:
        raise InputError(
            f"{', '.join(map(str, listed.places))} holds no files: {quantity(len(hidden), 'name')} left out, which "
            "start with ., _ or ~$; rename them"
        )
    return files, hidden


def _find_table(documents: Sequence[Location]) -> Table | None:
    if len(documents) == 1:
        return find_table(documents[0])
    named = next((place for place in documents if table_name(place.uri)), None)
    if named is not None:
        raise InputError(f"documents: {named} is a table among several places; read each table in its own run")
    return None


def _table_shards(table: Table, documents: Location, *, where: Condition | None, settings: InputConfig) -> FoundShards:
    rows = None if where is None else files_that_may_match([file.values for file in table.files], where)
    files = {file.path: file for file in (table.files if rows is None else [table.files[row] for row in rows])}
    _require_some(files, settings=settings)
    listed = [
        InputFile(path=path, root=f"{table.location.path.rstrip('/')}/", size_bytes=file.size_bytes)
        for path, file in files.items()
    ]
    uri = at_version(documents.uri, table.version)
    shards = [
        replace(
            shard,
            documents=uri,
            table_files={path: files[path] for path in shard.paths},
            table_columns=table.columns,
        )
        for shard in _shards_of_files(documents, listed, format_=Format.TABLE)
    ]
    versions = [file.fingerprint() for file in files.values()]
    return FoundShards(
        shards=shards,
        files=pa.table([[*files], versions, [file.size_bytes for file in files.values()]], schema=FOUND_FILES),
        table=replace(table, files=tuple(files.values())),
    )


def _require_some(files: Sized, *, settings: InputConfig) -> None:
    if not files:
        filtered = f" for which input.where can be true: {settings.where}" if settings.where else ""
        part = f" in slice {settings.slice}: divide the documents into fewer slices" if settings.slice else ""
        raise InputError(f"documents: there is no file{filtered}{part}")


def _each_file(files: Listing, test: Callable[[InputFile], bool]) -> pa.ChunkedArray:
    return pa.chunked_array([[test(file) for file in files]], pa.bool_())


def _taken(files: Listing, is_taken: pa.ChunkedArray) -> Listing:
    return replace(files, files=filter_to_disk(files.files, is_taken))


def _folder_keys(files: Listing) -> dict[str, Mapping[str, pa.Scalar]]:
    """What the names of each folder say, such as `year=2026`."""
    first_files = {posixpath.dirname(file.path): file.path for file in files}
    return {folder: partition_values(path, root=files.root) for folder, path in first_files.items()}


def _of_folders(files: Listing, folders: Sequence[str], rows: npt.NDArray[np.int64]) -> Listing:
    """The files in some of the folders, by the numbers of these."""
    taken = {folders[row] for row in rows}
    return _taken(files, _each_file(files, lambda file: posixpath.dirname(file.path) in taken))


def _filtered(files: Listing, *, where: Condition, numbers: Collection[str] | None) -> Listing:
    """The files that a filter takes by the keys in their folders: of formats whose rows can't be filtered."""
    keys = _folder_keys(files)
    columns = key_columns([*keys.values()], numbers=numbers)
    shared = [name for name in columns.schema.names if all(name in each for each in keys.values())]
    try:
        return _of_folders(files, [*keys], matching_rows(columns.select(shared), where))
    except InputError as error:
        raise InputError(
            f"{error}. Rows are filtered in Parquet and Arrow files and in tables, other files, such as "
            f"{next(iter(files)).path}, only by the keys in their folders (year=2026), below the place that "
            "`documents` names"
        ) from error


def _found_files(listed: Iterable[pa.Table], *, commits: Mapping[str, str], trust: Trust) -> pa.Table:
    """Returns the files of listings, `FOUND_FILES`; those of the hub have its commits as their version."""
    version = "null" if trust is Trust.CONTENT else "$commit" if commits else "version"
    sql = f"select path, {version} as version, size_bytes as num_bytes from listed"
    parameters = {"commit": " ".join(sorted(commits.values()))} if version == "$commit" else {}
    with open_database({"listed": pa.concat_tables(listed)}) as database:
        return query_to_disk(database, sql, schema=FOUND_FILES, **parameters)


def _shards_of_files(place: Location, files: Iterable[InputFile], *, format_: Format) -> Iterator[Shard]:
    """Shards of files of one format: large ones alone, small ones together."""
    packs = into_batches(files, size=attrgetter("size_bytes"), max_size=SHARD_BYTES, max_items=_SHARD_FILES)
    yield from (_pack(place, pack, format_=format_) for pack in packs)


def into_batches(
    items: Iterable[Item], *, size: Callable[[Item], int], max_size: int, max_items: int | None = None
) -> Iterator[list[Item]]:
    """The items in batches, in their order; one that is larger than a batch is a batch alone."""
    batch, total = list[Item](), 0
    for item in items:
        if batch and (len(batch) == max_items or total + size(item) > max_size):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


def _is_named(file: InputFile, documents: Iterable[Location]) -> bool:
    """Whether one of the places names the text file, by its path or by a pattern with its ending."""
    named = (place.path for place in documents if is_named_text(place.path))
    return any(path == file.path or re.fullmatch(glob_translate(path), file.path) for path in named)


def _by_format(listing: Listing, documents: Location, *, settings: InputConfig) -> dict[Format, Listing]:
    known: dict[str, Format] = {}
    formats: list[Format] = []
    for file in listing:
        ending = format_ending(file.path) if settings.format in _BY_ENDING else ""
        if ending not in known:
            known[ending] = _format(file, documents, settings=settings)
        formats.append(known[ending])
    if len(set(formats)) == 1:
        return {formats[0]: listing}
    of_files = pa.chunked_array([formats], pa.string())
    return {format_: _taken(listing, pc.equal(of_files, format_.value)) for format_ in dict.fromkeys(formats)}


def _format(file: InputFile, documents: Location, *, settings: InputConfig) -> Format:
    if settings.format not in _BY_ENDING:
        return Format(settings.format)
    try:
        return format_of(file.path, where=documents.at(file.path).uri, remedy=UNKNOWN_REMEDY)
    except InputError:
        if settings.on_bad_file == OnBadFile.FAIL:
            raise
        return Format.UNKNOWN


def cut_shards(shards: Iterable[Shard], *, settings: InputConfig, storage_options: Options) -> list[Shard]:
    """The shards, those of one large file as shards of its row groups.

    Raises:
        InputError: a large file can't be opened; with `on_bad_file: record` only if its store does not answer.
    """
    cut, whole = list[Shard](), [*shards]
    group_bytes = partial(_group_bytes, settings=settings, storage_options=storage_options)
    with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
        for shard, sizes in zip(whole, threads.map(group_bytes, whole), strict=True):
            cut += _split_file(shard, sizes=sizes) if sizes else [shard]
    return cut


def _group_bytes(shard: Shard, *, settings: InputConfig, storage_options: Options) -> tuple[int, ...]:
    """Size of each row group of a large file, bytes; none for one that is damaged: the index finds and records it."""
    if shard.format not in GROUPED or shard.size_bytes <= SHARD_BYTES:
        return ()
    try:
        with open_grouped(documents_place(shard.documents, storage_options).at(shard.paths[0])) as grouped:
            return grouped.group_bytes
    except InputUnreachableError:
        raise
    except InputError:
        if settings.on_bad_file == OnBadFile.FAIL:
            raise
        return ()


def _split_file(shard: Shard, *, sizes: Sequence[int]) -> Iterator[Shard]:
    """Shards of a large file, of as many row groups as come to `SHARD_BYTES`."""
    start = 0
    num_bytes = 0
    for group, size in enumerate(sizes):
        num_bytes += size
        if num_bytes >= SHARD_BYTES or group == len(sizes) - 1:
            is_whole = (start, group + 1) == (0, len(sizes))
            yield replace(shard, size_bytes=num_bytes, groups=None if is_whole else (start, group + 1))
            start, num_bytes = group + 1, 0


def _pack(documents: Location, files: Sequence[InputFile], *, format_: Format) -> Shard:
    return Shard(
        documents=documents.uri,
        root=files[0].root,
        packed_paths=pack_paths(file.path for file in files),
        format=format_,
        size_bytes=sum(file.size_bytes for file in files),
    )


def _pinned(place: Location) -> tuple[Location, str] | None:
    """A place of the Hugging Face hub at the commit that its branch stands for now, and the commit; None elsewhere.

    So a branch that moves on changes nothing in a run.
    """
    if not place.uri.startswith("hf://"):
        return None
    with input_errors(place.uri):
        found = place.fs.resolve_path(place.path)
        if not hasattr(found, "repo_id"):
            return None  # a bucket has no commits
        commit = place.fs._api.repo_info(found.repo_id, revision=found.revision, repo_type=found.repo_type).sha
    kind = "" if found.repo_type == "model" else f"{found.repo_type}s/"
    path = f"{kind}{found.repo_id}@{commit}/{found.path_in_repo}".rstrip("/")
    return Location(uri=f"hf://{path}", storage_options=place.storage_options), commit
