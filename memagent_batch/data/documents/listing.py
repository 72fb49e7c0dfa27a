"""Lists the files of an input: of a file, a folder, a glob, or several of them.

Refuses parts of tables of a lake as files, since they also hold rows that were deleted.
"""

import os
import posixpath
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from fsspec.utils import glob_translate

from memagent_batch.data.store.database import BATCH_ROWS, filter_to_disk, on_disk, open_database, query_to_disk
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.masking import mask_url

_MAGIC = frozenset("*?[")
_HIDDEN = (".", "_", "~$")
"""How names of hidden files and of temporary folders start, and of the locks of Office beside open documents."""
HIDDEN_NAME = "its name starts with ., _ or ~$"
_VERSION_QUERY = "?versionid="
"""Clients of object stores always cut a key here."""
_TABLE_LOGS = {
    "Delta": ("_delta_log", (".json", ".checkpoint.parquet")),
    "Iceberg": ("metadata", (".metadata.json",)),
}
"""By format, the folder in a table that says which of its rows count, and the endings of that folder's files."""
_TABLE_NAMES = {"Delta": "delta://FOLDER", "Iceberg": "iceberg://CATALOG/DATABASE.TABLE"}
_FOLDER_THREADS = 16
"""Folders of a store that are looked at at once, each by some requests."""
_WITHOUT_FOLDERS = ("http://", "https://")
"""File systems that can't say what stands in a folder."""
UNSURE_SECONDS = 2.0
"""A file of a disk that changed within this time may change again and keep its times: clocks of disks are coarse."""
_HUB_FOLDERS = 2
"""Slashes in the name of a data set of the hub, `datasets/OWNER/NAME`; above it nothing can be listed."""

WEB_SCHEMES = ("http://", "https://")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file of the input."""

    path: str
    """Path on the file system of the input; `Location.at` opens it."""
    root: str
    """Folder that was asked for, up to its slash, or the folders of a glob before its first wildcard."""
    size_bytes: int
    version: str | None = None
    """Another text whenever the content is another; None if nothing tells without opening the file."""
    left_out: str | None = None
    """Why it can't be taken, if the listing keeps what it leaves out."""

    @property
    def name(self) -> str:
        """Path below the root; the id of a text document."""
        return source_name(self.path, root=self.root)


def source_name(path: str, *, root: str) -> str:
    """The path of a source below the root; of a web address without what its query holds, which may be a key."""
    if "?" in path and path.startswith(WEB_SCHEMES):
        path, root = mask_url(path), mask_url(root)
    return path.removeprefix(root)


LISTED_FILES = pa.schema(
    [
        pa.field("path", pa.large_string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("version", pa.large_string()),
        pa.field("left_out", pa.large_string()),
    ]
)
"""Files as `InputFile` describes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files of an input, sorted by path."""

    root: str
    """Of each file; see `InputFile`."""
    files: pa.Table
    """`LISTED_FILES`, in a temporary file: of ten million files none is an object of Python for long."""

    @classmethod
    def of(cls, files: Iterable[InputFile], *, root: str) -> "Listing":
        """These files, a path once."""
        found = iter(files)
        batches = iter(lambda: [*islice(found, BATCH_ROWS)], [])
        columns = ([[getattr(file, name) for file in batch] for name in LISTED_FILES.names] for batch in batches)
        listed = on_disk((pa.table(each, schema=LISTED_FILES) for each in columns), schema=LISTED_FILES)
        return cls(root=root, files=_sorted_files(listed))

    def filtered(self, is_taken: pa.ChunkedArray) -> "Listing":
        """The files for which a mask is true."""
        return replace(self, files=filter_to_disk(self.files, is_taken))

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[InputFile]:
        for batch in self.files.to_batches(BATCH_ROWS):
            yield from (InputFile(root=self.root, **row) for row in batch.to_pylist())


def _sorted_files(listed: pa.Table) -> pa.Table:
    with open_database({"listed": listed}) as database:
        return query_to_disk(database, "select distinct on (path) * from listed order by path", schema=LISTED_FILES)


Inventory = Callable[[Location], Iterable[tuple[str, int, str | None]]]
"""Gives path, size and version of each file below a folder."""


def list_files(location: Location, *, keep_left_out: bool = False, inventory: Inventory | None = None) -> Listing:
    """Files of a file, folder or glob; an inventory lists a folder in place of its file system.

    `keep_left_out`: hidden files, and files that can't be taken, are listed too, with the reason.

    Raises:
        InputError: there is none, one of them is not a plain file or part of a lake's table, or the location can't be
            reached.
    """
    with input_errors(location.uri):
        info = {"type": "directory"} if inventory is not None else _info(location)
        path = location.path
        root = _root_of(location, info)
        if info is not None and info["type"] != "directory":
            _refuse_tables_around(location, root=root, paths=())
            return Listing.of([_named_file(location, info={**info, "name": path}, root=root)], root=root)
        found = _without_tables(location, _entries(location, info, inventory=inventory, root=root))
        files = Listing.of(_input_files(found, root=root, keep_left_out=keep_left_out), root=root)
        if info is not None and inventory is None and not location.is_local:  # hidden names were listed too
            _refuse_tables_around(location, root=posixpath.dirname(root.rstrip("/")), paths=())
        else:
            paths = () if inventory is not None else (file.path for file in files)
            _refuse_tables_around(location, root=root, paths=paths)
    if not files and inventory is not None:
        raise InputError(f"{location.uri}: input.inventory lists no file below it; name a folder that it lists")
    if not files:
        bracket = "; in a pattern, [ begins a set of characters: write [[] for the character itself"
        raise InputError(
            f"{location.uri} holds no files (hidden ones and names that start with _ are left out)"
            f"{bracket if info is None and '[' in path else ''}"
        )
    return files


def list_places(
    places: Sequence[Location], *, keep_left_out: bool = False, inventory: Inventory | None = None
) -> Listing:
    """Files of all places, as `list_files` lists them; a file that is in two of them once.

    With several places, a name is the path below the folder that holds all of them, so that no two are the same, and
    the files that a shell makes of a glob have the names that the glob itself gives.

    Raises:
        InputError: a place has no file, or is on another file system than the first.
    """
    listed = partial(list_files, keep_left_out=keep_left_out, inventory=inventory)
    if len(places) == 1:
        return listed(places[0])
    found = [listed(place) for place in places]
    for place in places:
        if place.fs != places[0].fs:
            raise InputError(
                f"documents: {places[0]} and {place} are on two file systems; copy them to one, or read each in a run "
                "of its own"
            )
    root = _common_root(each.root for each in found)
    return Listing(root=root, files=_sorted_files(pa.concat_tables(each.files for each in found)))


def sources_root(places: Sequence[Location]) -> str:
    """The folder below which the sources of these places have their names, up to its slash. Lists no files.

    Raises:
        InputError: a place is gone, or can't be reached.
    """
    roots = list[str]()
    for place in places:
        with input_errors(place.uri):
            roots.append(_root_of(place, _info(place)))
    return roots[0] if len(roots) == 1 else _common_root(roots)


def _root_of(location: Location, info: Mapping[str, Any] | None) -> str:
    """The root of the files of a location; see `InputFile`."""
    path = location.path
    if info is not None:
        return f"{path if info['type'] == 'directory' else posixpath.dirname(path)}".rstrip("/") + "/"
    if not _MAGIC & set(path):
        raise InputError(f"{location.uri}: no such file or folder; check the path")
    return _glob_root(path)


def _common_root(roots: Iterable[str]) -> str:
    folders = [root.rstrip("/").split("/") for root in roots]
    return "".join(f"{folder}/" for folder in posixpath.commonprefix(folders))


def _info(location: Location) -> Mapping[str, Any] | None:
    """What is at the location itself; None where nothing is. The first touch of its file system."""
    try:
        with usable_file_system(location):
            return {**location.fs.info(location.path)}
    except FileNotFoundError as error:
        if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
            raise InputError(f"{location.uri} can't be reached: {error.__cause__}; check the address") from error
        return None


@contextmanager
def usable_file_system(location: Location) -> Iterator[None]:
    """The first touch of a location's file system.

    Raises:
        InputError: there is no such file system, or not with these options.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{location.uri}: its file system can't be used ({error}); check the protocol and storage_options"
        ) from error


_Found = tuple[str, Mapping[str, Any]]


def _expand(location: Location, *, root: str) -> Iterator[_Found]:
    """What a glob matches; folders with all below them, so that no document is left out unseen."""
    fs, path, (head, deep, _) = location.fs, location.path, location.path.partition("**")
    ends = [end for end in range(len(root), len(head)) if head[end] == "/"]
    ways = [head[:end] for end in ends] + ([head + deep] if deep else [])  # patterns of folders that lead to matches
    try:
        pattern, on_the_way = (re.compile("|".join(map(glob_translate, each)) or "(?!)") for each in ([path], ways))
    except ValueError as error:
        raise InputError(f"{location.uri}: {error}; correct the pattern") from error
    is_one_listing = deep and not location.is_local
    matches = fs.glob(path, detail=True).items() if is_one_listing else _matches(location, root, pattern, on_the_way)
    for name, info in matches:
        if info["type"] != "directory" or _hidden_path(name, root):
            yield name, info
        elif location.is_local:
            yield from ((below, {}) for below in _paths_below(name))
        else:
            yield from fs.find(name, detail=True).items()


def _matches(
    location: Location, folder: str, pattern: re.Pattern[str], on_the_way: re.Pattern[str]
) -> Iterator[_Found]:
    """What a glob matches below a folder, by way of folders on the way.

    fsspec's own `glob` passes over a folder that it can't list; this one raises.
    """
    with suppress(FileNotFoundError):  # it was removed meanwhile
        for info in location.fs.ls(folder, detail=True):
            name = str(info["name"])
            is_on_the_way = info["type"] == "directory" and on_the_way.match(name)
            if is_on_the_way and not pattern.match(name) and not _hidden_path(name, folder):
                yield from _matches(location, name, pattern, on_the_way)
            elif is_on_the_way or pattern.match(name):
                yield name, info


def _glob_root(path: str) -> str:
    """The folders of a glob before its first wildcard, up to a slash."""
    parts = path.split("/")
    fixed = next(index for index, part in enumerate(parts) if _MAGIC & set(part))
    return "".join(f"{part}/" for part in parts[:fixed])


_Entry = tuple[str, Callable[[], InputFile]]


def _entries(
    location: Location, info: Mapping[str, Any] | None, *, inventory: Inventory | None, root: str
) -> Iterator[_Entry]:
    """What a folder or glob has, one by one: of millions of files, only what is wanted of each is held."""
    if inventory is not None or (location.is_s3 and info is not None):
        keys = ((path, key["Size"], f"{key['Size']} {key['ETag']}") for path, key in location.keys_below())
        for entry in keys if inventory is None else inventory(location):
            yield entry[0], partial(_listed_file, entry, root=root)
    elif location.is_local and info is not None:
        for path in _paths_below(location.path):
            yield path, partial(_local_file, path, root=root)
    else:
        found = _expand(location, root=root) if info is None else location.fs.find(location.path, detail=True).items()
        for path, details in found:
            look_at = partial(_local_file, path) if location.is_local else partial(_found_file, location, details)
            yield path, partial(look_at, root=root)


def _input_files(found: Iterable[_Entry], *, root: str, keep_left_out: bool) -> Iterator[InputFile]:
    """The files of a listing. Of those that are left out, hidden folders are listed as one."""
    for path, look_at in found:
        hidden = _hidden_path(path, root)
        if path.endswith("/") or (hidden and not keep_left_out):
            continue
        if hidden:
            yield InputFile(path=hidden, root=root, size_bytes=0, left_out=HIDDEN_NAME)
            continue
        try:
            file = look_at()
        except FileNotFoundError:
            continue  # it was removed or renamed while the folder was listed
        except InputError as error:
            if not keep_left_out:
                raise
            name = path.encode("utf-8", errors="backslashreplace").decode()
            file = InputFile(path=name, root=root, size_bytes=0, left_out=str(error))
        yield file


def _hidden_path(path: str, root: str) -> str | None:
    """A path below the root up to its first hidden name, if it has one."""
    parts = path.removeprefix(root).split("/")
    hidden = next((number for number, part in enumerate(parts, start=1) if part.startswith(_HIDDEN)), None)
    return None if hidden is None else root + "/".join(parts[:hidden])


def _paths_below(folder: str) -> Iterator[str]:
    """Paths of what is in a folder of this machine and in all below it; of hidden folders only their own.

    The file system's own listing would make a mapping of each of a million files, and leave out what it can't list.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(_HIDDEN):
                with suppress(FileNotFoundError):  # the same of a folder
                    yield from _paths_below(entry.path)
            else:
                yield entry.path


def _named_file(location: Location, *, info: Mapping[str, Any], root: str) -> InputFile:
    """The one file that the user named; as it is named, it may be a link to anywhere."""
    if info["type"] != "file":
        raise InputError(f"{location.uri} is {_file_kind(info)}, not a file; write its content to a file")
    name = str(info["name"])
    version = _disk_version(Path(name).stat()) if location.is_local else _store_version(info)
    return _input_file(name, root=root, size_bytes=int(info.get("size") or 0), version=version)


def _found_file(location: Location, info: Mapping[str, Any], *, root: str) -> InputFile:
    name = str(info["name"])
    if info["type"] != "file":
        info = location.fs.info(name)
        if info["type"] != "file":
            raise InputError(f"{name!r} is {_file_kind(info)}, not a file; move it away")
    return _listed_file((name, int(info.get("size") or 0), _store_version(info)), root=root)


def _listed_file(entry: tuple[str, int, str | None], *, root: str) -> InputFile:
    path, size_bytes, version = entry
    if _VERSION_QUERY in path.lower():
        raise InputError(
            f"{path!r}: a client takes {_VERSION_QUERY!r} in a key for a version of another key; rename it"
        )
    return _input_file(path, root=root, size_bytes=size_bytes, version=version)


def _local_file(path: str, *, root: str) -> InputFile:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        target = Path(path).resolve()
        if not target.exists():
            raise InputError(f"{path!r} is a link to {str(target)!r}, which is not there; remove it")
        status = target.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{path!r} is a link to a folder; name that folder itself, or copy it here")
        if not target.is_relative_to(Path(root).resolve()):
            raise InputError(
                f"{path!r} is a link to {str(target)!r}, which is not in {root!r}; copy the file here, or remove the "
                "link"
            )
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path!r} is {_file_kind({'mode': status.st_mode})}, not a file; move it away")
    return _input_file(path, root=root, size_bytes=status.st_size, version=_disk_version(status))


def _store_version(info: Mapping[str, Any]) -> str | None:
    """Size and ETag of an object, or the hash that the Hugging Face hub has of a file; None without either."""
    etag = info.get("ETag") or info.get("etag") or info.get("blob_id")
    return None if etag is None else f"{info.get('size')} {etag}"


def _disk_version(status: os.stat_result) -> str | None:
    """Size and times of a file; None if it changed just now. `st_ctime` changes even if a tool sets mtime back."""
    if time.time() - max(status.st_mtime, status.st_ctime) < UNSURE_SECONDS:
        return None
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _file_kind(info: Mapping[str, Any]) -> str:
    """What stands where a file should, for a person."""
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(int(info.get("mode") or 0)), f"of the kind {info.get('type', 'other')!r}")


def _input_file(path: str, *, root: str, size_bytes: int, version: str | None) -> InputFile:
    if not path.isascii() and any("\ud800" <= character <= "\udfff" for character in path):
        raise InputError(f"the file name {path!r} is not valid UTF-8; rename it")
    return InputFile(path=path, root=root, size_bytes=size_bytes, version=version)


def is_delta_folder(location: Location) -> bool:
    """Whether the location is the folder of a Delta table."""
    is_folder = not location.uri.startswith(_WITHOUT_FOLDERS) and not _MAGIC & set(location.path)
    return is_folder and _is_table(location, location.path, format_="Delta")


def _without_tables(location: Location, found: Iterable[_Entry]) -> Iterator[_Entry]:
    """The same entries; refuses a table of a lake whose log is among them."""
    for path, entry in found:
        for format_, (log_folder, endings) in _TABLE_LOGS.items():
            if path.endswith(endings) and posixpath.basename(folder := posixpath.dirname(path)) == log_folder:
                raise _table_error(location, posixpath.dirname(folder), format_)
        yield path, entry


def _refuse_tables_around(location: Location, *, root: str, paths: Iterable[str]) -> None:
    """Refuses files of a table of a lake: looks for its log in their folders below `root`, and in all folders above."""
    if location.uri.startswith(_WITHOUT_FOLDERS):
        return
    folders = [*_with_parents(root.rstrip("/")), *_folders_below(root, paths)]
    if location.uri.startswith("hf://"):
        folders = [folder for folder in folders if folder.count("/") >= _HUB_FOLDERS]
    with ThreadPoolExecutor(_FOLDER_THREADS) as threads:
        for format_ in _TABLE_LOGS:
            are_tables = threads.map(partial(_is_table, location, format_=format_), folders)
            for folder, is_table in zip(folders, are_tables, strict=True):
                if is_table:
                    raise _table_error(location, folder, format_)


def _with_parents(folder: str) -> Iterator[str]:
    while folder not in ("", "/"):
        yield folder
        folder = posixpath.dirname(folder)


def _folders_below(root: str, paths: Iterable[str]) -> list[str]:
    """The folders of files below `root`, without partitions (`year=2026`), which are not tables themselves."""
    own = {posixpath.dirname(path) for path in paths}
    folders = {folder for each in own for folder in _with_parents(each) if len(folder) > len(root.rstrip("/"))}
    return sorted(folder for folder in folders if "=" not in posixpath.basename(folder))


def _is_table(location: Location, folder: str, *, format_: str) -> bool:
    """Whether this folder is a table of a lake of this format."""
    log_folder, endings = _TABLE_LOGS[format_]
    fs, log = location.fs, location.at(f"{folder}/{log_folder}")
    try:
        if location.is_s3:  # one request: a bucket has no folder to ask for
            return any(path.endswith(endings) for path, _ in log.keys_below(delimiter="/"))
        # asked first, since others list the folder above one that is not there
        names = fs.ls(log.path, detail=False) if fs.info(log.path)["type"] == "directory" else []
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False  # a folder above the input need not be open to its reader
    return any(str(name).endswith(endings) for name in names)


def _table_error(location: Location, folder: str, format_: str) -> InputError:
    return InputError(
        f"{location.at(folder).uri} is a table of {format_} (it has {_TABLE_LOGS[format_][0]}/): its files also hold "
        "rows that are deleted or replaced, so they can't be read as they are; name the table as a whole and alone: "
        f"documents: {_TABLE_NAMES[format_]}"
    )
