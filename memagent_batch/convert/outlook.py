"""Messages of Outlook (.msg) by olefile: written as the e-mail that they were, and read as one."""

import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.parser import HeaderParser
from email.utils import format_datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.convert.mail import HEADERS, message_items
from memagent_batch.errors import ConversionError

PROPERTIES = "__properties_version1.0"
"""The stream with the numbers of a message, attachment or recipient; texts have streams of their own."""
ATTACHED = "__attach_version1.0_"
HEADER_BYTES, INNER_HEADER_BYTES, ATTACHED_HEADER_BYTES = 32, 24, 8
"""Bytes before the first number: of the message, of a message inside it, of an attachment."""
ENTRY = struct.Struct("<HHIQ")
"""Type, number and flags of a property, and its value."""
UNICODE, BYTES, DATA, FOLDER = 0x001F, 0x001E, 0x0102, 0x000D
"""Types of properties: two kinds of text, bytes, and a message or object inside."""
CLASS, SUBJECT, TRANSPORT_HEADERS, SENT = 0x001A, 0x0037, 0x007D, 0x0039
SENDER_NAME, SENDER_ADDRESS, SENDER_SMTP, TO, CC = 0x0C1A, 0x0C1F, 0x5D01, 0x0E04, 0x0E03
BODY, RTF, HTML, CODE_PAGE, HTML_CODE_PAGE = 0x1000, 0x1009, 0x1013, 0x3FFD, 0x3FDE
CONTENT, SHORT_NAME, LONG_NAME = 0x3701, 0x3704, 0x3707
EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
DEFAULT_PAGE = 1252
CODE_PAGES = {
    10000: "mac_roman",
    65001: "utf-8",
    20127: "ascii",
    20866: "koi8-r",
    21866: "koi8-u",
    50220: "iso2022_jp",
    51949: "euc_kr",
    **{28590 + part: f"iso8859-{part}" for part in range(1, 16)},
}
"""Encodings of the code pages whose names in Python are not their numbers."""
MAIL_CLASSES = ("ipm.note", "ipm.post", "report.")
"""How the classes of messages begin that have no fields beside those of an e-mail."""
MAX_INNER = 8


class OutlookConverter(BuiltIn):
    """A message is a part, as in an e-mail; its attachments, and messages inside it, are separate documents."""

    package, own, modules = "olefile", 3, ("olefile", "lxml.etree")

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """The message, its attachments, and what can't be read of them.

        Raises:
            ConversionError: it is damaged, or not a message.
        """
        import olefile

        try:
            with olefile.OleFileIO(file) as ole:
                unread = list[str]()
                data = _as_mail(_Folder(ole, (), header_bytes=HEADER_BYTES), unread)
        except (OSError, LookupError, struct.error, ValueError) as error:
            raise ConversionError(f"it can't be opened as a message of Outlook ({error}); is it whole?") from error
        yield from message_items(data, number=1)
        for reason in unread:
            yield Part(locator="message 1", status=PartStatus.FAILED, reason=reason)


class _Folder:
    """A message, or an attachment: its properties by their numbers."""

    def __init__(self, ole: Any, path: Sequence[str], *, header_bytes: int) -> None:
        self._ole = ole
        self._path = path
        self._header_bytes = header_bytes

    def data(self, number: int, kind: int = DATA) -> bytes | None:
        """The bytes of a property; None if it is not there."""
        name = [*self._path, f"__substg1.0_{number:04X}{kind:04X}"]
        if self._ole.get_type(name) != 2:  # not a stream
            return None
        content: bytes = self._ole.openstream(name).read()
        return content

    def text(self, number: int) -> str:
        """The text of a property; empty if it is not there."""
        wide, narrow = self.data(number, UNICODE), self.data(number, BYTES)
        if wide is not None:
            return wide.decode("utf-16-le", "replace").rstrip("\0")
        return (narrow or b"").decode(self._encoding(CODE_PAGE), "replace").rstrip("\0")

    def html(self) -> str:
        """The text in HTML; empty if there is none."""
        data = self.data(HTML)
        return self.text(HTML) if data is None else data.decode(self._encoding(HTML_CODE_PAGE), "replace")

    def inner(self, name: str, *, header_bytes: int) -> "_Folder":
        """A folder inside."""
        return _Folder(self._ole, [*self._path, name], header_bytes=header_bytes)

    def attached(self) -> list["_Folder"]:
        """The attachments, in order."""
        depth = len(self._path)
        paths = [path for path in self._ole.listdir(streams=False, storages=True) if path[:depth] == [*self._path]]
        names = sorted({path[depth] for path in paths if len(path) == depth + 1})
        return [
            self.inner(name, header_bytes=ATTACHED_HEADER_BYTES) for name in names if name.lower().startswith(ATTACHED)
        ]

    def message(self) -> "_Folder | None":
        """The message that an attachment is; None if it is not one."""
        name = f"__substg1.0_{CONTENT:04X}{FOLDER:04X}"
        is_message = self._ole.exists([*self._path, name, PROPERTIES])
        return self.inner(name, header_bytes=INNER_HEADER_BYTES) if is_message else None

    @cached_property
    def numbers(self) -> dict[int, int]:
        """The properties that are numbers."""
        data = self._ole.openstream([*self._path, PROPERTIES]).read()[self._header_bytes :]
        entries = ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size])
        return {number: value for _, number, _, value in entries}

    def _encoding(self, number: int) -> str:
        page = (self.numbers.get(number) or self.numbers.get(CODE_PAGE) or DEFAULT_PAGE) & 0xFFFFFFFF
        return CODE_PAGES.get(page, f"cp{page}")


def _as_mail(message: _Folder, unread: list[str], *, depth: int = 1) -> bytes:
    """The message as an e-mail. `unread` gets what can't be read of it, in words."""
    content, text, html = EmailMessage(), message.text(BODY), message.html()
    content.set_content(text)
    if html:
        content.add_alternative(html, subtype="html")
    if not text.strip() and not html and message.data(RTF) is not None:
        unread.append("its text is there as packed RTF alone, which is not read; save it as EML")
    kind = message.text(CLASS)
    if not kind.lower().startswith(MAIL_CLASSES):
        unread.append(f"it is a {kind or 'message without a class'}: only its text and its files are read")
    for attached in message.attached():
        name, inner, data = _name(attached), attached.message(), attached.data(CONTENT)
        if inner is not None and depth < MAX_INNER:
            name, data = f"{name.removesuffix('.msg')}.eml", _as_mail(inner, unread, depth=depth + 1)
        if data is None:
            unread.append(f"attachment {name}: it is a link, an object or nested too deep, and is not read")
        else:
            content.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    headers = "".join(f"{name}: {value}\r\n" for name, value in _headers(message).items() if value)
    return headers.encode("utf-8", "replace") + content.as_bytes()


def _name(attached: _Folder) -> str:
    return " ".join((attached.text(LONG_NAME) or attached.text(SHORT_NAME) or "unnamed").split())


def _headers(message: _Folder) -> dict[str, str]:
    """Sender, recipients, date and subject: those that it was sent with, else those that Outlook noted."""
    sent = HeaderParser().parsestr(message.text(TRANSPORT_HEADERS))
    address = message.text(SENDER_SMTP) or message.text(SENDER_ADDRESS)
    time = message.numbers.get(SENT)
    noted = {
        "From": f"{message.text(SENDER_NAME)} <{address}>" if address else message.text(SENDER_NAME),
        "To": message.text(TO),
        "Cc": message.text(CC),
        "Date": format_datetime(EPOCH + timedelta(microseconds=time // 10)) if time else "",
        "Subject": message.text(SUBJECT),
    }
    return {name: " ".join(str(sent.get(name) or noted[name]).split()) for name in HEADERS}
