"""All texts of DOC, XLS and PPT files, from their binary records: LibreOffice, which converts them, is not trusted."""

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from struct import unpack_from

import olefile

from memagent_batch.data.ingest.counts.words import Content

FIELD_CODE = re.compile("\x13[^\x13\x14\x15]*\x14([^\x13\x15]*)\x15|\x13[^\x13\x14\x15]*\x15")
"""A field of Word, with its code and its result."""
UNICODE_WORD = 193
"""Number of the first version of Word whose text is in pieces."""
PERSIST_DIRECTORY, CHARACTERS, BYTES = 0x1772, 0x0FA0, 0x0FA8
MASTERS = frozenset({0x03F8, 0x0FC9})
"""Containers of PowerPoint with the hints of its layouts."""
DOCUMENT, LIST, MASTER_LIST, LISTED = 0x03E9, 0x0FF0, 0x01, 0x03F3
"""Records that name further layouts: of the document, and lists of slides, of which one lists layouts."""
SHARED, CONTINUED, DRAWN_TEXT = 0x00FC, 0x003C, 0x01B6
"""Records of Excel: the strings of all cells, what goes on in the next record, and a comment or box."""
TEXT_STARTS = {0x0204: 6, 0x00D6: 6, 0x0207: 0, 0x0014: 0, 0x0015: 0}
"""Where the texts of other records begin: of a cell, of a result, and of a header or footer."""
MARGINS = (0x0014, 0x0015)
MARGIN_CODE = re.compile(r'&("[^"]*"|\d+|.)', re.S)


def old_office_contents(file: Path) -> Iterator[Content]:
    """Yields the texts of a document, workbook or presentation; nothing of a binary workbook (XLSB)."""
    if not olefile.isOleFile(file):
        return
    with olefile.OleFileIO(file) as ole:
        for stream, texts in (("WordDocument", _word), ("Workbook", _excel), ("PowerPoint Document", _powerpoint)):
            if ole.exists(stream):
                yield Content(place=stream, text="\n".join(texts(ole, ole.openstream(stream).read())))


def _word(ole: olefile.OleFileIO, data: bytes) -> Iterator[str]:
    """Yields the text, its notes, headers, comments and boxes, without the codes of fields."""
    version, flags = unpack_from("<2xH6xH", data)
    if version < UNICODE_WORD:
        first, last = unpack_from("<II", data, 0x18)
        pieces = [data[first:last].decode("cp1252", "replace")]
    else:
        table = ole.openstream("1Table" if flags & 0x0200 else "0Table").read()
        pieces = [*_word_pieces(data, table, *unpack_from("<II", data, 0x01A2))]
    text, before = "".join(pieces), ""
    while text != before:
        text, before = FIELD_CODE.sub(r"\1", text), text
    yield text


def _word_pieces(data: bytes, table: bytes, at: int, size: int) -> Iterator[str]:
    end = at + size
    while at < end and table[at] == 1:  # formats
        at += 3 + unpack_from("<H", table, at + 1)[0]
    (length,) = unpack_from("<I", table, at + 1)
    at, number = at + 5, (length - 4) // 12
    bounds = unpack_from(f"<{number + 1}I", table, at)
    for index in range(number):
        (start,) = unpack_from("<I", table, at + 4 * (number + 1) + 8 * index + 2)
        count = bounds[index + 1] - bounds[index]
        if start & 0x40000000:
            start = (start & 0x3FFFFFFF) // 2
            yield data[start : start + count].decode("cp1252", "replace")
        else:
            yield data[start : start + 2 * count].decode("utf-16-le", "replace")


def _powerpoint(ole: olefile.OleFileIO, data: bytes) -> Iterator[str]:
    """Yields the texts of the objects that the last save refers to; older versions of them stay in the file."""
    offsets = dict[int, int]()
    (edit,) = unpack_from("<16xI", ole.openstream("Current User").read())
    while edit:
        previous, directory = unpack_from("<8x8xII", data, edit)
        (size,) = unpack_from("<I", data, directory + 4)
        at, end = directory + 8, directory + 8 + size
        while at < end:
            (entry,) = unpack_from("<I", data, at)
            for index, offset in enumerate(unpack_from(f"<{entry >> 20}I", data, at + 4)):
                offsets.setdefault((entry & 0xFFFFF) + index, offset)
            at += 4 + 4 * (entry >> 20)
        edit = previous if previous < edit else 0
    spans = {
        number: (offset, offset + 8 + unpack_from("<I", data, offset + 4)[0]) for number, offset in offsets.items()
    }
    masters = {number for start, end in spans.values() for number in _masters(data, start, end)}
    for number, (start, end) in spans.items():
        if number not in masters:
            yield from _atoms(data, start, end)


def _masters(data: bytes, at: int, end: int, *, in_list: bool = False) -> Iterator[int]:
    """Yields the numbers of objects that are layouts, as the records between two places name them."""
    while at + 8 <= min(end, len(data)):
        version, kind, size = unpack_from("<HHI", data, at)
        at += 8
        if version & 0xF == 0xF:
            yield from _masters(data, at, at + size, in_list=kind == LIST and version >> 4 == MASTER_LIST)
        elif kind == LISTED and in_list:
            yield unpack_from("<I", data, at)[0]
        elif kind == DOCUMENT:
            yield from unpack_from("<24xII", data, at)
        at += size


def _atoms(data: bytes, at: int, end: int) -> Iterator[str]:
    """Yields the texts of the records between two places."""
    while at + 8 <= min(end, len(data)):
        version, kind, size = unpack_from("<HHI", data, at)
        at += 8
        if version & 0xF == 0xF and kind not in MASTERS:
            yield from _atoms(data, at, at + size)
        elif kind == CHARACTERS:
            yield data[at : at + size].decode("utf-16-le", "replace")
        elif kind == BYTES:
            yield data[at : at + size].decode("latin-1")
        at += size


def _excel(_: olefile.OleFileIO, data: bytes) -> Iterator[str]:
    """Yields the texts of cells, of the results of formulas, of comments and boxes, and of headers and footers."""
    at, first, length, strings = 0, 0, 0, list[bytes]()
    while at + 4 <= len(data):
        kind, size = unpack_from("<HH", data, at)
        block, at = data[at + 4 : at + 4 + size], at + 4 + size
        if kind == CONTINUED and first == SHARED:
            strings.append(block)
        elif kind == CONTINUED and first == DRAWN_TEXT and length:
            text = _decoded(block[1:], is_wide=block[:1] == b"\1")[:length]
            yield text
            length -= len(text)
        elif kind == SHARED:
            strings = [block[8:]]
        elif kind in TEXT_STARTS and len(block) > TEXT_STARTS[kind] + 2:
            start = TEXT_STARTS[kind] + 2
            text = _decoded(block[start + 1 :], is_wide=bool(block[start] & 1))
            yield MARGIN_CODE.sub(" ", text) if kind in MARGINS else text
        elif kind == DRAWN_TEXT:
            (length,) = unpack_from("<10xH", block)
        first = first if kind == CONTINUED else kind
    yield from _shared_strings(strings)


def _shared_strings(blocks: list[bytes]) -> Iterator[str]:
    records = _Records(blocks)
    while header := records.take(3):
        length, flags = unpack_from("<HB", header)
        (num_runs,) = unpack_from("<H", records.take(2) if flags & 8 else b"\0\0")
        (extra,) = unpack_from("<I", records.take(4) if flags & 4 else bytes(4))
        yield records.text(length, is_wide=bool(flags & 1))
        records.take(4 * num_runs + extra)


class _Records:
    """Bytes that go on from record to record. Letters that do begin there with how wide they are."""

    def __init__(self, blocks: list[bytes]) -> None:
        self._blocks, self._block, self._at = deque(blocks), b"", 0

    def take(self, size: int) -> bytes:
        """Returns the next bytes; fewer at the end."""
        data = bytearray()
        while len(data) < size and (self._at < len(self._block) or self._next()):
            piece = self._block[self._at : self._at + size - len(data)]
            data += piece
            self._at += len(piece)
        return bytes(data)

    def text(self, length: int, *, is_wide: bool) -> str:
        """Returns so many characters; fewer at the end."""
        text = ""
        while True:
            width = 2 if is_wide else 1
            data = self._block[self._at : self._at + (length - len(text)) * width]
            text += _decoded(data, is_wide=is_wide)
            self._at += len(data)
            if len(text) >= length or not self._next():
                return text
            is_wide = bool(self.take(1)[0] & 1) if self._block else is_wide

    def _next(self) -> bool:
        if self._blocks:
            self._block, self._at = self._blocks.popleft(), 0
            return True
        return False


def _decoded(data: bytes, *, is_wide: bool) -> str:
    return data.decode("utf-16-le", "replace") if is_wide else data.decode("latin-1")
