"""What a disk of this machine needs beyond fsspec: names that outlast a power cut, a lock, and honest listings."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

UNSYNCABLE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF, errno.EACCES})
"""What a file system says that can't sync a folder."""


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
def locked(place: Path) -> Iterator[None]:
    """The block alone among processes, also of other machines where the disk has such locks; else without a lock."""
    with place.open("ab") as stream:
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def without_parents(path: str) -> str:
    """The same place without `..`: links on the way to the last one are resolved, as the disk itself does."""
    above, mark, below = f"{path}/".rpartition("/../")
    if not mark:
        return path
    return f"{os.path.realpath(above + mark).rstrip('/')}/{below}".rstrip("/") or "/"
