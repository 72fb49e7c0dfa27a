"""What a disk of this machine needs beyond fsspec: names that outlast a power cut, a lock, and honest listings."""

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

UNSYNCABLE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF, errno.EACCES})
"""What a file system says that can't sync a folder."""

TEMPORARY = ".tmp-"


def files_below(path: Path) -> list[str]:
    """Paths of all files below a folder; the path itself where it is a file.

    fsspec's own walk passes over folders that can't be read, or from which a file vanishes meanwhile.

    Raises:
        OSError: a folder can't be listed.
    """
    if path.is_file():
        return [str(path)]
    walk = os.walk(path, onerror=_raise_unless_gone)
    return [f"{folder}/{name}" for folder, _, names in walk for name in names]


def make_folder(folder: Path) -> None:
    """Makes the folder and those above it, durably."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
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


@contextlib.contextmanager
def _synced_temporary(place: Path, source: IO[bytes]) -> Iterator[Path]:
    """What the source gives, in a synced file beside the place; gone when the block ends."""
    make_folder(place.parent)
    temporary = place.parent / f"{TEMPORARY}{uuid.uuid4().hex}"
    try:
        with temporary.open("wb") as stream:
            shutil.copyfileobj(source, stream)
            stream.flush()
            os.fsync(stream.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(place: Path, source: IO[bytes]) -> None:
    """Writes a file whole or not at all, over one that is there; syncs the folder too, which has its name."""
    with _synced_temporary(place, source) as temporary:
        temporary.replace(place)
    sync_folder(place.parent)


def create_whole(place: Path, source: IO[bytes]) -> None:
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
    sync_folder(place.parent)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def normal_path(path: str) -> str:
    """The same place as listings write it: without `//`, `/./` and `..`.

    Links on the way to the last `..` are resolved, as the disk itself does.
    """
    path = str(Path(path))
    above, mark, below = f"{path}/".rpartition("/../")
    if not mark:
        return path
    return f"{os.path.realpath(above + mark).rstrip('/')}/{below}".rstrip("/") or "/"
