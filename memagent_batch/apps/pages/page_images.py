"""Images of the PDF pages on which evidence stands, for the pages of documents: drawn from the files that were read."""

import logging
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from struct import unpack
from typing import TYPE_CHECKING, Any, Self

from memagent_batch.apps.pages.document_page import Sheet
from memagent_batch.data.documents.listing import sources_root
from memagent_batch.data.ingest.fetch import copy_file
from memagent_batch.data.ingest.readers.process.sandbox import Limits
from memagent_batch.data.ingest.source_rows import last_place
from memagent_batch.data.ingest.tables import SOURCES_TABLE
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.errors import InputError, MemagentError
from memagent_batch.loop.texts.locators import LocatedRow
from memagent_batch.run.document_texts import DocumentText, documents_of
from memagent_batch.run.history import PastRun

if TYPE_CHECKING:
    from memagent_batch.data.ingest.readers.process.worker import Converted

log = logging.getLogger(__name__)

CONVERTERS = {".pdf": "memagent_batch.data.ingest.readers.pdf_images:PdfPageImages"}
"""By ending: for a kind of file, the server would also count the words of the whole file."""
PAGE = re.compile(r"(?:.*, )?page (\d{1,7})\b")
"""Matches the locator of a page, such as `page 3`, also behind the locator of an attachment."""
MAX_PAGES = 3
"""Most pages of one sentence that are drawn."""
CONTEXT_CHARS = 60
"""Characters around a sentence by which it is told from the same words elsewhere on its page."""
MAX_IMAGE_BYTES = 1 << 20
"""Larger files are no images of pages."""
PNG_HEAD = re.compile(rb"\x89PNG\r\n\x1a\n\0\0\0\rIHDR(.{8})", re.S)
SETTING = re.compile(r" \(--ingest[^)]*\)")
"""The setting of `memagent ingest` that a reason names."""
CORNERS = ("left", "top", "right", "bottom")
GRID = 10_000
"""Width and height of the drawing of marks, which is as large as the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMark:
    """A box around words of evidence, in units of `GRID` from the upper left corner."""

    kind: str
    """How the evidence was found: `How`."""
    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageImage:
    """A page with the evidence of one reading."""

    number: int
    href: str
    """From the page of the document."""
    width: int
    height: int
    marks: Sequence[PageMark]
    found: Sequence[int]
    """Numbers of the evidence that is marked."""
    missing: Sequence[int]
    """Numbers of evidence whose words are not found on the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentImages:
    """The images of a document."""

    by_reading: Mapping[int, Sequence[PageImage]]
    """Those of each reading, by its place on the page of the document."""
    problem: str | None
    """Why pages are not shown; None if all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sought:
    """Evidence that stands on pages."""

    reading: int
    number: int
    how: str
    sentence: Mapping[str, Any]
    """As `SoughtSentence`."""


class SourceFiles:
    """The files that the documents of a run were read from."""

    def __init__(self, run: PastRun) -> None:
        self._run = run

    @cached_property
    def _root(self) -> Location | str:
        """Their folder, or why it is not known."""
        output = documents_of(self._run.output, self._run.manifest).output
        try:
            uris = last_place(OutputTable(output=output, name=SOURCES_TABLE))
            if uris is None:
                return "it is not known where the file is"
            options = self._run.output.storage_options
            places = [Location(uri=uri, storage_options=options) for uri in re.split(r" (?=[a-z][\w+.-]*://)", uris)]
            return places[0].at(sources_root(places))
        except MemagentError as error:
            log.warning(f"no page of the files of {self._run.output} can be shown: {error}")
            return "the folder of the files can't be reached"

    def copy(self, source: str, *, source_hash: str, path: Path) -> str | None:
        """Copies a file; returns why there is no copy of the bytes that were read, or None."""
        root = self._root
        if isinstance(root, str):
            return root
        try:
            digest = copy_file(root.at(root.path + source), path)
        except InputError as error:
            return "the file is gone" if isinstance(error.__cause__, FileNotFoundError) else "the file can't be opened"
        return None if digest == source_hash else "the file has changed since it was read"


class PageImages:
    """Draws the PDF pages that hold evidence of a document, each page once.

    Use it in a `with` block: files may be hostile, so that a converter server draws them in its sandbox.

    What was drawn for a document is held until `take` returns it; the images themselves are written at once.
    """

    def __init__(self, write: Callable[[bytes], str]) -> None:
        """`write` writes an image, and returns the link to it from the page of a document."""
        self.num_images = 0
        self.num_without = 0
        """Documents with evidence on pages that are not shown."""
        self._write = write
        self._drawn = dict[str, DocumentImages]()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        from memagent_batch.data.ingest.readers.process.worker import ConverterServer  # an extra's packages

        self._server = self._stack.enter_context(ConverterServer())
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def take(self, sheet: Sheet) -> DocumentImages | None:
        """Returns what was drawn for the page of a document; None if it has no evidence on pages of a file."""
        return self._drawn.pop(sheet.document_id, None)

    def draw(self, sheet: Sheet, document: DocumentText, sources: SourceFiles) -> None:
        """Draws the pages on which evidence of a document stands."""
        row = sheet.readings[0].answer
        source, source_hash = row.get("source"), row.get("source_hash")
        sought = [*_find_sought(sheet, document)] if source and source_hash else []
        if not sought or source is None or source_hash is None:
            return
        folder = self._server.folder()
        try:
            if source == document.document_id:
                problem = sources.copy(source, source_hash=source_hash, path=folder / "source.pdf")
            else:
                problem = "it is an attachment, or lies in an archive"
            by_reading: Mapping[int, Sequence[PageImage]] = {}
            if problem is None:
                by_reading, problem = self._draw(folder / "source.pdf", sought)
        finally:
            self._server.clear()
        self.num_without += problem is not None
        self._drawn[sheet.document_id] = DocumentImages(by_reading=by_reading, problem=problem)

    def _draw(self, file: Path, sought: Sequence[_Sought]) -> tuple[Mapping[int, Sequence[PageImage]], str | None]:
        """Draws pages of a file; returns them by reading, and why some are lacking."""
        settings = {"sentences": [each.sentence for each in sought]}
        converted = self._server.convert(file, converters=CONVERTERS, limits=Limits(), settings=settings)
        images, boxes, problem = self._images(converted), _boxes(converted), converted.failure
        by_reading: dict[int, list[PageImage]] = defaultdict(list)
        for reading in dict.fromkeys(each.reading for each in sought):
            of_reading = [(place, each) for place, each in enumerate(sought) if each.reading == reading]
            for number in sorted({page for _, each in of_reading for page in each.sentence["pages"]}):
                if number not in images:
                    problem = problem or f"page {number} can't be drawn"
                    continue
                on_page = [(each, boxes.get((number, place), [])) for place, each in of_reading]
                on_page = [(each, found) for each, found in on_page if number in each.sentence["pages"]]
                by_reading[reading].append(
                    PageImage(
                        number=number,
                        **images[number],
                        marks=[PageMark(kind=each.how, **box) for each, found in on_page for box in found],
                        found=[each.number for each, found in on_page if found],
                        missing=[each.number for each, found in on_page if not found],
                    )
                )
        return by_reading, None if problem is None else SETTING.sub("", problem)

    def _images(self, converted: "Converted") -> dict[int, dict[str, Any]]:
        """Writes the images; returns their links and sizes by page. A hostile file may have made up what is there."""
        images = {}
        for item in converted.items:
            file = converted.folder / Path(str(item.get("file"))).name
            if not item.get("file") or file.is_symlink() or file.stat().st_size > MAX_IMAGE_BYTES:
                continue
            data = file.read_bytes()
            head = PNG_HEAD.match(data)
            if head is None or not str(item["number"]).isdecimal():
                continue
            width, height = unpack(">II", head[1])
            images[int(item["number"])] = {"href": self._write(data), "width": width, "height": height}
        self.num_images += len(images)
        return images


def _find_sought(sheet: Sheet, document: DocumentText) -> list[_Sought]:
    """The evidence of a document that stands on pages."""
    rows = chain.from_iterable(
        ((place, number, row) for number, row in enumerate(view.evidence, start=1))
        for place, view in enumerate(sheet.readings)
    )
    return [
        _Sought(reading=place, number=number, how=row["how"], sentence=sentence)
        for place, number, row in rows
        if (sentence := _sentence(row, document)) is not None
    ]


def _sentence(row: Row, document: DocumentText) -> dict[str, Any] | None:
    """What is to be found of a row of `evidence`; None if it does not stand on pages."""
    start, end = row["char_start"], row["char_end"]
    found = [PAGE.match(place) for place in (row["locator"] or "").split(" to ")]
    if start is None or found[0] is None:
        return None
    first, last = int(found[0][1]), int((found[-1] or found[0])[1])
    part = _part_at(document.parts, start)
    return {
        "pages": [*range(first, max(first, min(last, first + MAX_PAGES - 1)) + 1)],
        "text": document.text[start:end],
        "before": document.text[max(part.char_start, start - CONTEXT_CHARS) : start],
        "after": document.text[end : max(end, min(part.char_end, end + CONTEXT_CHARS))],
    }


def _part_at(parts: Sequence[LocatedRow], place: int) -> LocatedRow:
    return parts[max(0, bisect_right(parts, place, key=lambda part: part.char_start) - 1)]


def _boxes(converted: "Converted") -> dict[tuple[int, int], list[dict[str, int]]]:
    """The boxes of each sentence, by page and place in the list. A hostile file may have made up what is there."""
    boxes: dict[tuple[int, int], list[dict[str, int]]] = {}
    for item in converted.items:
        try:
            page, place = map(int, str(item.get("locator")).split())
            corners = [[round(float(line[name]) * GRID) for name in CORNERS] for line in item["lines"]]
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        boxes[page, place] = [
            {"left": left, "top": top, "width": max(0, right - left), "height": max(0, bottom - top)}
            for left, top, right, bottom in corners
        ]
    return boxes
