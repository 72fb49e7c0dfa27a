"""Counts how often files are opened, by any process of this machine, as the kernel reports it."""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_OPEN = 0x20
EVENT = struct.Struct("iIII")
"""Watch, mask, cookie, length of the name behind it."""


class Openings:
    """How often a file was opened since the block began."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._count = 0

    def count(self) -> int:
        """Openings until now."""
        try:
            while data := os.read(self._descriptor, 1 << 16):
                offset = 0
                while offset < len(data):
                    *_, name_bytes = EVENT.unpack_from(data, offset)
                    offset += EVENT.size + name_bytes
                    self._count += 1
        except BlockingIOError:
            return self._count
        return self._count


@contextmanager
def watched_openings(path: Path) -> Iterator[Openings]:
    """Watches a file for the time of the block."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    try:
        watch = libc.inotify_add_watch(descriptor, os.fsencode(path), IN_OPEN)
        assert watch >= 0, os.strerror(ctypes.get_errno())
        yield Openings(descriptor)
    finally:
        os.close(descriptor)
