"""Plain text and Markdown. A Markdown file has a part for each section."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from memagent_batch.data.ingest.readers.charsets import decode_text
from memagent_batch.data.ingest.readers.converter import WHOLE_SOURCE, Attachment, BuiltIn, Part, PartStatus

PGP_START = "-----BEGIN PGP MESSAGE-----"
PGP_UNREAD = "a PGP message, whose text is not read: decrypt it first"
HEADING = re.compile(r"#{1,6}[ \t]+(?P<title>.*?)[ \t#]*")
FENCE = re.compile(r"[ ]{0,3}(```|~~~)")
TITLE_CHARACTERS = 80
"""Longest title that a locator shows."""


class TextConverter(BuiltIn):
    """Reads a whole file as one part."""

    revision, package = 6, "chardet"

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields the text as one part."""
        decoded = decode_text(file.read_bytes())
        yield from doubtful([Part(locator=WHOLE_SOURCE, text=decoded.text)], decoded.doubt)
        if PGP_START in decoded.text:
            yield Part(locator="PGP message", status=PartStatus.FAILED, reason=PGP_UNREAD)


class MarkdownConverter(BuiltIn):
    """Reads Markdown with its marks, since models read them. A heading begins a part."""

    revision, package = 6, "chardet"

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields a part for each section."""
        decoded = decode_text(file.read_bytes())
        yield from doubtful(section_parts(_headed_lines(decoded.text), separator="\n"), decoded.doubt)


def doubtful(parts: Iterable[Part], doubt: str | None) -> Iterator[Part]:
    """Yields the parts, marked as uncertain if there is a doubt about their characters."""
    for part in parts:
        yield part if doubt is None else replace(part, status=PartStatus.NEEDS_REVIEW, reason=doubt)


def section_parts(blocks: Iterable[tuple[str | None, str]], *, separator: str) -> Iterator[Part]:
    """The parts of a text with headings: a section each, and one for what stands before the first heading.

    A block is a title (None where it is not a heading) and a text.
    """
    title, texts, number = None, list[str](), 0
    for heading, text in blocks:
        if heading is not None:
            if any(each.strip() for each in texts):
                yield Part(locator=_heading_locator(title, number), text=separator.join(texts))
            title, texts, number = heading, [], number + 1
        texts.append(text)
    yield Part(locator=_heading_locator(title, number), text=separator.join(texts))


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
