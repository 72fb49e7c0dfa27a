"""Images of the pages of a PDF, and where sentences stand on them. Runs in the process of a file, like a converter."""

import ctypes
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import numpy.typing as npt
import pypdfium2
import pypdfium2.raw as pdfium

from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Line, Part, PartStatus
from memagent_batch.data.ingest.readers.ocr import reading_order
from memagent_batch.data.ingest.readers.pdf import open_document
from memagent_batch.data.ingest.readers.pdf_flatten import Flattener
from memagent_batch.data.ingest.readers.pdf_shapes import Box
from memagent_batch.data.ingest.readers.pdf_text import COLUMN_GAP, HYPHEN, text_of, upright_text

IMAGE_BYTES = 150_000
"""Largest image of a page, bytes."""
SCALE, IMAGE_PIXELS = 1.6, 6_000_000
"""Pixels for each point, by which small print can be read; most pixels of a page, which is a large drawing."""
SMALLER = 0.8
"""Factor by which an image that is too large is drawn smaller."""
COLOUR_CONTRAST, COLOUR_SHARE = 40, 0.0002
"""Difference between the channels of a pixel that has a colour, and share of such pixels on a page in colours."""
LEVELS = (6, 7, 6)
"""Levels of red, green and blue in the palette of images."""
GREY_BITS = (4, 2)
"""Bits for each pixel of images in grey, the better first."""
UNITS = 100_000
"""Width and height of the grid on which PDFium places points of a page."""
MARGIN_POINTS = 1.0
"""Points around the letters of a line that a mark covers."""
MIN_LETTERS = 8
"""Shortest stretch of a sentence that is looked for, letters, except for its end."""
FOUND_SHARE = 0.6
"""Share of the letters of a sentence from which it counts as found."""
MAX_SEGMENTS = 1_000
"""Most pieces of lines of a page that are put in the order of columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoughtSentence:
    """A sentence to mark."""

    pages: Sequence[int]
    """Numbers of the pages that it may stand on, in order; from 1."""
    text: str
    before: str = ""
    """Words before it on its page, by which it is told from the same words elsewhere."""
    after: str = ""


class PdfPageImages(BuiltIn):
    """Draws pages with sentences.

    Each page is an attachment, a PNG with the number of the page as its number, or a part that failed with that number
    as its locator. After them comes a part for each sentence on each of its pages, `3 0` for the first one on page 3:
    its `lines` have the boxes of its words, none if they are not found.
    """

    package, revision, modules = "pypdfium2", 1, ("pypdfium2", "numpy")
    settings = ("sentences",)

    def __init__(self, *, sentences: Sequence[Mapping[str, Any]] = ()) -> None:
        self._sentences = [SoughtSentence(**sentence) for sentence in sentences]

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields the images, then the boxes of the sentences."""
        document, texts = open_document(file), dict[int, _PageText]()
        flattener = Flattener(document, file)
        for number in sorted({page for sentence in self._sentences for page in sentence.pages}):
            try:
                page = document[number - 1]
                yield Attachment(number=str(number), name=f"{number}.png", locator=str(number), data=page_image(page))
                if pdfium.FPDFPage_GetAnnotCount(page):
                    page = flattener.flatten(page, number - 1)
                texts[number] = _PageText(page)
            except (pypdfium2.PdfiumError, ValueError, IndexError) as error:
                yield Part(locator=str(number), status=PartStatus.FAILED, reason=str(error))
        for position, sentence in enumerate(self._sentences):
            for number, boxes in _find_on_pages(sentence, texts).items():
                yield Part(locator=f"{number} {position}", lines=boxes)


def page_image(page: Any) -> bytes:
    """Draws a page as programs show it; returns a PNG of at most `IMAGE_BYTES`."""
    points = max(1.0, page.get_width() * page.get_height())
    scale = min(SCALE, (IMAGE_PIXELS / points) ** 0.5)
    while True:
        pixels = page.render(scale=scale).to_numpy()[:, :, 2::-1].astype(np.int16)
        colours = pixels.max(axis=2) - pixels.min(axis=2) > COLOUR_CONTRAST
        if colours.mean() > COLOUR_SHARE and len(image := _coloured_png(pixels)) <= IMAGE_BYTES:
            return image
        grey = (pixels @ np.array([77, 150, 29], np.int32) >> 8).astype(np.uint8)
        for bits in GREY_BITS:
            if len(image := _png(grey >> (8 - bits), bits=bits)) <= IMAGE_BYTES:
                return image
        scale *= SMALLER


def _coloured_png(pixels: npt.NDArray[np.int16]) -> bytes:
    most = np.array(LEVELS, np.int16) - 1
    levels = (pixels * most + 127) // 255
    values = (levels[:, :, 0] * LEVELS[1] + levels[:, :, 1]) * LEVELS[2] + levels[:, :, 2]
    palette = np.stack(np.unravel_index(np.arange(np.prod(LEVELS)), LEVELS), axis=1) * 255 // most
    return _png(values.astype(np.uint8), bits=8, palette=palette)


def _png(values: npt.NDArray[np.uint8], *, bits: int, palette: npt.NDArray[Any] | None = None) -> bytes:
    """A PNG of levels of grey, or of places in a palette, with so many bits for each pixel."""
    height, width = values.shape
    single_bits = values[:, :, None] >> np.arange(bits, dtype=np.uint8)[::-1] & 1
    rows = np.packbits(single_bits.reshape(height, -1), axis=1)
    chunks = [(b"IHDR", pack(">IIBBBBB", width, height, bits, 0 if palette is None else 3, 0, 0, 0))]
    if palette is not None:
        chunks.append((b"PLTE", palette.astype(np.uint8).tobytes()))
    chunks += [(b"IDAT", zlib.compress(np.insert(rows, 0, 0, axis=1).tobytes(), 9)), (b"IEND", b"")]
    packed = (pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data)) for name, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _find_on_pages(sentence: SoughtSentence, texts: Mapping[int, "_PageText"]) -> dict[int, list[Line]]:
    """Finds a sentence, which may go on from page to page; returns the boxes of its lines on each page."""
    rest, num_found, found = letters_of(sentence.text), 0, dict[int, list[Line]]()
    num_letters = len(rest)
    for number in filter(texts.__contains__, sentence.pages):
        match = texts[number].find(rest, before=letters_of(sentence.before), after=letters_of(sentence.after))
        rest, num_found = rest[match.end :], num_found + match.num_letters
        found[number] = texts[number].boxes(match.indexes)
    is_found = num_found and num_found >= FOUND_SHARE * num_letters
    return found if is_found else {number: [] for number in found}


@dataclass(slots=True, kw_only=True)
class _Match:
    """What of a sentence stands on a page."""

    end: int = 0
    """Letter of the sentence behind the last one that was found."""
    num_letters: int = 0
    indexes: list[int] = field(default_factory=list)
    """Characters of the page."""


class _Letters:
    """The letters and digits of a page in one order, with the characters that they come from.

    White space, punctuation and hyphens are left out, and ligatures and accented letters taken apart.
    """

    def __init__(self, text: str, indexes: Sequence[int]) -> None:
        found = [(letter, index) for index in indexes for letter in _folded(text[index])]
        self._text = "".join(letter for letter, _ in found)
        self._indexes = [index for _, index in found]

    def find_whole(self, sought: str, *, before: str, after: str) -> _Match | None:
        """Finds a sentence between what stands before and after it."""
        place = self._text.find(before + sought + after)
        if place < 0:
            return None
        start, length = place + len(before), len(sought)
        return _Match(end=length, num_letters=length, indexes=self._indexes[start : start + length])

    def find_stretches(self, sought: str) -> _Match:
        """Finds the longest pieces of a sentence that occur on the page in the same order."""
        match, at, start = _Match(), 0, 0
        while at < len(sought):
            length = self._common_letters(sought, at, start=start)
            if length < min(MIN_LETTERS, len(sought) - at) or (length < MIN_LETTERS and not match.end):
                at += 1
                continue
            start = self._text.find(sought[at : at + length], start)
            match.indexes += self._indexes[start : start + length]
            match.num_letters += length
            match.end, at, start = at + length, at + length, start + length
        return match

    def _common_letters(self, sought: str, at: int, *, start: int) -> int:
        """Returns how many letters of a sentence, from position `at` on, occur on the page without a gap."""
        length, above = 0, len(sought) - at + 1
        while above - length > 1:
            middle = (length + above) // 2
            if self._text.find(sought[at : at + middle], start) >= 0:
                length = middle
            else:
                above = middle
        return length


def letters_of(text: str) -> str:
    """The letters and digits of a text, as they are compared."""
    return "".join(map(_folded, text))


@cache
def _folded(character: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", character).casefold()))


class _PageText:
    """The text layer of a page, in which sentences are found."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._texts, _ = upright_text(page)
        self._text = text_of(self._texts)
        self._letters = _Letters(self._text, range(len(self._text)))

    def find(self, sought: str, *, before: str, after: str) -> _Match:
        """Finds a sentence in the order of the file, or of columns; else the most of it that follows one another."""
        for left, right in ((before, after), (before, ""), ("", after), ("", "")):
            for is_by_column in (False, True):
                letters = self._in_columns if is_by_column else self._letters
                match = letters.find_whole(sought, before=left, after=right)
                if match is not None:
                    return match
        matches = (letters.find_stretches(sought) for letters in (self._letters, self._in_columns))
        return max(matches, key=lambda match: match.num_letters)

    def boxes(self, indexes: Sequence[int]) -> list[Line]:
        """The boxes of characters, one for each line or column that they stand in."""
        boxes, shown = list[Box](), sorted(indexes)
        starts = [0, *(place for place, (left, right) in enumerate(pairwise(shown), 1) if self._is_apart(left, right))]
        for start, end in pairwise([*starts, len(shown)] if shown else []):
            first, last = shown[start], shown[end - 1]
            while first > 0 and self._is_sign(first - 1) and self._text[first - 1] != HYPHEN:
                first -= 1
            while last + 1 < len(self._text) and self._is_sign(last + 1):
                last += 1
            boxes.append(self._joined_box(range(first, last + 1)).grown(MARGIN_POINTS))
        return [line for line in map(self._line, boxes) if line.left < line.right and line.top < line.bottom]

    def _is_apart(self, left: int, right: int) -> bool:
        """Whether a line ends between two characters, or other words stand there."""
        between = self._text[left + 1 : right]
        is_end_of_line = "\n" in between or HYPHEN in between
        return is_end_of_line or any(map(str.isalnum, between)) or self._is_gap(left, right)

    def _is_gap(self, left: int, right: int) -> bool:
        """Whether two characters of a line stand as far apart as columns."""
        first, second = (self._line(Box(*self._texts.get_charbox(index, loose=True))) for index in (left, right))
        gap = (second.left - first.right) * self._page.get_width()
        return bool(gap > COLUMN_GAP * (first.bottom - first.top) * self._page.get_height())

    def _is_sign(self, index: int) -> bool:
        return not (self._text[index].isalnum() or self._text[index].isspace())

    def _joined_box(self, indexes: Sequence[int]) -> Box:
        joined = Box(*self._texts.get_charbox(indexes[0]))
        for index in indexes[1:]:
            box = Box(*self._texts.get_charbox(index))
            joined = joined.union(box) if box.area else joined
        return joined

    @cached_property
    def _in_columns(self) -> _Letters:
        """The letters with one column after the other, where the file has them line by line."""
        shown = [index for index, character in enumerate(self._text) if not character.isspace()]
        is_start = [
            self._text[left] == HYPHEN
            or (right > left + 1 and ("\n" in self._text[left:right] or self._is_gap(left, right)))
            for left, right in pairwise(shown)
        ]
        starts = [0, *(place for place, starts in enumerate(is_start, 1) if starts)]
        if not shown or len(starts) > MAX_SEGMENTS:
            return self._letters
        segments = [shown[start:end] for start, end in pairwise([*starts, len(shown)])]
        lines = [self._line(self._joined_box(segment), str(place)) for place, segment in enumerate(segments)]
        return _Letters(self._text, [index for line in reading_order(lines) for index in segments[int(line.text)]])

    def _line(self, box: Box, text: str = "") -> Line:
        """A box of the page in shares of its image, which may be turned or cut."""
        x, y = ctypes.c_int(), ctypes.c_int()
        corners = []
        for across, up in ((box.left, box.bottom), (box.right, box.top)):
            pdfium.FPDF_PageToDevice(self._page, 0, 0, UNITS, UNITS, 0, across, up, x, y)
            corners.append([min(max(each.value / UNITS, 0.0), 1.0) for each in (x, y)])
        (left, right), (top, bottom) = (sorted(sides) for sides in zip(*corners, strict=True))
        return Line(text=text, confidence=1.0, left=left, top=top, right=right, bottom=bottom)
