"""E-mail by the standard library: a message (.eml) or a mailbox (.mbox); attachments are separate documents."""

import email
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.errors import (
    HeaderParseError,
    InvalidBase64CharactersDefect,
    InvalidBase64LengthDefect,
    InvalidBase64PaddingDefect,
)
from email.header import decode_header, make_header
from email.message import EmailMessage
from email.policy import EmailPolicy
from functools import partial
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import (
    Attachment,
    BuiltIn,
    Part,
    PartStatus,
    failure_reason,
    picture_parts,
    read_attachment,
)
from memagent_batch.convert.html import CELLS_APART, visible_text
from memagent_batch.convert.text import PGP_START, PGP_UNREAD

HEADERS = ("From", "To", "Cc", "Date", "Subject")
"""Headers that stand before the text of a message."""
MBOX_START = re.compile(rb"^From (?=[^\r\n]*\d{4})[^\r\n]*\d:\d\d[^\r\n]*\r?\n", re.M)
"""How a message of a mailbox begins: sender, date and time. A line of a text that begins with the word has no time."""

REPLACED = "\ufffd"
"""What stands for bytes that a character set does not have."""
REPLACED_BYTES = "bytes that its character set does not have are shown as U+FFFD"
DAMAGED_ENCODING = "its encoding is damaged: what can't be decoded is not read"
ENCODING_DEFECTS = (InvalidBase64CharactersDefect, InvalidBase64LengthDefect, InvalidBase64PaddingDefect)
UU_START = re.compile(r"^begin [0-7]{3,4} (.+)\n(?:[ -`]+\n)*?end$", re.M)
UU_UNREAD = "a file inside the text (uuencode), which is not read"


class _Policy(EmailPolicy):
    """Takes a header as it is in the file if the standard library fails at it, as it does at `To: root@`."""

    def header_fetch_parse(self, name: str, value: Any) -> Any:
        try:
            return super().header_fetch_parse(name, value)
        except Exception:  # noqa: BLE001 - its parser raises IndexError, AttributeError and others
            if name.lower() == "content-disposition":
                kind = "attachment" if "attach" in str(value).lower() else "inline"
                return super().header_fetch_parse(name, kind)
            return " ".join(str(value).encode("utf-8", "replace").decode().split())


POLICY = _Policy()


@dataclass(slots=True)
class _Content:
    """What a message holds, as it is found."""

    texts: list[str] = field(default_factory=list)
    files: list[EmailMessage] = field(default_factory=list)
    remarks: dict[str, None] = field(default_factory=dict)
    pictures: list[bytes] = field(default_factory=list)
    """Images inside texts in HTML."""
    failures: list[str] = field(default_factory=list)


class MailConverter(BuiltIn):
    """A message is a part: its headers, then its text; plain text before HTML where it has both.

    Of HTML all that a reader sees is taken: quoted messages and signatures are not boilerplate.
    """

    package, own, modules = "lxml", 7, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each message, and the attachments."""
        data = file.read_bytes()
        if MBOX_START.match(data) is None:
            yield from message_items(data, number=1)
            return
        starts = [*MBOX_START.finditer(data)]
        ends = [*(start.start() for start in starts[1:]), len(data)]
        for number, (start, end) in enumerate(zip(starts, ends, strict=True), start=1):
            place = f"message {number}, "
            yield from message_items(data[start.end() : end], number=number, below=f"{number}-", place=place)


def message_items(data: bytes, *, number: int, below: str = "", place: str = "") -> Iterator[Part | Attachment]:
    """A message: its text with its headers, and its attachments."""
    locator = f"message {number}"
    try:
        message = email.message_from_bytes(data, policy=POLICY)
        assert isinstance(message, EmailMessage)
        content = _Content()
        _collect_parts(message, content)
        headers = [f"{name}: {text}" for name in HEADERS if (text := _header_text(message, name))]
    except Exception as error:  # noqa: BLE001 - a message that no parser can read costs itself, not its mailbox
        yield Part(locator=locator, status=PartStatus.FAILED, reason=failure_reason(error))
        return
    text = "\n\n".join(["\n".join(headers), *content.texts]).strip()
    yield Part(locator=locator, text=text, reason="; ".join(content.remarks) or None)
    for failure in content.failures:
        yield Part(locator=locator, status=PartStatus.FAILED, reason=failure)
    for number_inside, picture in enumerate(content.pictures, start=1):
        yield from picture_parts(f"{locator}, picture {number_inside}", picture)
    for position, part in enumerate(content.files, start=1):
        yield read_attachment(
            number=f"{below}{position}",
            locator=f"{place}attachment",
            name=partial(_file_name, part),
            data=partial(_attachment_data, part),
            failure="this attachment can't be unpacked",
        )


def _collect_parts(part: EmailMessage, content: _Content, *, with_text: bool = True) -> None:
    """Finds texts and files, in order; of alternatives the text of one, and the files of all."""
    kind = part.get_content_type()
    if part.is_multipart() and kind != "message/rfc822":
        parts = [each for each in part.iter_parts() if isinstance(each, EmailMessage)]
        chosen = _read_alternatives(parts) if kind == "multipart/alternative" else parts
        for each in parts:
            _collect_parts(each, content, with_text=with_text and any(each is one for one in chosen))
    elif kind not in ("text/plain", "text/html") or part.is_attachment() or part.get_filename():
        content.files.append(part)
    elif with_text:
        _collect_text(part, content)


def _collect_text(part: EmailMessage, content: _Content) -> None:
    text = _leaf_text(part)
    if REPLACED in text:
        content.remarks[REPLACED_BYTES] = None
    if any(isinstance(defect, ENCODING_DEFECTS) for defect in part.defects):
        content.failures.append(DAMAGED_ENCODING)
    if PGP_START in text:
        content.failures.append(PGP_UNREAD)
    if UU_START.search(text.replace("\r\n", "\n")):
        content.failures.append(UU_UNREAD)
    if part.get_content_type() == "text/html":
        seen = visible_text(text)
        text = seen.text
        content.pictures.extend(seen.pictures)
        content.failures.extend(filter(None, [seen.failure]))
    content.texts.append(text)


def _read_alternatives(parts: list[EmailMessage]) -> list[EmailMessage]:
    """The alternatives that are read: plain text that is not empty, and HTML that says more; else the richest."""
    plain = next((each for each in parts if each.get_content_type() == "text/plain" and _leaf_text(each).strip()), None)
    if plain is None:
        return parts[-1:]
    read = _words(_leaf_text(plain))
    pages = [(each, visible_text(_leaf_text(each))) for each in parts if each.get_content_type() == "text/html"]
    return [plain, *(each for each, page in pages if page.failure or _words(page.text) - read)]


def _words(text: str) -> set[str]:
    """Words of a text; not what `visible_text` puts between the cells of a table."""
    return set(text.split()) - {CELLS_APART}


def _leaf_text(part: EmailMessage) -> str:
    """The text of a leaf; bytes that its character set does not have become U+FFFD, as mail programs show them."""
    try:
        return str(part.get_content())
    except (LookupError, TypeError, ValueError):  # no known character set, or a broken transfer encoding
        payload = part.get_payload(decode=True)
        return (payload if isinstance(payload, bytes) else b"").decode("utf-8", errors="replace")


def _header_text(message: EmailMessage, name: str) -> str:
    """A header as it is in the file, with its encoded words decoded; a parser would drop what it can't follow."""
    values = (str(value) for header, value in message.raw_items() if header.lower() == name.lower())
    text = "; ".join(values).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if "=?" in text:
        with suppress(HeaderParseError, LookupError, ValueError):
            text = str(make_header(decode_header(text)))
    return " ".join(text.split())


def _file_name(part: EmailMessage) -> str:
    if part.get_filename():
        return str(part.get_filename())
    if part.get_content_type() == "message/rfc822":
        inner = next(iter(part.iter_parts()), None)
        subject = _header_text(inner, "Subject") if isinstance(inner, EmailMessage) else ""
        return f"{subject or 'message'}.eml"
    endings = {"text/plain": ".txt", "text/html": ".html", "application/pdf": ".pdf"}
    return f"unnamed{endings.get(part.get_content_type(), '')}"


def _attachment_data(part: EmailMessage) -> bytes:
    if part.is_multipart():
        return b"".join(inner.as_bytes() for inner in part.iter_parts())
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""
