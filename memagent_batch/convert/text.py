"""Plain text and Markdown. A Markdown file has a part for each section."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from memagent_batch.convert.converter import WHOLE_SOURCE, Attachment, BuiltIn, Part, PartStatus
from memagent_batch.errors import ConversionError

BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
PGP_START = "-----BEGIN PGP MESSAGE-----"
PGP_UNREAD = "a PGP message, whose text is not read: decrypt it first"
HEADING = re.compile(r"#{1,6}[ \t]+(?P<title>.*?)[ \t#]*")
FENCE = re.compile(r"[ ]{0,3}(```|~~~)")
TITLE_CHARACTERS = 80
"""Longest title that a locator shows."""


class TextConverter(BuiltIn):
    """The whole file is one part."""

    own = 2

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """One part."""
        text, note = decoded(file.read_bytes())
        yield Part(locator=WHOLE_SOURCE, text=text, reason=note)
        if PGP_START in text:
            yield Part(locator="PGP message", status=PartStatus.FAILED, reason=PGP_UNREAD)


class MarkdownConverter(BuiltIn):
    """The marks stay, since models read them. A heading begins a part."""

    own = 2

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each section."""
        text, note = decoded(file.read_bytes())
        yield from section_parts(_headed_lines(text), separator="\n", note=note)


def decoded(data: bytes) -> tuple[str, str | None]:
    """The text of a file, and what to know of it where it is not UTF-8.

    Raises:
        ConversionError: it is not text.
    """
    encoding = next((name for mark, name in BYTE_ORDER_MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            raise ConversionError(f"its byte order mark says {encoding}, which it is not ({error})") from error
        text = ""
    if "\0" in text or (not text and b"\0" in data):
        raise ConversionError("it holds NUL bytes, so it is not text; convert it to UTF-8")
    if text or not data:
        return text, None
    try:
        return data.decode("cp1252"), "not valid UTF-8: taken for windows-1252"
    except UnicodeDecodeError as error:
        raise ConversionError(f"neither UTF-8 nor windows-1252 ({error}); convert it to UTF-8") from error


def section_parts(
    blocks: Iterable[tuple[str | None, str]], *, separator: str, note: str | None = None
) -> Iterator[Part]:
    """The parts of a text with headings: a section each, and one for what stands before the first heading.

    A block is a title (None where it is not a heading) and a text.
    """
    title, texts, number = None, list[str](), 0
    for heading, text in blocks:
        if heading is not None:
            if any(each.strip() for each in texts):
                yield Part(locator=_heading_locator(title, number), text=separator.join(texts), reason=note)
            title, texts, number = heading, [], number + 1
        texts.append(text)
    yield Part(locator=_heading_locator(title, number), text=separator.join(texts), reason=note)


def _headed_lines(text: str) -> Iterator[tuple[str | None, str]]:
    """The lines, each with its title where it is a heading; lines of a code block are none."""
    is_code = False
    for line in text.split("\n"):
        is_code ^= FENCE.match(line) is not None
        heading = None if is_code else HEADING.fullmatch(line.rstrip("\r"))
        yield (heading["title"] if heading else None), line


def _heading_locator(title: str | None, number: int) -> str:
    if title is None:
        return WHOLE_SOURCE
    shown = " ".join(title.split())
    return f"section {number}: {shown[:TITLE_CHARACTERS]}".rstrip(": ")
