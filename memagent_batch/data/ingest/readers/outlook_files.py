"""Messages of Outlook outside of MSG files: those that it packed for a mail (TNEF, winmail.dat), and mailboxes (PST).

They have the same properties as those of MSG files, by the same numbers.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.data.ingest.readers.outlook import (
    ATTACHED,
    BYTES,
    CLASS,
    CONTENT,
    DATA,
    EPOCH,
    FIRST_NAMED,
    FOLDER,
    INTERNET_CODE_PAGE,
    MAX_INNER,
    NAME_ENTRY,
    RECIPIENT,
    SENT,
    SHOWN_NAME,
    SUBJECT,
    TIME,
    UNICODE,
    Losses,
    MapiItem,
    message_parts,
)
from memagent_batch.errors import ConversionError

Property = tuple[int, int, bytes]
"""Number, type and value."""
TNEF_HEADER_BYTES, ATTRIBUTE, CHECK_SUM_BYTES = 6, struct.Struct("<BII"), 2
TNEF_SUBJECT, TNEF_BODY, TNEF_CLASS, TNEF_SENT, TNEF_CODE_PAGE = 0x8004, 0x800C, 0x8008, 0x8005, 0x9007
TNEF_PROPERTIES, TNEF_RECIPIENTS = 0x9003, 0x9004
TNEF_ATTACHMENT, TNEF_FILE_DATA, TNEF_FILE_NAME, TNEF_FILE_PROPERTIES = 0x9002, 0x800F, 0x8010, 0x9005
TNEF_FILE = (TNEF_FILE_DATA, TNEF_FILE_NAME, TNEF_FILE_PROPERTIES)
"""Attributes of TNEF: of a message, and of an attachment, which the first of them begins."""
SIZES = {0x0002: 2, 0x0003: 4, 0x0004: 4, 0x0005: 8, 0x0006: 8, 0x0007: 8, 0x000A: 4, 0x000B: 2, 0x0014: 8, TIME: 8}
SIZES |= {0x0048: 16}
"""Bytes of the values of types that have always the same size."""
MANY = 0x1000
"""Flag of the types of properties with many values."""
INTERFACE_BYTES = 16
"""Bytes before a message inside an attachment: what kind of object it is."""
CLASSES = {
    b"IPM.Microsoft Mail.Note": b"IPM.Note",
    b"IPM.Microsoft Mail.Read Receipt": b"Report.IPM.Note.IPNRN",
    b"IPM.Microsoft Mail.Non-Delivery": b"Report.IPM.Note.NDR",
    b"IPM.Microsoft Schedule.MtgReq": b"IPM.Schedule.Meeting.Request",
    b"IPM.Microsoft Schedule.MtgRespP": b"IPM.Schedule.Meeting.Resp.Pos",
    b"IPM.Microsoft Schedule.MtgRespN": b"IPM.Schedule.Meeting.Resp.Neg",
    b"IPM.Microsoft Schedule.MtgRespA": b"IPM.Schedule.Meeting.Resp.Tent",
    b"IPM.Microsoft Schedule.MtgCncl": b"IPM.Schedule.Meeting.Canceled",
}
"""Classes of messages that have other names in TNEF."""
TICKS = 10**7
"""Units of a time in a second."""
TNEF_MARK = b"\x78\x9f\x3e\x22"
SETTINGS_CLASS = "ipm.microsoft."
"""How the classes of messages begin in which Outlook keeps settings."""


class TnefConverter(BuiltIn):
    """The message is a part; its attachments, and messages inside it, are separate documents."""

    package, revision, modules = "lxml", 3, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields the text of the message and its attachments, and the losses: what could not be read."""
        try:
            message = tnef_message(file.read_bytes(), Losses())
        except (struct.error, ValueError) as error:
            raise ConversionError(f"it can't be opened as a TNEF file ({error}); is it whole?") from error
        yield from message_parts(message)


class PstConverter(BuiltIn):
    """Each message of a mailbox is a part, folder after folder; their attachments are separate documents."""

    package, revision, modules = "libpff-python", 3, ("pypff", "lxml.etree")

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields the messages and their attachments, and the losses: what could not be read."""
        try:
            for number, message in enumerate(pst_messages(file), start=1):
                place = f"message {number}"
                if isinstance(message, MapiItem):
                    yield from message_parts(message, number=number, below=f"{number}-", place=f"{place}, ")
                else:
                    yield Part(locator=f"{place} in {message}", status=PartStatus.FAILED, reason="it is damaged")
        except OSError as error:
            raise ConversionError(f"it can't be opened as a mailbox of Outlook ({error}); is it whole?") from error


class _Item(MapiItem):
    """A message, recipient or attachment whose properties are in memory."""

    def __init__(
        self,
        losses: Losses,
        properties: Sequence[Property],
        names: Mapping[int, int],
        *,
        parent: "_Item | None" = None,
    ) -> None:
        super().__init__(losses)
        self._values = {(number, kind): value for number, kind, value in properties}
        self.names = names
        self.properties = {
            number: (kind, int.from_bytes(value[:8], "little")) for number, kind, value in properties if kind in SIZES
        }
        self.attachments = list[_Item]()
        self.recipients = list[_Item]()
        self.inner: MapiItem | None = None
        self._parent = parent

    def data(self, number: int, kind: int = DATA) -> bytes | None:
        """The bytes of a property; None if it is not there."""
        return self._values.get((number, kind))

    def add_recipients(self, rows: Iterable[Sequence[Property]]) -> None:
        """Adds recipients with these properties."""
        self.recipients += [_Item(self.losses, row, {}, parent=self) for row in rows]

    def add_attachment(self, properties: Sequence[Property]) -> "_Item":
        """Adds an attachment with these properties, and returns it."""
        self.attachments.append(_Item(self.losses, properties, {}, parent=self))
        return self.attachments[-1]

    def text_numbers(self) -> list[int]:
        """The numbers of its texts, in order."""
        return sorted({number for number, kind in self._values if kind in (UNICODE, BYTES)})

    def whole(self) -> MapiItem:
        """The message that the recipient or attachment belongs to, or the message itself."""
        return self._parent or self

    def folders(self, prefix: str) -> Sequence[MapiItem]:
        """The attachments or recipients, in order."""
        return {ATTACHED: self.attachments, RECIPIENT: self.recipients}[prefix]

    def message(self) -> MapiItem | None:
        """The message that an attachment is; None if it is not one."""
        return self.inner


def tnef_message(data: bytes, losses: Losses, *, depth: int = 1) -> MapiItem:
    """Returns the message of a TNEF file, with its recipients and attachments.

    Raises:
        ConversionError: it is cut off.
        struct.error, ValueError: it is damaged.
    """
    properties, recipients, attachments = list[Property](), list[list[Property]](), list[list[Property]]()
    names = dict[int, int]()
    for number, value in _tnef_attributes(data):
        target = attachments[-1] if number in TNEF_FILE and attachments else properties
        if number == TNEF_ATTACHMENT:
            attachments.append([])
        elif number == TNEF_RECIPIENTS:
            start = 4
            for _ in range(struct.unpack_from("<I", value)[0]):
                row, start = _tnef_properties(value, start, {})
                recipients.append(row)
        elif number in (TNEF_PROPERTIES, TNEF_FILE_PROPERTIES):
            target += _tnef_properties(value, 0, names)[0]
        else:
            target[:0] = _tnef_attribute(number, value)
    message = _Item(losses, properties, names)
    message.add_recipients(recipients)
    for row in attachments:
        attachment = message.add_attachment(row)
        content = attachment.data(CONTENT, FOLDER) or b""
        if content[INTERFACE_BYTES:].startswith(TNEF_MARK) and depth < MAX_INNER:
            attachment.inner = tnef_message(content[INTERFACE_BYTES:], losses, depth=depth + 1)
    return message


def _tnef_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the numbers and values of attributes."""
    at = TNEF_HEADER_BYTES
    while at + ATTRIBUTE.size <= len(data):
        _, kind, size = ATTRIBUTE.unpack_from(data, at)
        at += ATTRIBUTE.size
        if at + size > len(data):
            raise ConversionError("the end of the TNEF file is missing; is it whole?")
        yield kind & 0xFFFF, data[at : at + size]
        at += size + CHECK_SUM_BYTES


def _tnef_attribute(number: int, value: bytes) -> list[Property]:
    """Returns the property that an attribute of the first version of TNEF stands for."""
    texts = {TNEF_SUBJECT: SUBJECT, TNEF_BODY: 0x1000, TNEF_CLASS: CLASS, TNEF_FILE_NAME: SHOWN_NAME}
    if number in texts:
        text = value.rstrip(b"\0")
        return [(texts[number], BYTES, CLASSES.get(text, text))]
    if number == TNEF_FILE_DATA:
        return [(CONTENT, DATA, value)]
    if number == TNEF_CODE_PAGE:
        return [(INTERNET_CODE_PAGE, 0x0003, value[:4])]
    if number == TNEF_SENT and len(value) >= 12 and value[:2] != b"\0\0":
        year, month, day, hour, minute, second = struct.unpack_from("<6H", value)
        passed = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - EPOCH
        return [(SENT, TIME, (int(passed.total_seconds()) * TICKS).to_bytes(8, "little"))]
    return []


def _tnef_properties(data: bytes, at: int, names: dict[int, int]) -> tuple[list[Property], int]:
    """Returns a list of properties, and where it ends; adds the numbers of their names."""
    properties = list[Property]()
    (count,) = struct.unpack_from("<I", data, at)
    at += 4
    for _ in range(count):
        kind, number = struct.unpack_from("<HH", data, at)
        at += 4
        if number >= FIRST_NAMED:
            is_text, name = struct.unpack_from("<16xII", data, at)
            at += 24 + (_padded(name) if is_text else 0)
            if not is_text:
                names[number] = name
        values, at = _tnef_values(data, at, kind)
        properties += [(number, kind & ~MANY, value) for value in values]
    return properties, at


def _tnef_values(data: bytes, at: int, kind: int) -> tuple[list[bytes], int]:
    is_variable, count = kind & ~MANY not in SIZES, 1
    if is_variable or kind & MANY:
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
    values = list[bytes]()
    for _ in range(count):
        size = SIZES.get(kind & ~MANY, 0)
        if is_variable:
            (size,) = struct.unpack_from("<I", data, at)
            at += 4
        if at + size > len(data):
            raise ConversionError("it is cut off")
        values.append(data[at : at + size])
        at += _padded(size)
    return values, at


def _padded(size: int) -> int:
    return (size + 3) // 4 * 4


def pst_messages(file: Path) -> Iterator[MapiItem | str]:
    """Yields the messages of a mailbox, folder after folder; for one that can't be read, the path of its folder.

    Raises:
        OSError: it can't be opened.
    """
    import pypff

    mailbox = pypff.file()
    mailbox.open(str(file))
    names = _pst_names(mailbox)
    for path, item in _pst_items(mailbox.root_folder, ()):
        try:
            message = _pst_message(item, names)
        except OSError:
            yield path
            continue
        if not message.text(CLASS).lower().startswith(SETTINGS_CLASS):
            yield message


def _pst_names(mailbox: Any) -> dict[int, int]:
    """Returns the numbers of the names of properties, by their numbers in this file."""
    entries = [entry for row in mailbox.name_to_id_map.record_sets for entry in row.entries if entry.entry_type == 3]
    data = (entries[0].data if entries else None) or b""
    rows = NAME_ENTRY.iter_unpack(data[: len(data) // NAME_ENTRY.size * NAME_ENTRY.size])
    return {FIRST_NAMED + position: name for name, kind, position in rows if not kind & 1}


def _pst_items(folder: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yields the messages of a folder and of the folders inside it, each with the path of its folder."""
    for index in range(folder.number_of_sub_messages):
        yield "/".join(path), folder.get_sub_message(index)
    for index in range(folder.number_of_sub_folders):
        inner = folder.get_sub_folder(index)
        yield from _pst_items(inner, (*path, inner.name or "unnamed"))


def _pst_message(item: Any, names: Mapping[int, int]) -> _Item:
    message = _Item(Losses(), [*_pst_properties(item)], names)
    recipients = getattr(item, "recipients", None)
    if recipients is not None:
        message.add_recipients([*_entries(row)] for row in recipients.record_sets)
    for index in range(getattr(item, "number_of_attachments", 0)):
        attachment = item.get_attachment(index)
        properties = [*_pst_properties(attachment)]
        is_message = any((number, kind) == (CONTENT, FOLDER) for number, kind, _ in properties)
        if not is_message and attachment.size:
            properties.append((CONTENT, DATA, attachment.read_buffer(attachment.size)))
        message.add_attachment(properties)
    return message


def _pst_properties(item: Any) -> Iterator[Property]:
    for row in range(item.number_of_record_sets):
        yield from _entries(item.get_record_set(row))


def _entries(record_set: Any) -> Iterator[Property]:
    for entry in record_set.entries:
        value = entry.data
        if value is None or entry.entry_type is None:
            continue
        if entry.entry_type == SUBJECT and value[:1] == b"\1":
            value = value[4:] if entry.value_type == UNICODE else value[2:]  # how long its prefix is
        yield entry.entry_type, entry.value_type, value
