"""OCR of images by RapidOCR, in a process for each; and what is said of images without it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from memagent_batch.config.ingest import MIN_CONFIDENCE
from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Line, Part, PartStatus
from memagent_batch.errors import ConversionError

ENLARGED = 2
MARGIN_PIXELS = 6
"""Pixels around a line that is read again."""
SMALL_PIXELS, SMALL_MARGIN_PIXELS = 48, 20
"""Shorter side to which smaller images are enlarged, and the margin that they get."""
DARK, DOTS_SHARE = 128, 0.3
"""Greatest level of a dark pixel, and the share of dark pixels that stand alone where dots make up the letters."""
LEGIBLE = 0.5
"""Least confidence of the surest line of a page that has words at all."""
NAMED_LINES = 3
UNKNOWN_LETTERS = "\N{REPLACEMENT CHARACTER}"
"""Stands for a line in which RapidOCR knows no letter."""
LETTERS = "Latin, Chinese and Japanese letters"
"""What the models that come with RapidOCR read; it would download others."""
LINE_CHARACTERS = 60
COLUMN_LINES = 4
COLUMN_SHARE = 0.25
"""Least width of a column, as a share of the width of all lines: the columns of a table are read row by row."""


class PictureConverter(BuiltIn):
    """Says that an image is not read."""

    revision = 3

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """One part without text."""
        del file
        reason = "an image; --ingest.ocr reads it (pip install 'memagent-batch[ocr]')"
        yield Part(locator="image", status=PartStatus.NEEDS_OCR, reason=reason)


class OcrConverter(BuiltIn):
    """An image, such as a page or a picture that another converter found."""

    package, revision, extra, modules = "rapidocr", 5, "ocr", ("rapidocr",)
    settings = ("ocr_min_confidence",)

    def __init__(self, *, ocr_min_confidence: float = MIN_CONFIDENCE) -> None:
        self._min_confidence = ocr_min_confidence

    def version(self) -> str:
        """That of its package, and its setting."""
        return f"{super().version()}, min_confidence {self._min_confidence:g}"

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each image of the file."""
        from PIL import Image, ImageOps, UnidentifiedImageError

        try:
            image = Image.open(file)
        except UnidentifiedImageError as error:
            raise ConversionError("it can't be opened as an image") from error
        with image:
            for number in range(getattr(image, "n_frames", 1)):
                image.seek(number)
                yield self.part(ImageOps.exif_transpose(image).convert("RGB"), locator=f"image {number + 1}")

    @cached_property
    def _engine(self) -> Any:
        from rapidocr import RapidOCR

        class Engine(RapidOCR):  # type: ignore[misc]
            """Keeps the lines in which it knows no letter, which RapidOCR drops."""

            def build_final_output(
                self, image: Any, boxes: Any, classes: Any, texts: Any, pieces: Any, record: Any
            ) -> Any:
                if texts.txts is not None:
                    texts.txts = tuple(text if text.strip() else UNKNOWN_LETTERS for text in texts.txts)
                return super().build_final_output(image, boxes, classes, texts, pieces, record)

        threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
        return Engine(params={"Global.log_level": "error", "Global.text_score": 0.0, **threads})

    def part(self, image: Any, *, locator: str) -> Part:
        """What an image says, in the order of reading.

        `needs_review` if a line is doubtful, `needs_ocr` if there are lines that can't be read.
        """
        turned, lines = self._upright(image)
        lines = [*reading_order([self._surest(turned, line) for line in lines])]
        if not lines:
            return Part(locator=locator, status=PartStatus.NEEDS_OCR, reason="OCR finds no words on it")
        is_legible = any(line.text and line.confidence >= LEGIBLE for line in lines)
        read = [line for line in lines if line.text and is_legible]
        doubtful = sorted(filter(self._is_doubtful, read), key=lambda line: line.confidence)
        status, reasons = PartStatus.OK, list[str]()
        if doubtful:
            status, reasons = PartStatus.NEEDS_REVIEW, [_why_doubtful(doubtful)]
        if len(read) < len(lines):
            status, reasons = PartStatus.NEEDS_OCR, [_why_unread(lines, read), *reasons]
        return Part(
            locator=locator,
            text="\n".join(line.text for line in read),
            status=status,
            reason="; ".join(reasons) or "read by OCR",
            lines=read,
        )

    def _is_doubtful(self, line: Line) -> bool:
        return line.confidence < self._min_confidence

    def _upright(self, image: Any) -> tuple[Any, list[Line]]:
        """The image turned so that it is read best, and its lines."""
        lines = self._lines(image)
        tall = sum(_is_tall(line, image) for line in lines)
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

        larger, scale, margin = _enlarged(_smoothed(image))
        found = self._engine(np.asarray(larger)[:, :, ::-1], use_det=True, use_cls=False)  # BGR
        if found.boxes is None:
            return []
        boxes = ((np.asarray(found.boxes) - margin) / scale / (image.width, image.height)).clip(0, 1)
        return [
            Line(
                text=_read_line(text),
                confidence=float(score),
                left=float(left),
                top=float(top),
                right=float(right),
                bottom=float(bottom),
            )
            for text, score, box in zip(found.txts, found.scores, boxes, strict=True)
            for (left, top), (right, bottom) in [(box.min(axis=0), box.max(axis=0))]
        ]

    def _surest(self, image: Any, line: Line) -> Line:
        """A line; one that is doubtful is read again, larger and turned, and what is surest is taken."""
        if not self._is_doubtful(line):
            return line
        piece = image.crop(_pixels(line, image))
        larger = piece.resize((piece.width * ENLARGED, piece.height * ENLARGED))
        turns = (90, 270) if _is_tall(line, image) else (0, 180)
        tried = (self._words(larger.rotate(turn, expand=True), line) for turn in turns)
        return max((line, *tried), key=lambda each: each.confidence)

    def _words(self, piece: Any, line: Line) -> Line:
        """The line with what its piece of the page says."""
        import numpy as np

        found = self._engine(np.asarray(piece)[:, :, ::-1], use_det=False, use_cls=False)
        if not found.txts:
            return line
        return replace(line, text=_read_line(found.txts[0]), confidence=float(found.scores[0]))


def _smoothed(image: Any) -> Any:
    """An image without the dots that stand for grey in a fax, between which no letter is found."""
    import numpy as np
    from PIL import ImageFilter

    dark = np.asarray(image.convert("L")) < DARK
    alone = dark[1:-1, 1:-1] & ~(dark[1:-1, :-2] | dark[1:-1, 2:] | dark[:-2, 1:-1] | dark[2:, 1:-1])
    return image.filter(ImageFilter.GaussianBlur(1)) if alone.sum() > DOTS_SHARE * max(1, dark.sum()) else image


def _enlarged(image: Any) -> tuple[Any, float, int]:
    """A small image larger and with a margin, without which its text is not found; the scale, and the margin."""
    from PIL import ImageOps

    scale = max(1.0, SMALL_PIXELS / min(image.size))
    if scale == 1.0:
        return image, scale, 0
    size = (round(image.width * scale), round(image.height * scale))
    return ImageOps.expand(image.resize(size), SMALL_MARGIN_PIXELS, "white"), scale, SMALL_MARGIN_PIXELS


def _why_doubtful(lines: Sequence[Line]) -> str:
    """What a page's reason says of its doubtful lines, the worst first."""
    named = (
        f"{line.text[:LINE_CHARACTERS]!r} ({line.confidence:.2f}, {_height(line):.0%} down the page)"
        for line in lines[:NAMED_LINES]
    )
    more = f" and {len(lines) - NAMED_LINES} more lines" if len(lines) > NAMED_LINES else ""
    return f"read by OCR, which is not sure of {', '.join(named)}{more}"


def _why_unread(lines: Sequence[Line], read: Sequence[Line]) -> str:
    """What a page's reason says of the lines that OCR sees and can't read."""
    unread = [line for line in lines if line not in read]
    places = ", ".join(f"{_height(line):.0%}" for line in unread[:NAMED_LINES])
    more = f" and {len(unread) - NAMED_LINES} more" if len(unread) > NAMED_LINES else ""
    return f"OCR can't read {len(unread)} of its {len(lines)} lines ({places}{more} down the page); it knows {LETTERS}"


def _height(line: Line) -> float:
    return (line.top + line.bottom) / 2


def _confidence(lines: Sequence[Line]) -> float:
    return sum(line.confidence for line in lines) / max(1, len(lines))


def _is_tall(line: Line, image: Any) -> bool:
    return bool((line.bottom - line.top) * image.height > (line.right - line.left) * image.width)


def _pixels(line: Line, image: Any) -> tuple[float, float, float, float]:
    """The box of a line with some pixels around it."""
    left, right = line.left * image.width - MARGIN_PIXELS, line.right * image.width + MARGIN_PIXELS
    top, bottom = line.top * image.height - MARGIN_PIXELS, line.bottom * image.height + MARGIN_PIXELS
    return max(0, left), max(0, top), min(image.width, right), min(image.height, bottom)


def _read_line(text: str) -> str:
    return " ".join(text.replace(UNKNOWN_LETTERS, "").split())


def reading_order(lines: Sequence[Line]) -> Iterator[Line]:
    """Lines from top to bottom; where they stand in columns, one column after the other."""
    rest = _row_by_row(lines)
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


def _row_by_row(lines: Sequence[Line]) -> list[Line]:
    """Lines from top to bottom; pieces of one line, whose middles differ a little, from left to right."""
    rows = list[list[Line]]()
    for line in sorted(lines, key=_height):
        if rows and _height(line) - _height(rows[-1][0]) < (line.bottom - line.top) / 2:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [line for row in rows for line in sorted(row, key=lambda line: line.left)]


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
