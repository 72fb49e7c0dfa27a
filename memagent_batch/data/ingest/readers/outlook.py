"""Messages of Outlook (.msg) by olefile: written as the e-mail that they were, and read as one."""

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.parser import HeaderParser
from email.utils import format_datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import olefile

from memagent_batch.data.ingest.counts.mail import PROGRAM_HEADERS
from memagent_batch.data.ingest.readers.charsets import Decoded, code_page_label
from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.data.ingest.readers.html import decode_page
from memagent_batch.data.ingest.readers.mail import HEADERS, message_items
from memagent_batch.data.ingest.readers.mail_text import decode_header, decode_text_or_bytes
from memagent_batch.data.ingest.readers.page_reader import visible_text
from memagent_batch.data.ingest.readers.rtf import rtf_parts
from memagent_batch.errors import ConversionError

PROPERTIES = "__properties_version1.0"
"""The stream with the numbers of a message, attachment or recipient; texts have streams of their own."""
ATTACHED, RECIPIENT, NAMES = "__attach_version1.0_", "__recip_version1.0_", "__nameid_version1.0"
HEADER_BYTES, INNER_HEADER_BYTES, SMALL_HEADER_BYTES = 32, 24, 8
"""Bytes before the first number: of the message, of a message inside it, of an attachment or recipient."""
ENTRY = struct.Struct("<HHIQ")
"""Type, number and flags of a property, and its value."""
NAME_ENTRY = struct.Struct("<IHH")
"""Number of a named property, its set and kind, and its position after `FIRST_NAMED`."""
FIRST_NAMED, ADDRESS_FIELDS = 0x8000, range(0x3A00, 0x3B00)
TEXT_STREAM = re.compile(r"__substg1\.0_([0-9A-F]{4})001[EF]", re.I)
UNICODE, BYTES, DATA, FOLDER, TIME = 0x001F, 0x001E, 0x0102, 0x000D, 0x0040
"""Types of properties: two kinds of text, bytes, a message or object inside, and a time."""
CLASS, SUBJECT, TRANSPORT_HEADERS, SENT, RECEIVED, CREATED = 0x001A, 0x0037, 0x007D, 0x0039, 0x0E06, 0x3007
CHANGED = 0x3008
IDS = {"Message-ID": 0x1035, "In-Reply-To": 0x1042, "References": 0x1039}
SENDER, AUTHOR = (0x0C1A, 0x5D01, 0x0C1F), (0x0042, 0x5D02, 0x0065)
"""Name, address of the Internet and address of its kind: of who sent it, and of the one for whom it was sent."""
RECIPIENT_NAMES, RECIPIENT_ADDRESSES, RECIPIENT_TYPE, NON_DELIVERY = (0x3001,), (0x39FE, 0x3003), 0x0C15, 0x0C1B
FIRST_LINE = re.compile(r"\A[^:\n]*\n")
"""What Exchange writes before the headers that a message was sent with."""
RECIPIENT_HEADERS = {1: ("To", 0x0E04), 2: ("Cc", 0x0E03), 3: ("Bcc", 0x0E02)}
"""Header of each type of recipient, and the property with all their names."""
REPLY_NAMES = 0x0050
BODY, REPORT_TEXT, RTF, HTML, CODE_PAGE, INTERNET_CODE_PAGE = 0x1000, 0x1001, 0x1009, 0x1013, 0x3FFD, 0x3FDE
CONTENT, SHORT_NAME, LONG_NAME, SHOWN_NAME, LINK, MIME_KIND = 0x3701, 0x3704, 0x3707, 0x3001, 0x370D, 0x370E
EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
MAIL_CLASSES = ("ipm.note", "ipm.post", "report.")
"""How the classes of messages begin that have no fields beside those of an e-mail."""
FIELD_CLASSES = ("ipm.appointment", "ipm.schedule", "ipm.contact", "ipm.stickynote", "ipm.activity")
"""Those whose other fields are texts and times; tasks and forms have more."""
FIELDS = (
    {0x3001: "Name", 0x3A06: "Given name", 0x3A44: "Middle name", 0x3A11: "Surname", 0x3A16: "Company"}
    | {0x3A17: "Job title", 0x3A18: "Department", 0x3A19: "Office", 0x3A4E: "Manager", 0x3A08: "Business phone"}
    | {0x3A1B: "Business phone 2", 0x3A09: "Home phone", 0x3A1C: "Mobile phone", 0x3A24: "Business fax"}
    | {0x3A30: "Assistant", 0x3A48: "Spouse", 0x3A51: "Web page", 0x3A15: "Postal address", 0x3A26: "Country"}
    | {0x3A27: "City", 0x3A28: "State", 0x3A29: "Street", 0x3A2A: "Postal code", 0x3A42: "Birthday"}
    | {0x3A41: "Wedding anniversary"}
)
NAMED_FIELDS = (
    {0x8083: "E-mail", 0x8093: "E-mail 2", 0x80A3: "E-mail 3", 0x801B: "Work address", 0x801A: "Home address"}
    | {0x801C: "Other address", 0x8062: "Instant messaging", 0x802B: "Web page", 0x8208: "Location", 0x820D: "Start"}
    | {0x820E: "End", 0x8232: "Recurrence", 0x8238: "All attendees", 0x823B: "Required attendees"}
    | {0x823C: "Optional attendees", 0x8104: "Start", 0x8105: "Due", 0x810F: "Completed", 0x811F: "Owner"}
    | {0x8121: "Assigned by", 0x8502: "Reminder", 0x8530: "Flag", 0x8539: "Companies"}
)
"""Fields of contacts, appointments and tasks, by the numbers of their names."""
MAX_INNER = 8
RTF_HEADER = struct.Struct("<II4sI")
"""Of packed RTF (MS-OXRTFCP): packed size, size, kind and check sum, which is not looked at."""
DICTIONARY_BYTES = 4096
FIRST_DICTIONARY = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans Serif"
    rb"SymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0" + b"\r\n" + rb"\par \pard\plain\f0\fs20\b\i\u"
    rb"\tab\tx"
)
"""What the dictionary holds before the first byte is unpacked."""


class OutlookConverter(BuiltIn):
    """A message is a part, as in an e-mail; its attachments, and messages inside it, are separate documents."""

    package, revision, modules = "olefile", 9, ("olefile", "lxml.etree")

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Returns the text of the message and of its attachments, and the losses: what could not be read."""
        try:
            with olefile.OleFileIO(file) as ole:
                items = [*message_parts(open_message(ole))]
        except (OSError, LookupError, struct.error, ValueError) as error:
            raise ConversionError(f"it can't be opened as a message of Outlook ({error}); is it whole?") from error
        yield from items


@dataclass(slots=True)
class Losses:
    """What of a message is not read, or may be wrong."""

    unread: list[str] = field(default_factory=list)
    doubts: dict[str, None] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    """Pictures and objects inside its text."""
    left_out: list[str] = field(default_factory=list)
    """What the messages inside it say, which become files, and field codes."""


class MapiItem(ABC):
    """A message, a recipient or an attachment: its properties by their numbers."""

    names: Mapping[int, int]
    """Which of the well-known names a named property has, by the property's number in this file."""
    properties: Mapping[int, tuple[int, int]]
    """Type and value of each property of fixed size, such as a number or a date, by the property's number."""

    def __init__(self, losses: Losses) -> None:
        self.losses = losses

    @abstractmethod
    def data(self, number: int, kind: int = DATA) -> bytes | None:
        """The bytes of a property; None if it is not there."""

    @abstractmethod
    def text_numbers(self) -> Iterable[int]:
        """The numbers of its texts, in order."""

    @abstractmethod
    def folders(self, prefix: str) -> "Sequence[MapiItem]":
        """The attachments or recipients, in order."""

    @abstractmethod
    def message(self) -> "MapiItem | None":
        """The message that an attachment is; None if it is not one."""

    @abstractmethod
    def whole(self) -> "MapiItem":
        """The message of the whole file."""

    def text(self, number: int) -> str:
        """The text of a property; empty if it is not there."""
        wide, narrow = self.data(number, UNICODE), self.data(number, BYTES)
        if wide is not None:
            return wide.decode("utf-16-le", "replace").rstrip("\0")
        if not narrow:
            return ""
        label = self._label(CODE_PAGE, INTERNET_CODE_PAGE)
        return self._take(decode_text_or_bytes(narrow.rstrip(b"\0"), label=label))

    def first_text(self, numbers: Sequence[int]) -> str:
        """The first text that is not empty."""
        return next((text for number in numbers if (text := self.text(number).strip())), "")

    def html(self) -> str:
        """The text in HTML; empty if there is none."""
        data = self.data(HTML)
        if data is None:
            return self.text(HTML)
        return self._take(decode_page(data, label=self._label(INTERNET_CODE_PAGE, CODE_PAGE)))

    def time(self, number: int) -> str:
        """A time as e-mail writes it; empty if it is not there."""
        kind, time = self.properties.get(number, (0, 0))
        with suppress(OverflowError):  # beyond the year 9999: it stands for none
            return format_datetime(EPOCH + timedelta(microseconds=time // 10)) if kind == TIME and time else ""
        return ""

    def number(self, number: int, default: int = 0) -> int:
        """The value of a property that is a number."""
        return self.properties.get(number, (0, default))[1]

    def field_numbers(self) -> list[int]:
        """The numbers of texts that are fields of an address book, or have names."""
        return [number for number in self.text_numbers() if number in ADDRESS_FIELDS or number >= FIRST_NAMED]

    def _take(self, decoded: Decoded) -> str:
        if decoded.doubt:
            self.losses.doubts[decoded.doubt] = None
        return decoded.text

    def _label(self, *numbers: int) -> str | None:
        """Returns the encoding that properties name, here or else in the whole message."""
        pages = (folder.number(number) & 0xFFFFFFFF for folder in (self, self.whole()) for number in numbers)
        page = next(filter(None, pages), None)
        return None if page is None else code_page_label(page)


class _Folder(MapiItem):
    """An item of a message that is saved as a file: a folder in it."""

    def __init__(self, ole: Any, path: Sequence[str], losses: Losses, *, header_bytes: int) -> None:
        super().__init__(losses)
        self._ole, self._path, self._header_bytes = ole, path, header_bytes

    def data(self, number: int, kind: int = DATA) -> bytes | None:
        """The bytes of a property; None if it is not there."""
        name = [*self._path, f"__substg1.0_{number:04X}{kind:04X}"]
        if self._ole.get_type(name) != 2:  # not a stream
            return None
        content: bytes = self._ole.openstream(name).read()
        return content

    def inner(self, name: str, *, header_bytes: int) -> "_Folder":
        """A folder inside."""
        return _Folder(self._ole, [*self._path, name], self.losses, header_bytes=header_bytes)

    def text_numbers(self) -> list[int]:
        """The numbers of its texts, in order."""
        names = [path[-1] for path in self._ole.listdir() if path[:-1] == [*self._path]]
        found = (TEXT_STREAM.fullmatch(name) for name in sorted(names))
        return [int(stream[1], 16) for stream in found if stream is not None]

    def folders(self, prefix: str) -> list["_Folder"]:
        """The attachments or recipients, in order."""
        depth = len(self._path)
        paths = [path for path in self._ole.listdir(streams=False, storages=True) if path[:depth] == [*self._path]]
        names = sorted({path[depth] for path in paths if len(path) == depth + 1})
        return [self.inner(name, header_bytes=SMALL_HEADER_BYTES) for name in names if name.lower().startswith(prefix)]

    def message(self) -> "_Folder | None":
        """The message that an attachment is; None if it is not one."""
        name = f"__substg1.0_{CONTENT:04X}{FOLDER:04X}"
        is_message = self._ole.exists([*self._path, name, PROPERTIES])
        return self.inner(name, header_bytes=INNER_HEADER_BYTES) if is_message else None

    def whole(self) -> "_Folder":
        """The message of the whole file."""
        return _Folder(self._ole, (), self.losses, header_bytes=HEADER_BYTES)

    @cached_property
    def names(self) -> dict[int, int]:  # type: ignore[override]
        """Which of the well-known names a named property has, by the property's number in this file."""
        name = [NAMES, f"__substg1.0_0003{DATA:04X}"]
        data = self._ole.openstream(name).read() if self._ole.exists(name) else b""
        entries = NAME_ENTRY.iter_unpack(data[: len(data) // NAME_ENTRY.size * NAME_ENTRY.size])
        return {FIRST_NAMED + position: name for name, kind, position in entries if not kind & 1}

    @cached_property
    def properties(self) -> dict[int, tuple[int, int]]:  # type: ignore[override]
        """Type and value of each property of fixed size, such as a number or a date, by the property's number."""
        name = [*self._path, PROPERTIES]
        if self._path and not self._ole.exists(name):  # of a recipient or attachment; a message has it
            return {}
        data = self._ole.openstream(name).read()[self._header_bytes :]
        entries = ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size])
        return {number: (kind, value) for kind, number, _, value in entries}


def open_message(ole: Any) -> MapiItem:
    """Opens the message of an MSG file, which olefile has opened."""
    return _Folder(ole, (), Losses(), header_bytes=HEADER_BYTES)


def message_parts(
    message: MapiItem, *, number: int = 1, below: str = "", place: str = ""
) -> Iterator[Part | Attachment]:
    """Yields the text of a message and of its attachments, and the losses: what could not be read.

    Args:
        message: the message.
        number: its position in the file.
        below: what stands before the numbers of its attachments.
        place: what stands before their locators.
    """
    losses = message.losses
    data = _as_mail(message)
    for item in message_items(data, number=number, below=below, place=place, doubts=[*losses.doubts]):
        if isinstance(item, Part) and losses.left_out:
            item = replace(item, left_out="\n".join([item.left_out, *losses.left_out]))
            losses.left_out.clear()
        yield item
    for reason in losses.unread:
        yield Part(locator=f"message {number}", status=PartStatus.FAILED, reason=reason)
    yield from (replace(part, locator=f"{place}{part.locator}") for part in losses.parts)


def _as_mail(message: MapiItem, *, depth: int = 1) -> bytes:
    """The message as an e-mail."""
    content = EmailMessage()
    body = "\n\n".join(filter(None, [message.text(BODY), *_fields(message)]))
    content.set_content(body)
    html = message.html()
    rtf = "" if html else _rtf_text(message)
    if html:
        content.add_alternative(html, subtype="html")
    if rtf:
        content.add_alternative(rtf)
    for attached in message.folders(ATTACHED):
        name = " ".join(attached.first_text((LONG_NAME, SHORT_NAME, SHOWN_NAME)).split()) or "unnamed"
        inner, data = attached.message(), attached.data(CONTENT)
        if inner is not None and depth < MAX_INNER:
            name, data = f"{name.removesuffix('.msg')}.eml", _as_mail(inner, depth=depth + 1)
        elif attached.text(MIME_KIND).lower() == "multipart/signed":  # all of a message that was signed
            name = f"{name}.eml"
        if data is None:
            link = attached.text(LINK)
            message.losses.unread.append(
                f"attachment {name}: it is a link{f' to {link}' if link else ''}, an object or nested too deep, "
                "and is not read"
            )
        else:
            content.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    headers = "".join(f"{name}: {value}\r\n" for name, value in mail_headers(message).items() if value)
    _set_boundaries(content)
    if depth > 1:
        page = visible_text(html)
        message.losses.left_out += [headers, body, page.title, page.text, *page.left_out, rtf]
    return headers.encode("utf-8", "replace") + content.as_bytes()


def _set_boundaries(content: EmailMessage) -> None:
    """Names the boundaries of an e-mail after its content, so that the same message always becomes the same bytes."""
    parts = [part for part in content.walk() if part.is_multipart()]
    leaves = (str(part.get_payload()) for part in content.walk() if not part.is_multipart())
    digest = sha256("\n".join(leaves).encode("utf-8", "surrogateescape")).hexdigest()
    for number, part in enumerate(parts):
        part.set_boundary(f"{number}-{digest}")


def _rtf_text(message: MapiItem) -> str:
    """The text of packed RTF, which may be the only one; empty if there is none."""
    data = message.data(RTF)
    if not data:
        return ""
    try:
        parts = [*rtf_parts(unpack_rtf(data))]
    except ConversionError as error:
        message.losses.unread.append(f"its packed RTF is not read: {error}; save it as EML")
        return ""
    message.losses.doubts |= {
        part.reason: None for part in parts if part.status is PartStatus.NEEDS_REVIEW and part.reason
    }
    message.losses.parts += [part for part in parts if not part.text]
    message.losses.left_out += [part.left_out for part in parts]
    return "\n\n".join(part.text for part in parts if part.text)


def unpack_rtf(data: bytes) -> bytes:
    """Unpacks RTF: runs of eight tokens, each a byte or a reference to bytes among the last 4,096 ones."""
    if len(data) < RTF_HEADER.size:
        raise ConversionError("it is cut off")
    packed_size, size, kind, _ = RTF_HEADER.unpack_from(data)
    content = data[RTF_HEADER.size : packed_size + 4]
    if kind == b"MELA":
        return content[:size]
    if kind != b"LZFu":
        raise ConversionError("it is packed in an unknown way")
    text = _unpack_tokens(content)
    if len(text) < size:
        raise ConversionError(f"it ends after {len(text):,} of {size:,} bytes")
    return text[:size]


def _unpack_tokens(content: bytes) -> bytes:
    out, at, first = bytearray(FIRST_DICTIONARY), 0, len(FIRST_DICTIONARY)
    while at < len(content):
        flags, at = content[at], at + 1
        for bit in range(8):
            if not flags >> bit & 1:
                out += content[at : at + 1]
                at += 1
                continue
            reference, at = int.from_bytes(content[at : at + 2], "big"), at + 2
            start = len(out) - ((len(out) - (reference >> 4)) % DICTIONARY_BYTES)
            if at > len(content) or start == len(out):
                return bytes(out[first:])
            for position in range(start, start + (reference & 0xF) + 2):
                out.append(out[position] if position >= 0 else 0)
    return bytes(out[first:])


def _fields(message: MapiItem) -> Iterator[str]:
    """What an e-mail has no place for: texts of reports, and fields of contacts, appointments and tasks."""
    kind = message.text(CLASS)
    if kind.lower().startswith("report."):
        yield message.text(REPORT_TEXT)
        yield from (recipient.text(NON_DELIVERY) for recipient in message.folders(RECIPIENT))
    if kind.lower().startswith(MAIL_CLASSES):
        return
    names = FIELDS | {number: NAMED_FIELDS[name] for number, name in message.names.items() if name in NAMED_FIELDS}
    lines = []
    for number, name in names.items():
        value = message.time(number) or message.text(number)
        lines += [f"{name}: {value}"] if value else []
    lines += [f"Other: {message.text(number)}" for number in message.field_numbers() if number not in names]
    yield "\n".join(dict.fromkeys(lines))
    if not kind.lower().startswith(FIELD_CLASSES):
        message.losses.unread.append(f"it is a {kind or 'message without a class'}: not all of its fields are read")


def mail_headers(message: MapiItem) -> dict[str, str]:
    """Returns sender, recipients, dates, subject and ids: from the headers of the message, else from its properties."""
    sent = HeaderParser().parsestr(FIRST_LINE.sub("", message.text(TRANSPORT_HEADERS)))
    sender, author = _person(message, SENDER), _person(message, AUTHOR)
    times = (message.time(number) for number in (SENT, RECEIVED, CREATED))
    noted = {
        "From": author or sender,
        "Sender": sender if author not in ("", sender) else "",
        "Reply-To": message.text(REPLY_NAMES),
        "Date": next(filter(None, times), ""),
        "Delivery-Date": message.time(RECEIVED) if message.time(SENT) else "",
        "Subject": message.text(SUBJECT),
        **{name: message.text(number) for name, number in IDS.items()},
    }
    names = [
        *HEADERS,
        *IDS,
        *(name for name in sent if PROGRAM_HEADERS.fullmatch(name) is None and name not in HEADERS),
    ]
    headers = {name: " ".join(str(sent.get(name) or noted.get(name, "")).split()) for name in names}
    return headers | dict(_recipients(message, headers))


def _person(message: MapiItem, numbers: tuple[int, int, int]) -> str:
    return _address(message.text(numbers[0]), message.first_text(numbers[1:]))


def _recipients(message: MapiItem, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The headers of recipients: as sent, with those of the table that are not in them."""
    people: dict[int, list[tuple[str, str]]] = {}
    for recipient in message.folders(RECIPIENT):
        kind = recipient.number(RECIPIENT_TYPE, 1) & 0xF
        name = recipient.first_text(RECIPIENT_NAMES)
        people.setdefault(kind, []).append((name, recipient.first_text(RECIPIENT_ADDRESSES)))
    for kind, (header, names) in RECIPIENT_HEADERS.items():
        sent, listed = headers.get(header, ""), people.get(kind, [])
        shown = decode_header(sent).text.lower()
        more = [
            _address(name, address)
            for name, address in listed
            if not (address.lower() in shown and (name.lower() in shown or name.lower() in address.lower()))
        ]
        yield header, "; ".join(filter(None, [sent, *more])) or " ".join(message.text(names).split())


def _address(name: str, address: str) -> str:
    return f"{name} <{address}>" if name and address and name != address else name or address
