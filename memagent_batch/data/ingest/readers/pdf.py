"""PDF by pypdfium2: the text layer, page by page. A page that shows something without a text layer needs OCR."""

import base64
import io
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED
from memagent_batch.data.ingest.readers.pdf_annotations import (
    Annotations,
    CheckBox,
    Comment,
    embedded_file,
    wide_text,
)
from memagent_batch.data.ingest.readers.pdf_flatten import Flattener
from memagent_batch.data.ingest.readers.pdf_shapes import (
    Box,
    PageInk,
    drawn_check_boxes,
    hiding_boxes,
    is_blank_picture,
    is_text_on_top,
    merge_boxes,
    read_shapes,
    remove_hidden_layers,
    strike_boxes,
    without_texts,
)
from memagent_batch.data.ingest.readers.pdf_structure import page_descriptions
from memagent_batch.data.ingest.readers.pdf_text import PageText, TextReader, is_garbled
from memagent_batch.errors import ConversionError

SCAN_SHARE = 0.5
"""Share of the page's area that an image has at least where the page is a scan."""
PICTURE_SHARE = 0.005
"""Share of the page's area from which a picture can hold a line of text."""
UNREAD_SHARE, UNREAD_BLOCKS = 0.05, 20
"""Share and number of the blocks of a picture that show letters beside the text layer, from which it is not read."""
UNREADABLE_SHARE, UNREADABLE_WORD = 0.3, 3
"""Share of characters without a meaning, and number of them in a row, from which a text layer counts as unreadable."""
STAMP_SHARE = 0.05
"""Greatest share of a scanned page's area that stamps cover."""
LETTER_CURVES = 200
"""Segments of drawn shapes from which they may be letters, some 15 each."""
LABEL_CHARACTERS = 40
"""Longest label of a page that its locator shows."""
QUOTED_CHARACTERS = 60
"""Characters of a text that a reason or a comment quotes."""
PAGE = re.compile(rb"(?<!\d)(\d{1,10})\s+\d{1,10}\s+obj\s*<<[^>]*?/Type\s*/Page\b")
"""An object that is a page. Numbers are bounded, since the search of a file with long runs of digits took minutes."""
STREAM = re.compile(rb"(?<!end)stream\r?\n")
FILTER = re.compile(rb"/(\w+)Decode\b")
"""How a stream is packed, in its dictionary: the filters in the order in which they are undone."""
DICTIONARY_BYTES = 500
"""Bytes before a stream that say how it is packed."""
UNPACKED_AT_ONCE = 64 << 10
"""Bytes of packed content that are unpacked at once."""
ZLIB_HEADER_BYTES = 2
FLUSH_MARK = b"\0\0\xff\xff"
"""Ends packed data that was flushed instead of closed; it is whole."""
LAYERS_MARK = b"/OCProperties"
BOOKMARK_DEPTH = 15
"""Levels of bookmarks that are read."""
DOTS_PER_INCH, JPEG_QUALITY = 200, 95
PAGE_PIXELS = 40_000_000
"""Most pixels of a page that is drawn, ten times those of A4: a larger page is drawn smaller."""


class PdfConverter(BuiltIn):
    """A page is a part. Embedded files are attachments. Form fields, stamps and check boxes are part of their page."""

    package, revision, modules = "pypdfium2", 11, ("pypdfium2", "numpy")
    settings = ("ocr",)

    def __init__(self, *, ocr: bool = False) -> None:
        self._ocr = ocr

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each page."""
        document, content = open_document(file), _FileContent(file.read_bytes())
        pages = _Pages(document, file, ocr=self._ocr, has_layers=content.has_layers)
        for number in range(len(document)):
            try:
                yield from pages.items(number)
            except pypdfium2.PdfiumError as error:
                yield Part(locator=_page_place(document, number), status=PartStatus.FAILED, reason=str(error))
        if titles := pages.bookmarks.unsaid():
            yield Part(locator="bookmarks", text="\n".join(titles))
        for number in range(document.count_attachments()):
            yield embedded_file(partial(document.get_attachment, number), number=str(number + 1))
        for reason in content.losses(document):
            yield Part(locator="rest of the file", status=PartStatus.FAILED, reason=reason)


def open_document(file: Path) -> Any:
    """Opens a PDF, with its form fields.

    Raises:
        ConversionError: it can't be opened, or has no page.
    """
    try:
        document = pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise ConversionError("encrypted: it opens with a password only; save a copy without a password") from error
        if "security" in str(error).lower():
            raise ConversionError(
                "encrypted: it opens with a certificate or a rights service only; save a copy without protection"
            ) from error
        raise ConversionError(f"it can't be opened as a PDF; is it whole? {error}") from error
    document.init_forms()
    if not len(document):
        raise ConversionError("it has no page that can be opened; is it whole?")
    return document


class _Bookmarks:
    """Titles beside the pages of a document, most of which are headings that a page says."""

    def __init__(self, document: Any) -> None:
        self._titles = dict[int, str]()
        self._of_pages = defaultdict[int | None, list[int]](list)
        for position, bookmark in enumerate(document.get_toc(max_depth=BOOKMARK_DEPTH)):
            self._titles[position] = bookmark.get_title()
            target = bookmark.get_dest()
            self._of_pages[target and target.get_index()].append(position)

    def said_on(self, number: int, text: str) -> list[str]:
        """Takes out those that lead to a page whose text has them."""
        positions = self._of_pages.get(number, ())
        said = _letters(text) if positions else ""
        return [self._titles.pop(position) for position in positions if _letters(self._titles[position]) in said]

    def unsaid(self) -> list[str]:
        """Those that were not taken out."""
        return [title for title in self._titles.values() if title.strip()]


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


class _Pages:
    """Reads the pages of a document one by one."""

    def __init__(self, document: Any, file: Path, *, ocr: bool, has_layers: bool) -> None:
        self._document, self._ocr, self._has_layers = document, ocr, has_layers
        self._flattener = Flattener(document, file)
        self.bookmarks = _Bookmarks(document)

    def items(self, number: int) -> Iterator[Part | Attachment]:
        """Yields a page, what stands beside its text, and the files attached to it.

        Raises:
            PdfiumError: the page can't be opened.
        """
        page, annotations = self._document[number], Annotations()
        descriptions = page_descriptions(page)
        if pdfium.FPDFPage_GetAnnotCount(page):
            annotations.read(self._document, page, number=number + 1)
        if annotations.show_text:
            page = self._flattener.flatten(page, number)
        hidden_texts = remove_hidden_layers(page) if self._has_layers else None
        shown_page = _Page(page, annotations, hidden_texts, ocr=self._ocr)
        place = _page_place(self._document, number)
        status, reason = shown_page.judge()
        picture = shown_page.picture() if self._ocr and status is PartStatus.NEEDS_OCR else b""
        notes, shown = shown_page.notes(with_check_boxes=bool(picture))
        text = shown_page.text.text
        for said in descriptions:
            is_repeated = _letters(said) in _letters(text)
            (shown if is_repeated else notes).append(said if is_repeated else f"[{said}]")
        shown += [*shown_page.text.left_out, *annotations.left_out, *annotations.hidden, *(hidden_texts or ())]
        left_out = "\n".join((*shown, *self.bookmarks.said_on(number, text)))
        yield Part(locator=place, text=text, status=status, reason=reason, picture=picture, left_out=left_out)
        if notes:
            yield Part(locator=f"{place}, notes", text="\n".join(notes))
        if status is not PartStatus.NEEDS_OCR:
            yield from shown_page.picture_parts(place)
        if page.pdf is not self._document and self._has_layers:
            yield from self._layer_parts(number, place)
        if annotations.has_media:
            why = "media (sound, film or a 3D model): what they say or show is not read"
            yield Part(locator=f"{place}, media", status=PartStatus.SKIPPED, reason=why)
        page.close()
        yield from annotations.attachments

    def _layer_parts(self, number: int, place: str) -> Iterator[Part]:
        """Yields what is to know of a page that was copied, where it has layers that are off: the copy shows them."""
        page = self._flattener.untouched_page(number)
        if remove_hidden_layers(page) is not None:
            why = "layers that are off are read as if they were on"
            yield Part(locator=f"{place}, layers", status=PartStatus.NEEDS_REVIEW, reason=why)
        page.close()


def _page_place(document: Any, number: int) -> str:
    """The locator of a page: its number, and its label, such as a Bates number, if that is another one."""
    label = " ".join(filter(str.isprintable, wide_text(partial(pdfium.FPDF_GetPageLabel, document, number)).split()))
    shown = f" ({label[:LABEL_CHARACTERS]})" if label not in ("", str(number + 1)) else ""
    return f"page {number + 1}{shown}"


class _Page:
    """A page with its text, its annotations and what else it shows."""

    def __init__(self, page: Any, annotations: Annotations, hidden_texts: Sequence[str] | None, *, ocr: bool) -> None:
        self._page, self._annotations, self._hidden_texts = page, annotations, hidden_texts
        self._bounds = Box(*page.get_bbox())
        self._shapes = read_shapes(page)
        self._reader = TextReader(page)
        self._drawn_boxes = [CheckBox(*drawn) for drawn in drawn_check_boxes(self._shapes, self._reader.rects)]
        self.text: PageText = self._reader.read(
            check_boxes=sorted([*annotations.check_boxes, *self._drawn_boxes]),
            strikes=[*annotations.strikes, *strike_boxes(self._shapes, self._reader.rects)],
            rules=[path.box for path in self._shapes.paths],
            covers=hiding_boxes(self._shapes, page_area=self._bounds.area, most_share=SCAN_SHARE),
        )
        self.unread_pictures = self._unread_pictures()
        self._ocr = ocr
        has_scan = ocr and bool(self.unread_pictures and self.text.num_visible)
        self._has_text_over_scan = has_scan and is_text_on_top(self._shapes)
        """Whether its text was laid over a scan, as stamps and page numbers are: OCR reads the scan without it."""

    def _unread_pictures(self) -> list[Box]:
        """Pictures, stamps and handwriting with something that the text layer does not have."""
        drawings = [box.common(self._bounds) for box in self._annotations.drawings]
        merged = merge_boxes([box for picture in self._shapes.pictures if (box := picture.common(self._bounds)).area])
        pictures = [box for box in merged if box.area >= PICTURE_SHARE * self._bounds.area]
        boxes, ink = merge_boxes([*pictures, *(box for box in drawings if box.area)]), None
        unread = list[Box]()
        for box in boxes:
            rects = [rect for rect in self.text.rects if rect.common(box).area]
            if rects:
                ink = ink or PageInk(self._page)
                num_unread, num_blocks = ink.unread_blocks(box, rects)
                has_few = num_unread < UNREAD_BLOCKS or num_unread < UNREAD_SHARE * num_blocks
                if num_blocks and has_few and not self._is_stamped_blank(box, rects):
                    continue
            unread.append(box)
        return unread

    def _is_stamped_blank(self, box: Box, rects: list[Box]) -> bool:
        """Whether pictures that fill the page show nothing under a little text, as if they were damaged."""
        pictures = [cover for cover in self._shapes.covers if not cover.num_segments]
        scans = [cover.handle for cover in pictures if cover.box.common(box).area >= SCAN_SHARE * self._bounds.area]
        is_stamp = sum(rect.area for rect in rects) < STAMP_SHARE * box.area
        return bool(scans) and is_stamp and all(map(is_blank_picture, scans))

    def picture_parts(self, place: str) -> Iterator[Part]:
        """Yields the pictures whose words are not read, with what OCR is to read of them."""
        why = "a picture without a text layer: what it shows is not read"
        for position, box in enumerate(self.unread_pictures, start=1):
            picture = self.picture(box) if self._ocr else b""
            locator = f"{place}, picture {position}"
            yield Part(locator=locator, status=PartStatus.NEEDS_OCR, reason=why, picture=picture)

    def picture(self, box: Box | None = None) -> bytes:
        """Draws the page as it is shown, or a box of it without the text, which is read already."""
        bounds, is_page = self._bounds, box is None
        box = bounds if box is None else box.grown(1).common(bounds)
        sides = [box.left - bounds.left, box.bottom - bounds.bottom, bounds.right - box.right, bounds.top - box.top]
        quarter_turns = self._page.get_rotation() // 90
        crop = sides[quarter_turns:] + sides[:quarter_turns]
        scale, out = min(DOTS_PER_INCH / 72, (PAGE_PIXELS / max(1.0, box.area)) ** 0.5), io.BytesIO()
        with nullcontext() if is_page else without_texts(self._shapes):
            drawn = self._page.render(scale=scale, crop=tuple(crop), draw_annots=False, may_draw_forms=False)
        drawn.to_pil().convert("RGB").save(out, "JPEG", quality=JPEG_QUALITY)
        return out.getvalue()

    def notes(self, *, with_check_boxes: bool) -> tuple[list[str], list[str]]:
        """Texts of annotations that the page does not show, and those that it shows.

        Check boxes among its words are notes, too, if OCR replaces the text of the page.
        """
        notes, shown = [*map(self._comment, self._annotations.comments)], list[str]()
        said = "".join(self.text.text.split())
        for placed in self._annotations.placed_texts:
            is_drawn = "".join(placed.text.split()) in self._reader.text_in(placed.box)
            is_labelled = "".join(placed.tooltip.split()) in said
            if is_drawn and (is_labelled or not placed.text.strip()):
                shown.append(placed.text)
            else:
                notes.append(f"{placed.label}{placed.text}")
        boxes = self._annotations.check_boxes if with_check_boxes else self.text.unplaced_boxes
        notes += [f"{CHECKED if box.is_checked else UNCHECKED} {box.name}" for box in boxes]
        return [note for note in notes if note.strip()], shown

    def _comment(self, comment: Comment) -> str:
        """A comment with its author and the text that it is about, if they are known."""
        anchor = " ".join(" ".join(map(self._reader.words_in, comment.anchors)).split())
        shown = anchor if len(anchor) <= QUOTED_CHARACTERS else f"{anchor[:QUOTED_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
        if not (comment.author or shown):
            return comment.text
        about = f"{' by ' if comment.author else ''}{comment.author}" + (f' on "{shown}"' if shown else "")
        return f"[comment{about}] {comment.text}".strip()

    def judge(self) -> tuple[PartStatus, str | None]:
        """What the text of the page is worth, and why."""
        if reason := self._unread_reason():
            return PartStatus.NEEDS_OCR, reason
        if doubts := list(self._doubts()):
            return PartStatus.NEEDS_REVIEW, "; ".join(doubts)
        remarks = list(self._remarks())
        return PartStatus.OK if self.text.num_visible else PartStatus.EMPTY, "; ".join(remarks) or None

    def _unread_reason(self) -> str | None:
        text, scan_area = self.text, SCAN_SHARE * self._bounds.area
        if text.num_unreadable > UNREADABLE_SHARE * text.num_visible or text.longest_unreadable >= UNREADABLE_WORD:
            return f"{text.num_unreadable} of the {text.num_visible} characters of its text layer have no meaning"
        if not text.num_visible:
            is_blank = self._shapes.is_blank and not self.unread_pictures
            return None if is_blank else "it shows something, and has no text layer"
        has_unread_scan = any(box.area >= scan_area for box in self.unread_pictures)
        if has_unread_scan and not self._has_text_over_scan:
            return "an image fills the page, and its text layer has not all that it shows"
        is_scan = any(box.area >= scan_area for box in merge_boxes(self._shapes.pictures))
        if is_scan and is_garbled(text.text):
            return "an image fills the page, and hardly anything of its text layer looks like words"
        return None

    def _doubts(self) -> Iterator[str]:
        text = self.text
        if text.covered:
            yield f"a shape hides {text.covered[:QUOTED_CHARACTERS]!r}, which is read all the same"
        if text.has_mixed_columns:
            yield "its lines may be those of two columns or the rows of a table: they are read across"
        if text.has_torn_rows:
            yield "rows of a table may be read in pieces: amounts come before the words to the left of them"
        if text.has_right_to_left:
            yield "it has lines from right to left: letters, words and brackets may be in another order"
        if self._drawn_boxes:
            yield "which of its drawn boxes are chosen is told by what is drawn in them"
        if names := self._annotations.contradictory_boxes:
            yield f"it is unclear which check boxes are chosen, as they don't show their values: {', '.join(names)}"

    def _remarks(self) -> Iterator[str]:
        if self.text.num_unreadable:
            yield f"{self.text.num_unreadable} characters without a meaning are not read"
        if self._shapes.num_curves >= LETTER_CURVES:
            yield "drawn shapes, which may be letters, are not read"
        if self._hidden_texts is not None:
            quoted = " ".join(" ".join(self._hidden_texts).split())[:QUOTED_CHARACTERS]
            yield f"what stands on layers that are off is not read{f': {quoted!r}' if quoted else ''}"
        if hidden := " ".join(" ".join(self._annotations.hidden).split()):
            yield f"form fields that no program shows are not read: {hidden[:QUOTED_CHARACTERS]!r}"


class _FileContent:
    """What the bytes of a file tell that no page shows."""

    def __init__(self, data: bytes) -> None:
        self.data, self.has_layers, self.num_damaged = data, LAYERS_MARK in data, 0
        if b"/Encrypt" in self.data:
            self.has_layers = True
            return
        for found in STREAM.finditer(self.data):
            self._look_at(found.start(), found.end())

    def losses(self, document: Any) -> Iterator[str]:
        """What the file holds that is not read, in words."""
        if document.get_formtype() == pdfium.FORMTYPE_XFA_FULL:
            yield "its form (XFA) is not read: only programs of Adobe show it; print it to a PDF"
        if b"/Encrypt" in self.data:
            return
        num_pages = len(set(PAGE.findall(self.data)))
        if num_pages > len(document) and b"/Prev" not in self.data:
            yield f"it holds {num_pages} pages, and its list of pages names {len(document)}: the others are not read"
        if self.num_damaged:
            yield f"{self.num_damaged} pieces of it can't be unpacked to their end, and what they show is not read"

    def _look_at(self, head_end: int, start: int) -> None:
        """Unpacks a stream that is not an image, to see whether it is whole and whether it names layers.

        Data that is packed in another way than by Flate, or by Flate written as letters (ASCII85), is not judged. Its
        checksum is not looked at.
        """
        data = self.data
        head = data[max(0, head_end - DICTIONARY_BYTES) : head_end].rpartition(b"obj")[2]
        filters, end = FILTER.findall(head), data.find(b"endstream", start)
        if b"/Image" in head or filters not in ([b"Flate"], [b"ASCII85", b"Flate"]):
            return
        if len(filters) > 1:
            try:
                data, start = base64.a85decode(data[start:end].strip(), adobe=True), 0
            except ValueError:
                self.num_damaged += 1
                return
            end = len(data)
        if not data[start:end].strip():
            return
        unpacker, has_objects = zlib.decompressobj(-zlib.MAX_WBITS), b"/ObjStm" in head
        try:
            for at in range(start + ZLIB_HEADER_BYTES, end, UNPACKED_AT_ONCE):
                unpacked = unpacker.decompress(data[at : min(end, at + UNPACKED_AT_ONCE)])
                self.has_layers |= has_objects and LAYERS_MARK in unpacked
        except zlib.error:
            self.num_damaged += 1
            return
        self.num_damaged += not (unpacker.eof or data[start:end].rstrip(b"\r\n").endswith(FLUSH_MARK))
