"""OCR by RapidOCR, for pages and images without a text layer: used if a converter is chosen by its name, `rapidocr`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.convert.kinds import PDF_MARK, PDF_MARK_BYTES
from memagent_batch.convert.pdf import PdfConverter

DOTS_PER_INCH = 200
"""At which pages are drawn."""
MIN_CONFIDENCE = 0.7
"""Confidence of a line below which its page needs a look; such lines are read again, larger."""
ENLARGED = 2
MARGIN_PIXELS = 6
"""Pixels around a line that is read again."""
COLUMN_LINES = 4
"""Least lines of text that stands in columns."""
COLUMN_SHARE = 0.25
"""Least width of a column, as a share of the width of all lines: the columns of a table are read row by row."""


class OcrConverter(BuiltIn):
    """A PDF with the pages that need OCR read by it, or an image. Other pages are as without it."""

    package, own, extra, modules = "rapidocr", 1, "ocr", ("rapidocr",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """The parts of the PDF, or one for each image of the file.

        Raises:
            ConversionError: the file can't be opened.
        """
        with file.open("rb") as stream:
            is_pdf = PDF_MARK in stream.read(PDF_MARK_BYTES)
        reader = PageReader()
        yield from _pdf_items(file, reader) if is_pdf else _image_parts(file, reader)


def _pdf_items(file: Path, reader: "PageReader") -> Iterator[Part | Attachment]:
    import pypdfium2

    document = None
    for item in PdfConverter().convert(file):
        if isinstance(item, Part) and item.status is PartStatus.NEEDS_OCR:
            document = document or pypdfium2.PdfDocument(file)
            page = document[int(item.locator.removeprefix("page ")) - 1]
            image = page.render(scale=DOTS_PER_INCH / 72).to_pil().convert("RGB")
            yield reader.part(image, locator=item.locator)
            page.close()
        else:
            yield item


def _image_parts(file: Path, reader: "PageReader") -> Iterator[Part]:
    from PIL import Image, ImageOps

    with Image.open(file) as image:
        for number in range(getattr(image, "n_frames", 1)):
            image.seek(number)
            yield reader.part(ImageOps.exif_transpose(image).convert("RGB"), locator=f"image {number + 1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that was read. Its box is in pixels from the upper left corner of the upright page."""

    text: str
    confidence: float
    """From 0 to 1."""
    left: float
    top: float
    right: float
    bottom: float


class PageReader:
    """The models of one process, and what they read of a page."""

    def __init__(self) -> None:
        from rapidocr import RapidOCR

        threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
        self._engine = RapidOCR(params={"Global.log_level": "error", **threads})

    def part(self, image: Any, *, locator: str) -> Part:
        """What an image says, in the order of reading; `needs_ocr` still if a line is doubtful."""
        turned, lines = self._upright(image)
        lines = [self._again(turned, line) for line in lines]
        if not lines:
            return Part(locator=locator, status=PartStatus.NEEDS_OCR, reason="OCR finds no words on it")
        lowest = min(lines, key=lambda line: line.confidence)
        mean = sum(line.confidence for line in lines) / len(lines)
        reason = f"read by OCR: confidence {mean:.2f} on average, {lowest.confidence:.2f} for the lowest line"
        is_sure = lowest.confidence >= MIN_CONFIDENCE
        if not is_sure:
            share = (lowest.top + lowest.bottom) / 2 / turned.height
            reason += f", which needs a look: {lowest.text!r}, {share:.0%} down the page"
        text = "\n".join(line.text for line in reading_order(lines))
        return Part(
            locator=locator, text=text, status=PartStatus.OK if is_sure else PartStatus.NEEDS_OCR, reason=reason
        )

    def _upright(self, image: Any) -> tuple[Any, list[Line]]:
        """The image turned so that it is read best, and its lines."""
        lines = self._lines(image)
        tall = sum(line.bottom - line.top > line.right - line.left for line in lines)
        if tall > len(lines) / 2:
            turns = (90, 270)
        elif lines and _confidence(lines) < MIN_CONFIDENCE:
            turns = (0, 180)
        else:
            return image, lines
        tried = [(turned, self._lines(turned)) for turned in (image.rotate(turn, expand=True) for turn in turns)]
        return max(tried, key=lambda each: _confidence(each[1]))

    def _lines(self, image: Any) -> list[Line]:
        import numpy as np

        found = self._engine(np.asarray(image)[:, :, ::-1], use_cls=False)  # BGR
        if found.boxes is None:
            return []
        return [
            Line(text=text, confidence=float(score), left=box[0], top=box[1], right=box[2], bottom=box[3])
            for text, score, box in zip(found.txts, found.scores, map(_bounds, found.boxes), strict=True)
        ]

    def _again(self, image: Any, line: Line) -> Line:
        """A doubtful line, read larger if that is surer."""
        import numpy as np

        if line.confidence >= MIN_CONFIDENCE:
            return line
        left, top = max(0, line.left - MARGIN_PIXELS), max(0, line.top - MARGIN_PIXELS)
        piece = image.crop((left, top, line.right + MARGIN_PIXELS, line.bottom + MARGIN_PIXELS))
        larger = piece.resize((piece.width * ENLARGED, piece.height * ENLARGED))
        found = self._engine(np.asarray(larger)[:, :, ::-1], use_det=False, use_cls=False)
        if not found.txts or float(found.scores[0]) <= line.confidence:
            return line
        return replace(line, text=found.txts[0], confidence=float(found.scores[0]))


def _confidence(lines: Sequence[Line]) -> float:
    return sum(line.confidence for line in lines) / max(1, len(lines))


def _bounds(box: Any) -> tuple[float, float, float, float]:
    (left, top), (right, bottom) = box.min(axis=0), box.max(axis=0)
    return float(left), float(top), float(right), float(bottom)


def reading_order(lines: Sequence[Line]) -> Iterator[Line]:
    """Lines from top to bottom; where they stand in columns, one column after the other."""
    rest = sorted(lines, key=lambda line: (line.top + line.bottom, line.left))
    while rest:
        for end in range(len(rest), COLUMN_LINES - 1, -1):
            columns = _two_columns(rest[:end])
            if columns:
                for column in columns:
                    yield from reading_order(column)
                rest = rest[end:]
                break
        else:
            yield rest.pop(0)


def _two_columns(lines: Sequence[Line]) -> tuple[list[Line], list[Line]] | None:
    """Two groups of lines beside one another, with nothing between them that crosses; None if there are none."""
    by_left = sorted(lines, key=lambda line: line.left)
    width = max(line.right for line in lines) - by_left[0].left
    right = by_left[0].right
    for number, line in enumerate(by_left):
        if line.left > right:
            groups = by_left[:number], by_left[number:]
            widths = [sum(each.right - each.left for each in group) / len(group) for group in groups]
            is_text = min(widths) >= COLUMN_SHARE * width and min(map(len, groups)) > 1
            return groups if is_text else None
        right = max(right, line.right)
    return None
