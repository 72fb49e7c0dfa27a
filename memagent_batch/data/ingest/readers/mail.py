"""E-mail by the standard library: a message (.eml) or a mailbox (.mbox); attachments are separate documents."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from email import message_from_bytes
from email.errors import CloseBoundaryNotFoundDefect
from email.message import Message
from functools import partial
from hashlib import sha256
from pathlib import Path
from urllib.parse import urljoin

from memagent_batch.data.ingest.counts.mail import PROGRAM_HEADERS
from memagent_batch.data.ingest.readers.charsets import Decoded, is_ascii_label
from memagent_batch.data.ingest.readers.converter import (
    Attachment,
    BuiltIn,
    Part,
    PartStatus,
    ending_of,
    failure_reason,
    picture_parts,
    read_attachment,
)
from memagent_batch.data.ingest.readers.html import decode_page, outside_pictures_reason, unread_parts
from memagent_batch.data.ingest.readers.kinds import ENDINGS
from memagent_batch.data.ingest.readers.mail_text import (
    POLICY,
    as_file,
    charset_label,
    decode_base64,
    decode_header,
    decode_mail_text,
    decode_text_or_bytes,
    file_name,
    find_phrases,
    header_text,
    leaf_bytes,
    parameter,
    remove_base64,
    transfer_encoding,
    unfold_calendar,
    unmark_enriched,
    unwrap_flowed,
)
from memagent_batch.data.ingest.readers.mailbox import repair_headers, split_mailbox, to_bytes_of_mail
from memagent_batch.data.ingest.readers.page_reader import visible_text
from memagent_batch.data.ingest.readers.text import PGP_START, PGP_UNREAD
from memagent_batch.errors import ConversionError

HEADERS = (
    *("From", "Sender", "Reply-To", "To", "Cc", "Bcc"),
    *("Resent-From", "Resent-Sender", "Resent-To", "Resent-Cc", "Resent-Bcc", "Resent-Date"),
    *("Disposition-Notification-To", "Return-Receipt-To", "X-Failed-Recipients", "Keywords", "Comments"),
    *("Date", "Delivery-Date", "Subject"),
)
"""Headers that stand before the text of a message, in this order; then others that people write."""
MESSAGE_KINDS = frozenset({"message/rfc822", "message/global", "message/news"})
CALENDARS = frozenset({"text/calendar", "text/x-vcalendar", "application/ics"})
INLINE_KINDS = CALENDARS | {"text/vcard", "text/x-vcard", "text/directory"}
"""Kinds of files that are read as text of the message."""
HEADER_KINDS = frozenset({"text/rfc822-headers", "text/rfc822-header"})
ENRICHED = frozenset({"text/enriched", "text/richtext"})
SIGNED_OR_ENCRYPTED = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
SIGNATURE_NOTE = "its signature is not checked"
WORDLESS = (
    {f"application/{name}-signature": SIGNATURE_NOTE for name in ("pgp", "pkcs7", "x-pkcs7")}
    | {"application/applefile": "the settings of a file of a Mac are not read"}
    | dict.fromkeys(("text/css", "text/javascript"), "style sheets and scripts are not read")
    | dict.fromkeys(("application/javascript", "application/x-javascript"), "style sheets and scripts are not read")
)
"""Notes on parts that hold no words of the message."""
FILE_ENDINGS = {"text/html": ".html", "application/pdf": ".pdf", "text/rtf": ".rtf", "application/rtf": ".rtf"}
FILE_ENDINGS |= dict.fromkeys(SIGNED_OR_ENCRYPTED, ".p7m")
SIGNED_DATA, ENVELOPED_DATA = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02", b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x03"
"""Identifiers of the kinds of S/MIME."""

DAMAGED_ENCODING = "its encoding is damaged: what can't be decoded is not read"
ENCRYPTED_UNREAD = "an encrypted message, whose text is not read: decrypt it first"
SIGNED_UNREAD = "a message inside its S/MIME signature (smime.p7m), which is not read: save it without the signature"
BASE64_UNREAD = "base64 that no header announces, which is not read"
PARTS_UNREAD = "parts of a message inside its text, which are not read as such"
FILES_IN_TEXT = {
    "uuencode": re.compile(r"^begin [0-7]{3,4} (.+)\n(?:[ -`]+\n)*?end$", re.M),
    "yEnc": re.compile(r"^=ybegin .*line=", re.M),
    "BinHex": re.compile(r"^\(This file must be converted with BinHex", re.M),
}
PARTS_IN_TEXT = re.compile(
    r"^--\S.*\n(?:[\w-]+:.*\n(?:[ \t].*\n){0,9}){0,20}?content-(?:type|transfer-encoding):", re.M | re.I
)
BOUNDARY = re.compile(rb"^--(\S[^\r\n]*)\r?\n(?=content-|\r?\n)", re.M | re.I)
AFTER_BASE64 = re.compile(r"(?<=\n)(?=[^\n]*\S[ \t]+\S|[-_*#~]+[ \t]*\r?\n).*\Z", re.S)
"""What mailing lists add behind an encoded text."""
MIME_HINT = re.compile(r"\bmime\b|multi-?part", re.I)
"""What programs write before the first part, for those that show it."""


class _Message(Message):
    """Keeps messages inside it as the bytes that they are in the file."""

    def get_content_type(self) -> str:
        kind = super().get_content_type()
        return "application/octet-stream" if kind.startswith("message/") else kind


def parse_mail(data: bytes) -> Message:
    """Parses a message; those inside it stay as they are."""
    return message_from_bytes(data, _Message, policy=POLICY)


class MailConverter(BuiltIn):
    """A message is a part: its headers, then its text. Of alternatives that say the same one is read.

    Of HTML all that a reader sees is taken: quoted messages and signatures are not boilerplate.
    """

    package, revision, modules = "lxml", 15, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each message, and the attachments."""
        data, is_transcoded = to_bytes_of_mail(file.read_bytes())
        messages = split_mailbox(data)
        if messages is None:
            yield from message_items(data, number=1, is_transcoded=is_transcoded)
            return
        for number, message in enumerate(messages, start=1):
            yield from message_items(
                message, number=number, below=f"{number}-", place=f"message {number}, ", is_transcoded=is_transcoded
            )


def message_items(
    data: bytes,
    *,
    number: int,
    below: str = "",
    place: str = "",
    doubts: Sequence[str] = (),
    is_transcoded: bool = False,
) -> Iterator[Part | Attachment]:
    """Reads a message: its headers and text, what is not read of it, and its attachments.

    Args:
        data: the message as bytes.
        number: its position in the file.
        below: what stands before the numbers of its attachments.
        place: what stands before the locators of its attachments.
        doubts: why some of its characters may be wrong, as far as that is known.
        is_transcoded: whether parts that are not encoded are in UTF-8, whatever charset they name.
    """
    locator = f"message {number}"
    try:
        message = parse_mail(repair_headers(data))
        content = _Content(is_transcoded=is_transcoded, doubts=doubts, style_sheets=_style_sheets(message))
        content.add(message, is_body=True)
        headers = [*_header_lines(message, content)]
        inside = {str(part["Content-Location"]).strip() for part in message.walk()}
        outside = [
            address for address in content.outside_pictures if address not in inside and not address.startswith("cid:")
        ]
    except Exception as error:  # noqa: BLE001 - a message that no parser can read costs itself, not its mailbox
        yield Part(locator=locator, status=PartStatus.FAILED, reason=failure_reason(error))
        return
    text = "\n\n".join(["\n".join(headers), *content.texts]).strip()
    status = PartStatus.NEEDS_REVIEW if content.doubts else PartStatus.OK
    reason = "; ".join((*content.doubts, *content.notes)) or None
    yield Part(locator=locator, text=text, status=status, reason=reason, left_out="\n".join(content.left_out))
    for loss in content.losses:
        yield Part(locator=locator, status=PartStatus.FAILED, reason=loss)
    yield from (replace(loss, locator=f"{locator}, {loss.locator}") for loss in content.page_losses)
    if outside:
        reason = outside_pictures_reason(outside)
        yield Part(locator=f"{locator}, outside pictures", status=PartStatus.SKIPPED, reason=reason)
    for number_inside, picture in enumerate(content.pictures, start=1):
        yield from picture_parts(f"{locator}, picture {number_inside}", picture)
    for position, (part, failure) in enumerate(content.files, start=1):
        is_damaged = list[bool]()
        attachment = read_attachment(
            number=f"{below}{position}",
            locator=f"{place}attachment",
            name=partial(_attachment_name, part),
            data=partial(_attachment_data, part, is_damaged),
            failure="this attachment can't be unpacked",
        )
        is_text = attachment.failure is None and _kind(part).startswith("text/")  # whose data may be in UTF-8 by now
        content_hash = sha256(leaf_bytes(part)[0]).hexdigest() if is_text else None
        yield replace(attachment, failure=failure or attachment.failure, content_hash=content_hash)
        if any(is_damaged):
            yield Part(locator=attachment.locator, status=PartStatus.FAILED, reason=DAMAGED_ENCODING)


def _style_sheets(message: Message) -> dict[str, str]:
    """Returns the style sheets in a message by their addresses."""
    sheets = dict[str, str]()
    for part in message.walk():
        if part.get_content_type() == "text/css":
            text = leaf_bytes(part)[0].decode("utf-8", "replace")
            sheets[str(part.get("content-location") or "").strip()] = text
            sheets[f"cid:{str(part.get('content-id') or '').strip().strip('<>')}"] = text
    return sheets


def _header_lines(message: Message, content: "_Content") -> Iterator[str]:
    others = (name for name in message if PROGRAM_HEADERS.fullmatch(name) is None)
    names = {name.lower(): name for name in (*others, *HEADERS)}
    for name in (names[name] for name in dict.fromkeys([*map(str.lower, HEADERS), *names])):
        header = header_text(message, name, label=content.label)
        if header.doubt:
            content.doubts[f"header {name}: {header.doubt}"] = None
        if header.text:
            yield f"{name}: {header.text}"


class _Content:
    """What a message holds: its texts, in order, and the rest."""

    def __init__(
        self,
        *,
        is_transcoded: bool,
        style_sheets: Mapping[str, str],
        is_inside: bool = False,
        doubts: Sequence[str] = (),
    ) -> None:
        self.texts: list[str] = []
        self.left_out: list[str] = []
        """What the message says twice, or says of its form."""
        self.files: list[tuple[Message, str | None]] = []
        """Files, and why some of them can't be read."""
        self.pictures: list[bytes] = []
        """Images inside texts in HTML."""
        self.outside_pictures: list[str] = []
        """Addresses of images that texts in HTML show."""
        self.page_losses: list[Part] = []
        """What is not read of texts in HTML."""
        self.losses: dict[str, None] = {}
        self.doubts: dict[str, None] = dict.fromkeys(doubts)
        self.notes: dict[str, None] = {}
        self.label: str | None = None
        """The first charset that a text names."""
        self._is_transcoded, self._is_inside, self._style_sheets = is_transcoded, is_inside, style_sheets

    def add(self, part: Message, *, is_body: bool = False) -> None:
        """Adds a part with all that is in it.

        Args:
            part: the message, or a part of it.
            is_body: whether a text is that of the message even if it has a name, as files do.
        """
        kind = _kind(part)
        if self._is_inside:
            self.texts += _header_lines(part, self)
        self._is_inside = True
        if kind.startswith("multipart/"):
            self._add_multipart(part, kind)
        elif kind.startswith("message/") and kind not in MESSAGE_KINDS:
            self._add_notice(part, kind)
        elif kind in SIGNED_OR_ENCRYPTED or file_name(part).lower().endswith(".p7m"):
            self.files.append((part, _secure_reason(part)))
        elif kind in WORDLESS and (not file_name(part) or not kind.startswith("text/")):
            self.notes[WORDLESS[kind]] = None
        elif file_name(part).lower().endswith(".p7s"):
            self.notes[SIGNATURE_NOTE] = None
        elif _is_file(part, kind, is_body=is_body):
            self.files.append((part, None))
        else:
            self._add_text(part, kind)

    def _add_multipart(self, part: Message, kind: str) -> None:
        if not isinstance(part.get_payload(), list):
            self._add_unsplit(part, kind)
            return
        children = _children(part)
        if kind == "multipart/encrypted":
            is_pgp = "pgp" in " ".join([str(part["content-type"]), *map(_kind, children)]).lower()
            self.files += ((child, PGP_UNREAD if is_pgp else ENCRYPTED_UNREAD) for child in children[-1:])
            return
        self._add_beside(part.preamble)
        if kind == "multipart/alternative":
            self._add_alternatives(children)
        else:
            for position, child in enumerate(children):
                self.add(child, is_body=position == 0 and kind == "multipart/related")
        self._add_beside(part.epilogue)
        if any(isinstance(defect, CloseBoundaryNotFoundDefect) for defect in part.defects):
            last = next((name for leaf in [*part.walk()][::-1] if (name := file_name(leaf))), "its last part")
            self.losses[f"its end is missing: {last} may be cut off"] = None

    def _add_unsplit(self, part: Message, kind: str) -> None:
        """Adds a part that names no boundary or a wrong one, split at the boundary that it has."""
        data, _ = leaf_bytes(part)
        parts = _split_parts(data, kind)
        if parts is None:
            self._show(decode_text_or_bytes(data, label=None))
        else:
            self._add_multipart(parts, kind)

    def _add_beside(self, text: str | None) -> None:
        """Adds what stands before the first part or after the last one, but not what says that it is MIME.

        Programs that give two boundaries one name leave parts behind the last one.
        """
        parts = _split_parts((text or "").encode("utf-8", "surrogateescape"), "multipart/mixed")
        if parts is not None:
            self._add_multipart(parts, "multipart/mixed")
            return
        paragraphs = re.split(r"\n\s*\n", (text or "").replace("\r\n", "\n"))
        shown = "\n\n".join(each for each in paragraphs if each.strip() and not MIME_HINT.search(each))
        self.left_out += filter(MIME_HINT.search, paragraphs)
        if shown:
            self._show(decode_text_or_bytes(shown.encode("utf-8", "surrogateescape"), label=None))

    def _add_alternatives(self, children: Sequence[Message]) -> None:
        """Adds plain text, then each alternative that says more than those before it; the files of all."""
        phrases, is_shown = set[tuple[str, ...]](), False
        for child in sorted(children, key=lambda child: child.get_content_type() != "text/plain"):
            content = _Content(is_transcoded=self._is_transcoded, style_sheets=self._style_sheets, is_inside=True)
            content.add(child, is_body=True)
            more = set[tuple[str, ...]]().union(*map(find_phrases, content.texts)) - phrases
            phrases |= more
            self.files += content.files
            self.left_out += content.left_out
            self.pictures += content.pictures
            self.outside_pictures += content.outside_pictures
            self.page_losses += content.page_losses
            self.losses |= content.losses
            self.label = self.label or content.label
            if more or (not is_shown and "".join(content.texts).strip()):
                is_shown = True
                self.texts += content.texts
                self.doubts |= content.doubts
                self.notes |= content.notes

    def _add_notice(self, part: Message, kind: str) -> None:
        """Adds a part of a kind that is a message for programs, such as a report on a delivery."""
        if kind == "message/external-body":
            place = next(filter(None, (parameter(part, name) for name in ("url", "name", "access-type"))), "")
            self.losses[f"external file {place}: it is not in the message, and is not read"] = None
            return
        data, is_damaged = leaf_bytes(part)
        if is_damaged:
            self.losses[DAMAGED_ENCODING] = None
        if kind != "message/partial":
            self._show(decode_header(data.decode("ascii", "surrogateescape"), label=self.label))
            return
        number, total = parameter(part, "number") or "?", parameter(part, "total") or "?"
        self.losses[f"part {number} of {total} of a message (message/partial): the other parts are not read"] = None
        self.add(parse_mail(data), is_body=True)

    def _add_text(self, part: Message, kind: str) -> None:
        data, is_damaged = leaf_bytes(part)
        footer = ""
        if is_damaged and (found := AFTER_BASE64.search(str(part.get_payload()))):
            before, is_damaged = decode_base64(found.string[: found.start()].encode())
            data, footer = (data, "") if is_damaged else (before, found[0])
        if is_damaged:
            self.losses[DAMAGED_ENCODING] = None
        is_page = "html" in kind
        label = None if self._is_transcoded and not transfer_encoding(part) else charset_label(part)
        if label is not None and not is_ascii_label(label):
            self.label = self.label or label
        try:
            decoded = decode_page(data, label=label) if is_page else decode_mail_text(data, label=label)
        except ConversionError:  # no text, whatever its header says
            self.files.append((part, None))
            return
        if is_page:
            self._add_page(part, decoded)
        elif kind in HEADER_KINDS:
            self._show(decode_header(decoded.text))
        else:
            text = _shown_text(decoded.text.replace("\r\n", "\n"), part, kind)
            if kind in CALENDARS and text in self.texts:  # invitations often hold the same one twice
                self.left_out.append(text)
            else:
                self._show(Decoded(text=text, doubt=decoded.doubt))
        self._add_beside(footer)

    def _add_page(self, part: Message, decoded: Decoded) -> None:
        place = str(part.get("content-location") or "").strip()
        seen = visible_text(
            decoded.text, style_sheet=lambda address: self._style_sheets.get(urljoin(place, address.strip()))
        )
        if seen.doubt:
            self.doubts[seen.doubt] = None
        is_titled = part.get("content-location") is not None and seen.title not in seen.text  # a saved page
        self.left_out += [*seen.left_out, "" if is_titled else seen.title]
        self.pictures += seen.pictures
        self.outside_pictures += seen.outside_pictures
        others = replace(seen, pictures=[], outside_pictures=[])
        self.page_losses += unread_parts(others)
        text = f"{seen.title}\n\n{seen.text}" if is_titled else seen.text
        self._show(Decoded(text=text, doubt=decoded.doubt))

    def _show(self, decoded: Decoded) -> None:
        """Adds a text without what is no text in it."""
        if decoded.doubt:
            self.doubts[decoded.doubt] = None
        text, base64 = remove_base64(decoded.text)
        if base64:
            self.losses[BASE64_UNREAD] = None
            self.left_out.append(base64)
        lines = text.replace("\r\n", "\n")
        if PGP_START in text:
            self.losses[PGP_UNREAD] = None
        if PARTS_IN_TEXT.search(lines):
            self.losses[PARTS_UNREAD] = None
        for name, pattern in FILES_IN_TEXT.items():
            if pattern.search(lines):
                self.losses[f"a file inside the text ({name}), which is not read"] = None
        self.texts.append(text)


def _shown_text(text: str, part: Message, kind: str) -> str:
    """Returns the text as a reader sees it."""
    if kind in ENRICHED:
        return unmark_enriched(text)
    if kind in INLINE_KINDS:
        return unfold_calendar(text)
    if parameter(part, "format").lower() == "flowed":
        return unwrap_flowed(text, joins_words=parameter(part, "delsp").lower() == "yes")
    return text


def _is_file(part: Message, kind: str, *, is_body: bool) -> bool:
    if kind in INLINE_KINDS:
        return False
    if not kind.startswith("text/") or kind == "text/rtf":
        return True
    is_attached = "attach" in str(part.get("content-disposition", "")).partition(";")[0].lower()
    return is_attached or bool(file_name(part) and not is_body)


def _split_parts(data: bytes, kind: str) -> Message | None:
    """Splits parts at the boundary that stands before the first one; returns None if there is none."""
    found = BOUNDARY.search(data)
    if found is None:
        return None
    head = b'Content-Type: %b; boundary="%b"\n\n' % (kind.encode(), found[1].rstrip().replace(b'"', b'\\"'))
    part = parse_mail(head + data)
    return part if part.is_multipart() else None


def _kind(part: Message) -> str:
    return Message.get_content_type(part)


def _children(part: Message) -> list[Message]:
    payload = part.get_payload()
    return [child for child in payload if isinstance(child, Message)] if isinstance(payload, list) else []


def _secure_reason(part: Message) -> str:
    """Why a part of S/MIME is not read."""
    head = leaf_bytes(part)[0][:64]
    is_signed = "signed" in parameter(part, "smime-type").lower() or SIGNED_DATA in head
    return SIGNED_UNREAD if is_signed and ENVELOPED_DATA not in head else f"S/MIME (smime.p7m): {ENCRYPTED_UNREAD}"


def _attachment_name(part: Message) -> str:
    name, kind = file_name(part), _kind(part)
    if kind in MESSAGE_KINDS and ENDINGS.get(ending_of(name)) != "email":
        subject = header_text(parse_mail(leaf_bytes(part)[0]), "Subject").text
        return f"{name or subject or 'message'}.eml"
    if kind.startswith("text/") and ending_of(name) not in ENDINGS:
        return f"{name}.txt"
    return name or f"unnamed{FILE_ENDINGS.get(kind, '.txt' if kind == 'text/plain' else '')}"


def _attachment_data(part: Message, is_damaged: list[bool]) -> bytes:
    """Returns the bytes of a file; a text in UTF-8 if a header names the charset that it has.

    Args:
        part: the attachment.
        is_damaged: gets whether some of its bytes are lost.
    """
    data, is_lossy = leaf_bytes(part)
    is_damaged.append(is_lossy)
    return as_file(data, label=charset_label(part)) if _kind(part).startswith("text/") else data
