"""Makes messages of Outlook (.msg): compound files whose streams are the properties of a message."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Union

Tree = Mapping[str, Union[bytes, "Tree"]]
END, FREE, FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
SECTOR, SMALL_SECTOR, SMALL, WORDS = 512, 64, 4096, 128
"""Bytes of a sector, of a sector of small streams, and from which a stream is not small; numbers of a sector."""


def message(
    texts: Mapping[int, str | bytes],
    *,
    attached: Sequence[Tree] = (),
    recipients: Sequence[Tree] = (),
    numbers: Mapping[int, int] = {},
    narrow: Mapping[int, bytes] = {},
    names: Sequence[int] = (),
    header_bytes: int = 32,
) -> Tree:
    """Makes a message of texts (as Unicode) and bytes by the numbers of their properties.

    Args:
        texts: texts and bytes.
        attached: attachments.
        recipients: recipients, as messages with a header of 8 bytes.
        numbers: numbers and times.
        narrow: texts in a code page.
        names: numbers of the names of the properties from 0x8000 on.
        header_bytes: bytes before the first number.
    """
    tree: dict[str, bytes | Tree] = {"__properties_version1.0": _numbers(numbers, header_bytes)}
    for number, value in texts.items():
        kind, data = ("001F", value.encode("utf-16-le")) if isinstance(value, str) else ("0102", value)
        tree[f"__substg1.0_{number:04X}{kind}"] = data
    tree |= {f"__substg1.0_{number:04X}001E": data for number, data in narrow.items()}
    tree |= {f"__recip_version1.0_#{position:08X}": each for position, each in enumerate(recipients)}
    if names:
        entries = b"".join(struct.pack("<IHH", name, 6, position) for position, name in enumerate(names))
        tree["__nameid_version1.0"] = {"__substg1.0_00030102": entries}
    return tree | {f"__attach_version1.0_#{position:08X}": each for position, each in enumerate(attached)}


def attachment(name: str, content: bytes | Tree | None) -> Tree:
    """A file, or a message, that is attached; a link if it has no content."""
    tree: dict[str, bytes | Tree] = {"__properties_version1.0": _numbers({}, 8)}
    tree["__substg1.0_3707001F"] = name.encode("utf-16-le")
    if content is not None:
        tree[f"__substg1.0_3701{'0102' if isinstance(content, bytes) else '000D'}"] = content
    return tree


def _numbers(numbers: Mapping[int, int], header_bytes: int) -> bytes:
    return bytes(header_bytes) + b"".join(
        struct.pack("<HHIQ", 3 if value < 1 << 32 else 0x40, number, 0, value) for number, value in numbers.items()
    )


def compound_file(tree: Tree) -> bytes:
    """A file of streams and folders of streams (MS-CFB, version 3)."""
    return _CompoundFile(tree).data()


@dataclass(slots=True)
class _Entry:
    name: str
    kind: int
    """1 for a folder, 2 for a stream, 5 for the root."""
    right: int = FREE
    """The entry that follows it in its folder."""
    child: int = FREE
    start: int = END
    size: int = 0

    def data(self) -> bytes:
        name = self.name.encode("utf-16-le")
        return struct.pack(
            "<64sHBB3I16xI16xIQ",
            *(name, len(name) + 2, self.kind, 1, FREE, self.right, self.child, 0, self.start, self.size),
        )


class _CompoundFile:
    def __init__(self, tree: Tree) -> None:
        self._sectors: list[bytes] = []
        self._next: list[int] = []
        """The sector that follows each one."""
        self._small = b""
        self._small_next: list[int] = []
        self._entries = [_Entry("Root Entry", 5)]
        self._entries[0].child = self._add_all(tree)

    def data(self) -> bytes:
        root = self._entries[0]
        root.start, root.size = self._put(self._small), len(self._small)
        small_start = self._put(_packed(self._small_next))
        directory = self._put(b"".join(entry.data() for entry in self._entries))
        num_tables, first_table = 1, len(self._sectors)
        while num_tables * WORDS < len(self._next) + num_tables:
            num_tables += 1
        tables = _packed([*self._next, *[FAT] * num_tables])
        header = struct.pack(
            "<8s16sHHHHH6x10I",
            *(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", bytes(16), 0x3E, 3, 0xFFFE, 9, 6, 0, num_tables, directory, 0),
            *(SMALL, small_start, -(-len(self._small_next) // WORDS), END, 0, first_table),
        )
        header += struct.pack("<108I", *range(first_table + 1, first_table + num_tables), *[FREE] * (109 - num_tables))
        return header + b"".join(self._sectors) + tables

    def _add_all(self, folder: Tree) -> int:
        places = [self._add(name, value) for name, value in folder.items()]
        for place, after in pairwise(places):
            self._entries[place].right = after
        return places[0]

    def _add(self, name: str, value: bytes | Tree) -> int:
        entry, place = _Entry(name, 2 if isinstance(value, bytes) else 1), len(self._entries)
        self._entries.append(entry)
        if not isinstance(value, bytes):
            entry.child, entry.start = self._add_all(value), 0
        elif len(value) >= SMALL:
            entry.start, entry.size = self._put(value), len(value)
        elif value:
            num = -(-len(value) // SMALL_SECTOR)
            entry.start, entry.size = len(self._small_next), len(value)
            self._small_next += [*range(entry.start + 1, entry.start + num), END]
            self._small += value.ljust(num * SMALL_SECTOR, b"\0")
        return place

    def _put(self, data: bytes) -> int:
        first, num = len(self._sectors), -(-len(data) // SECTOR)
        self._sectors += [data[at * SECTOR : (at + 1) * SECTOR].ljust(SECTOR, b"\0") for at in range(num)]
        self._next += [*range(first + 1, first + num), END]
        return first


def _packed(numbers: Sequence[int]) -> bytes:
    """The numbers in whole sectors."""
    free = -len(numbers) % WORDS
    return struct.pack(f"<{len(numbers) + free}I", *numbers, *[FREE] * free)
