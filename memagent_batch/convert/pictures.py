"""Pictures inside a file: what they show is not read without OCR, and that is said."""

from collections.abc import Iterator

from memagent_batch.convert.converter import Part, PartStatus

SMALL_BYTES = 512
"""Pictures of fewer bytes show lines and dots, no words."""
PICTURE_UNREAD = "a picture: what it shows is not read; switch OCR on, or run it first"


def picture_parts(locator: str, data: bytes) -> Iterator[Part]:
    """The part of a picture; none for one that is too small to show words."""
    if len(data) >= SMALL_BYTES:
        yield Part(locator=locator, text="", status=PartStatus.NEEDS_OCR, reason=PICTURE_UNREAD)
