"""Pictures: what they show is not read without OCR, and that is said."""

from collections.abc import Iterator
from pathlib import Path

from memagent_batch.convert.converter import Attachment, BuiltIn, Part, PartStatus

SMALL_BYTES = 512
"""Pictures of fewer bytes show lines and dots, no words."""
PICTURE_UNREAD = "a picture: what it shows is not read without OCR"
UNREAD_IMAGE = "an image; --converter image=rapidocr reads it (pip install 'memagent-batch[ocr]')"


class PictureConverter(BuiltIn):
    """Says that an image is not read."""

    own = 1

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """One part without text."""
        del file
        yield Part(locator="image", status=PartStatus.NEEDS_OCR, reason=UNREAD_IMAGE)


def picture_parts(locator: str, data: bytes) -> Iterator[Part]:
    """The part of a picture; none for one that is too small to show words."""
    if len(data) >= SMALL_BYTES:
        yield Part(locator=locator, status=PartStatus.NEEDS_OCR, reason=PICTURE_UNREAD)
