"""All that a message of Outlook (.msg) contains: the texts of every property, and its files, at any depth."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import olefile

from memagent_batch.data.ingest.counts.mail import readable_headers
from memagent_batch.data.ingest.counts.pages import page_contents
from memagent_batch.data.ingest.counts.rtf import letters_of
from memagent_batch.data.ingest.counts.words import Content
from memagent_batch.data.ingest.readers.charsets import code_page_label
from memagent_batch.data.ingest.readers.html import decode_page
from memagent_batch.data.ingest.readers.mail_text import decode_text_or_bytes
from memagent_batch.data.ingest.readers.outlook import ATTACHED, RECIPIENT, Losses, MapiItem, unpack_rtf
from memagent_batch.data.ingest.readers.outlook_files import pst_messages, tnef_message
from memagent_batch.errors import ConversionError

PROPERTY = re.compile(r"__substg1\.0_([0-9A-F]{4})(001E|001F|0102)", re.I)
PLACE = re.compile(r"__(attach|recip)_version1\.0_#([0-9A-F]{8})", re.I)
PLACES = {"attach": "attachment", "recip": "recipient"}
CODE_PAGES = re.compile(rb"\x03\0(\xfd\x3f|\xde\x3f).{4}(.{4})", re.S)
"""Properties that name the encodings of texts and of HTML: type, number, flags and value."""
BODY, RTF, HTML, HEADERS, CONTENT, CLASS = 0x1000, 0x1009, 0x1013, 0x007D, 0x3701, 0x001A
FIRST_NAMED = 0x8000
UNREAD = frozenset(
    {
        0x001A,
        0x003F,
        0x0040,
        0x0044,
        0x0064,
        0x0066,
        0x0068,
        0x0070,
        *range(0x0075, 0x0079),
        0x0082,
        0x0C1E,
        0x0E28,
        0x0E29,
        0x0E4B,
        0x1008,
    }
    | {0x1015, 0x1035, 0x1039, 0x3002, 0x39FF, *range(0x1040, 0x1050), 0x10F3, *range(0x3FD9, 0x5800)}
    | {*range(0x5FE0, FIRST_NAMED)} - {0x5D01, 0x5D02}
)
"""Texts that programs write for programs: kinds of addresses, numbers of messages, texts for searches, and who got
this copy."""
PEOPLE = frozenset({0x3001, 0x3003, 0x39FE, 0x3A20})
"""Texts of a recipient that are no copy of the address book."""
EXCHANGE_ADDRESS = re.compile(r"/o=.*", re.I | re.S)
SERVER_LINE = re.compile(r"\AMicrosoft Mail Internet Headers[^\n]*\n")
MAIL_CLASSES = ("ipm.note", "ipm.post", "report.")
"""How the classes of messages begin whose named properties are headers, or written by filters."""


def outlook_contents(file: Path) -> Iterator[Content]:
    """Yields the texts of a message, of its recipients and attachments, and of the messages inside it."""
    with olefile.OleFileIO(file) as ole:
        yield from (content for path in ole.listdir() for content in _contents(ole, path))


def tnef_contents(file: Path) -> Iterator[Content]:
    """Yields the texts and files of a message that Outlook packed for a mail."""
    yield from _item_contents(tnef_message(file.read_bytes(), Losses()), "message")


def pst_contents(file: Path) -> Iterator[Content]:
    """Yields the texts and files of all messages of a mailbox."""
    for number, message in enumerate(pst_messages(file), start=1):
        if isinstance(message, MapiItem):
            yield from _item_contents(message, f"message {number}")


def _item_contents(item: MapiItem, place: str, numbers: Collection[int] | None = None) -> Iterator[Content]:
    """Yields the texts of an item, or only those with some numbers, and what its attachments are."""
    is_mail = (item.text(CLASS).lower() or "ipm.note").startswith(MAIL_CLASSES)
    for number in item.text_numbers():
        is_read = number not in UNREAD | {HTML} and not (is_mail and number >= FIRST_NAMED)
        if number in numbers if numbers is not None else is_read:
            text = EXCHANGE_ADDRESS.sub("", item.text(number))
            if number == HEADERS:
                text = readable_headers(SERVER_LINE.sub("", text).encode("utf-8", "replace"))
            yield Content(place=f"{place}, property {number:04X}", text=text, is_alternative=number != BODY)
    if numbers is None:
        yield from page_contents(item.html(), place=f"{place}, ", is_alternative=True)
        yield from _inner_contents(item, place)


def _inner_contents(item: MapiItem, place: str) -> Iterator[Content]:
    """Yields the recipients of a message, and its attachments."""
    for recipient in item.folders(RECIPIENT):
        yield from _item_contents(recipient, f"{place}, recipient", PEOPLE)
    for number, attachment in enumerate(item.folders(ATTACHED), start=1):
        inner, data = attachment.message(), attachment.data(CONTENT)
        if inner is not None:
            yield from _item_contents(inner, f"{place}, attachment {number}")
        elif data is not None:
            yield Content(place=f"{place}, attachment {number}", file=data)


def _contents(ole: Any, path: Sequence[str]) -> Iterator[Content]:
    """Yields what a stream says."""
    found = PROPERTY.fullmatch(path[-1])
    is_inside_attachment = len(path) > 1 and path[-2].lower().startswith("__attach")
    if found is None or path[0].startswith("__nameid"):
        return
    number, is_binary = int(found[1], 16), found[2] == "0102"
    names = (PLACE.fullmatch(name) for name in path[:-1])
    place = ", ".join(f"{PLACES[name[1]]} {int(name[2], 16) + 1}" for name in names if name is not None) or "message"
    if number == CONTENT and is_binary:
        yield Content(place=place, file=ole.openstream(path).read())
    elif number == HTML:
        page = decode_page(ole.openstream(path).read(), label=_label(ole, path)).text if is_binary else _text(ole, path)
        yield from page_contents(page, place=f"{place}, ", is_alternative=True)
    elif number == RTF and is_binary:
        with suppress(ConversionError):
            for content in letters_of(unpack_rtf(ole.openstream(path).read())):
                if content.place == "text":  # the others are what Outlook makes of HTML
                    yield Content(place=f"{place}, packed RTF", text=content.text, is_alternative=True)
    elif not is_binary and not is_inside_attachment and number not in UNREAD and _is_read(ole, path, number):
        text = _text(ole, path)
        text = (
            readable_headers(SERVER_LINE.sub("", text).encode("utf-8", "replace"))
            if number == HEADERS
            else EXCHANGE_ADDRESS.sub("", text)
        )
        yield Content(place=f"{place}, property {found[1]}", text=text, is_alternative=number != BODY)


def _is_read(ole: Any, path: Sequence[str], number: int) -> bool:
    """Returns whether people read a property."""
    if len(path) > 1 and path[-2].lower().startswith("__recip"):
        return number in PEOPLE
    if number < FIRST_NAMED:
        return True
    kinds = [[*path[:-1], f"__substg1.0_{CLASS:04X}{kind}"] for kind in ("001F", "001E")]
    kind = next((_text(ole, kind) for kind in kinds if ole.exists(kind)), "ipm.note")
    return not kind.lower().startswith(MAIL_CLASSES)


def _text(ole: Any, path: Sequence[str]) -> str:
    data = ole.openstream(path).read()
    if path[-1].upper().endswith("001F"):
        return decode_text_or_bytes(
            data.decode("utf-16-le", "replace").rstrip("\0").encode("utf-8", "replace"), label="utf-8"
        ).text
    return decode_text_or_bytes(data.rstrip(b"\0"), label=_label(ole, path)).text


def _label(ole: Any, path: Sequence[str]) -> str | None:
    """Returns the encoding that the properties beside a stream name, or else those of the whole message."""
    for folder in (path[:-1], []):
        stream = [*folder, "__properties_version1.0"]
        data = ole.openstream(stream).read() if ole.exists(stream) else b""
        pages = dict(CODE_PAGES.findall(data))
        numbers = sorted(pages, reverse=not path[-1].endswith("0102"))
        page = next((value for number in numbers if (value := int.from_bytes(pages[number], "little"))), 0)
        if page:
            return code_page_label(page)
    return None
