"""Refuses parts of tables of a lake (Delta, Iceberg) as files: they also hold rows that were deleted."""

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import fsspec

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location

_FOLDER_THREADS = 16
"""Folders of a store that are looked at at once, each by some requests."""
_WITHOUT_FOLDERS = ("http://", "https://")
"""File systems that can't say what stands in a folder."""


_HUB_FOLDERS = 2
"""Slashes in the name of a data set of the hub, `datasets/OWNER/NAME`; above it nothing can be listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFormat:
    """How the tables of one format are recognised."""

    name: str
    """Its name."""
    log_folder: str
    """Folder in the folder of a table that says which of its rows count."""
    endings: tuple[str, ...]
    """How names of files in that folder end."""
    name_as: str
    """How the user names such a table as a whole."""


_DELTA = LakeFormat(
    name="Delta", log_folder="_delta_log", endings=(".json", ".checkpoint.parquet"), name_as="delta://FOLDER"
)
_FORMATS = (
    _DELTA,
    LakeFormat(
        name="Iceberg",
        log_folder="metadata",
        endings=(".metadata.json",),
        name_as="iceberg://CATALOG/DATABASE.TABLE",
    ),
)


def is_delta_folder(location: Location) -> bool:
    """Whether the location is the folder of a Delta table."""
    is_folder = not location.uri.startswith(_WITHOUT_FOLDERS) and not set("*?[") & set(location.path)
    return is_folder and _format_at(location.fs, location.path, formats=(_DELTA,)) is not None


def refuse_listed_tables(location: Location, paths: Iterable[str]) -> None:
    """Refuses a table whose log is among `paths`, a listing that leaves out nothing.

    Raises:
        InputError: names the table, and how to read it.
    """
    for path in paths:
        folder, name = posixpath.split(path)
        for format_ in _FORMATS:
            if posixpath.basename(folder) == format_.log_folder and name.endswith(format_.endings):
                raise _lake_error(location, posixpath.dirname(folder), format_)


def refuse_tables_around(location: Location, *, root: str, paths: Iterable[str]) -> None:
    """Refuses files that are part of a table: looks for a log in their folders, and in all folders above.

    Args:
        location: What was asked for.
        root: The folder in which the files were looked for.
        paths: The files.

    Raises:
        InputError: names the table, and how to read it.
    """
    if location.uri.startswith(_WITHOUT_FOLDERS):
        return
    folders = [*_above(root.rstrip("/")), *_between(root, paths)]
    if location.uri.startswith("hf://"):
        folders = [folder for folder in folders if folder.count("/") >= _HUB_FOLDERS]
    with ThreadPoolExecutor(_FOLDER_THREADS) as threads:
        found = threads.map(partial(_format_at, location.fs), folders)
        for folder, format_ in zip(folders, found, strict=True):
            if format_ is not None:
                raise _lake_error(location, folder, format_)


def _above(folder: str) -> Iterator[str]:
    """A folder and all above it."""
    while folder not in ("", "/"):
        yield folder
        folder = posixpath.dirname(folder)


def _between(root: str, paths: Iterable[str]) -> list[str]:
    """The folders of files below `root`. One with `=` in its name is a partition, which is no table itself."""
    found: dict[str, None] = {}
    for own in {posixpath.dirname(path) for path in paths}:
        for folder in _above(own):
            if folder in found or len(folder) <= len(root.rstrip("/")):
                break
            if "=" not in posixpath.basename(folder):
                found[folder] = None
    return sorted(found)


def _format_at(
    fs: fsspec.AbstractFileSystem, folder: str, *, formats: Sequence[LakeFormat] = _FORMATS
) -> LakeFormat | None:
    """The format of the table whose folder this is, if it is one."""
    for format_ in formats:
        log = f"{folder}/{format_.log_folder}"
        try:
            # asked first, since s3fs lists the folder above one that is not there
            names = fs.ls(log, detail=False) if fs.info(log)["type"] == "directory" else []
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue  # a folder above the input need not be open to its reader
        if any(str(name).endswith(format_.endings) for name in names):
            return format_
    return None


def _lake_error(location: Location, folder: str, format_: LakeFormat) -> InputError:
    return InputError(
        f"{location.at(folder).uri} is a table of {format_.name} (it has {format_.log_folder}/): its files also hold "
        "rows that are deleted or replaced, so they can't be read as they are; name the table as a whole and alone: "
        f"--documents {format_.name_as}"
    )
