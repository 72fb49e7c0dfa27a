"""All that a mail contains: the headers that people read, and every part at any depth, whatever it says of itself."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from email.message import Message
from pathlib import Path
from typing import Any

from memagent_batch.data.ingest.counts.pages import page_contents
from memagent_batch.data.ingest.counts.words import Content
from memagent_batch.data.ingest.readers.html import decode_page
from memagent_batch.data.ingest.readers.mail_text import (
    POLICY,
    as_file,
    charset_label,
    decode_base64,
    decode_header,
    decode_text_or_bytes,
    file_name,
    leaf_bytes,
    parameter,
    transfer_encoding,
)
from memagent_batch.data.ingest.readers.mailbox import split_mailbox, to_bytes_of_mail

HEAD_END = re.compile(rb"(?:\A|\n|\r(?!\n))(?:\r?\n|\r)")
HEADER = re.compile(r"([!-9;-~]+)[ \t]*:(.*)", re.S)
PROGRAM_HEADERS = re.compile(
    r"(?!x-failed-recipients$)(?:x|arc|dkim|domainkey|list|mailing-list|content|received|authentication|delivered|return"
    r"(?!-receipt)|old|envelope|original|thread|mime|message|in-reply|references|errors|precedence|priority|auto|user-agent"
    r"|lines|status|path|xref|nntp|feedback|openpgp|msip|accept-?language|require-recipient|dl-expansion)\b.*",
    re.I,
)
"""Headers that programs write for programs. All others are content."""
STAMP = re.compile(rb"From .{0,200}\b[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} .{0,40}\d{4}.{0,20}", re.S)
"""The line of a mailbox before a message: who sent it and when, which its headers say too."""
FIRST_BOUNDARY = re.compile(rb"^--(\S[^\r\n]*)\r?\n(?=content-|\r?\n)", re.M | re.I)
WORDLESS = re.compile(r"application/(?:[\w-]+-signature|applefile|(?:x-)?javascript)|text/(?:css|javascript)")
PLAIN = re.compile(rb"^content-type:\s*text/plain", re.I | re.M)
HEAD_BYTES = 2000
"""Bytes of a part among which its kind is looked for."""
NO_BASE64 = re.compile(rb"^(?:[^\n]*\S[ \t]+\S|[-_*#~]{2,}[ \t]*\r?$).*", re.M | re.S)
"""What stands behind an encoded text: the footer of a mailing list."""
MARKED = re.compile(r"<param>[^<]*</param>|<comment>[^<]*</comment>|</?[a-z][\w-]*>", re.I)
TEXTS = re.compile(r"text/|message/|application/ics")
FILES = frozenset({"message/rfc822", "message/global", "message/news", "text/rtf"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A message, or a part of one, and where it stands."""

    data: bytes
    message: str
    number: str = ""
    default: str = "text/plain"
    """What it is if no header says so."""
    is_transcoded: bool = False
    is_alternative: bool = False

    def inner(self, data: bytes, number: int = 1, **more: Any) -> "_Part":
        """Returns a part of it."""
        number_there = f"{self.number}.{number}" if self.number else str(number)
        return replace(self, data=data, number=number_there, **{"default": "text/plain", **more})

    @property
    def place(self) -> str:
        return f"{self.message}, part {self.number}" if self.number else self.message


def mail_contents(file: Path) -> Iterator[Content]:
    """Yields the contents of a message, or of all messages of a mailbox."""
    data, is_transcoded = to_bytes_of_mail(file.read_bytes())
    messages = split_mailbox(data)
    if messages is not None:
        yield Content(place="between the messages", text=_lines_between(data, messages))
    named = enumerate([data] if messages is None else messages, start=1)
    waiting = [_Part(data=each, message=f"message {number}", is_transcoded=is_transcoded) for number, each in named]
    waiting.reverse()
    while waiting:
        inner = list[_Part]()
        for content in _contents(waiting.pop()):
            if isinstance(content, _Part):
                inner.append(content)
            else:
                yield content
        waiting += inner[::-1]


def _lines_between(data: bytes, messages: Sequence[bytes]) -> str:
    """Returns lines of a mailbox that are in no message, and no stamps either."""
    lines = Counter(line for line in data.split(b"\n") if line.startswith(b"From "))
    lines.subtract(line for message in messages for line in message.split(b"\n") if line.startswith(b"From "))
    return b"\n".join(line for line in +lines if STAMP.match(line) is None).decode("utf-8", "replace")


def _contents(part: _Part) -> Iterator[Content | _Part]:
    """Yields the contents of a part: its headers, and its body or the parts that it is made of."""
    lines, body = _split_head(part.data)
    head = Message(policy=POLICY)
    head.set_default_type(part.default)
    for line in lines:
        name, _, value = line.partition(":")
        head.set_raw(name.strip(), value.strip())
    kind, label, name = head.get_content_type(), charset_label(head), _file_name(head)
    text = _readable(lines, label)
    if text:
        yield Content(place=f"{part.place}, headers", text=text, is_alternative=part.is_alternative)
    if kind in ("message/partial", "message/external-body"):
        yield part.inner(body)
    elif kind.startswith("multipart/"):
        yield from _inner_contents(body, head, kind, part)
    elif WORDLESS.match(kind) is None and not name.lower().endswith(".p7s"):
        yield from _leaf_contents(body, head, kind, part, charset=label, name=name.replace("/", " "))


def _file_name(head: Message) -> str:
    """Returns the name of a file; empty if it has none, as most parts."""
    fields = (str(head.get(f"content-{name}", "")) for name in ("type", "disposition"))
    return file_name(head) if any("name" in field.lower() for field in fields) else ""


def _split_head(data: bytes) -> tuple[list[str], bytes]:
    """Returns the headers, each with the lines that follow it, and the body.

    A line that is no header goes on with the one before; those after the last header are the body.
    """
    end = HEAD_END.search(data)
    head, body = (data, b"") if end is None else (data[: end.start()], data[end.end() :])
    lines = list[str]()
    after = list[str]()
    for line in re.split(r"\r?\n|\r", head.rstrip().decode("utf-8", "surrogateescape")):
        if HEADER.match(line) is not None:
            if lines:
                lines[-1] = "\n".join([lines[-1], *(f" {each.strip()}" for each in after)])
                after = []
            lines.append(line)
        elif lines and not after and line[:1] in (" ", "\t"):
            lines[-1] += f"\n{line}"
        elif not line.startswith(("From ", ">From ")) or lines:
            after.append(line)
    if after:
        body = "\n".join(after).encode("utf-8", "surrogateescape") + b"\n\n" + body
    return lines, body


def readable_headers(data: bytes) -> str:
    """Returns the headers that people read."""
    return _readable(_split_head(data)[0], None)


def _readable(lines: Sequence[str], label: str | None) -> str:
    headers = (HEADER.fullmatch(line) for line in lines)
    values = (header[2] for header in headers if header is not None and not PROGRAM_HEADERS.fullmatch(header[1]))
    return decode_header("\n".join(" ".join(value.split()) for value in values), label=label).text


def _inner_contents(body: bytes, head: Message, kind: str, part: _Part) -> Iterator[Content | _Part]:
    """Splits a body at every line with its boundary, wherever it stands."""
    pieces = _split(body, parameter(head, "boundary").strip().encode("utf-8", "surrogateescape"))
    if len(pieces) == 1:
        found = FIRST_BOUNDARY.search(body)
        pieces = _split(body, found[1].rstrip()) if found is not None else pieces
    kinds = [PLAIN.search(piece[:HEAD_BYTES]) is not None for _, piece in pieces]
    first = kinds.index(True) if True in kinds else 1
    default = "message/rfc822" if kind == "multipart/digest" else "text/plain"
    for number, (is_part, piece) in enumerate(pieces):
        if is_part:
            is_alternative = part.is_alternative or (kind == "multipart/alternative" and number != first)
            yield part.inner(piece, number, default=default, is_alternative=is_alternative)
        elif number and FIRST_BOUNDARY.search(piece) is not None:
            yield part.inner(b"Content-Type: multipart/mixed\n\n" + piece, number)
        else:
            text = decode_text_or_bytes(piece, label=None).text
            yield Content(place=f"{part.place}, {'behind' if number else 'before'} its parts", text=text)


def _split(body: bytes, boundary: bytes) -> list[tuple[bool, bytes]]:
    """Returns the pieces between lines with the boundary, and whether each one is a part."""
    pieces, start, is_part = list[tuple[bool, bytes]](), 0, False
    for border in re.finditer(re.escape(b"--" + boundary) + rb"(--)?[ \t]*(?:\r?\n|\r|\Z)", body) if boundary else ():
        if border.start() == 0 or body[border.start() - 1] in b"\r\n":
            pieces.append((is_part, body[start : border.start()].removesuffix(b"\n").removesuffix(b"\r")))
            start, is_part = border.end(), border[1] is None
    return [*pieces, (is_part, body[start:])]


def _leaf_contents(
    body: bytes, head: Message, kind: str, part: _Part, *, charset: str | None, name: str
) -> Iterator[Content]:
    """Yields a file of a name, if it has one, and what it says if it is a text."""
    head.set_payload(body.decode("ascii", "surrogateescape"))
    data, is_damaged = leaf_bytes(head)
    footer = NO_BASE64.search(body) if is_damaged and kind.startswith("text/") else None
    if footer is not None:
        before, is_damaged = decode_base64(body[: footer.start()])
        if not is_damaged:
            yield Content(place=f"{part.place}, behind it", text=decode_text_or_bytes(footer[0], label=None).text)
            data = before
    label = None if part.is_transcoded and not transfer_encoding(head) else charset
    at = f"{part.message}, attachment {name}" if name else part.place
    if TEXTS.match(kind) is None or kind in FILES:
        yield Content(place=at, file=data)
        return
    if "html" in kind:
        page = decode_page(data, label=label).text
        inside = [*page_contents(page, place=f"{part.place}, ", is_alternative=part.is_alternative)]
    else:
        text = _text(data, kind, label)
        if "delsp" in str(head.get("content-type", "")).lower() and parameter(head, "delsp").lower() == "yes":
            text = re.sub(r" \r?\n", "", text)
        inside = [Content(place=part.place, text=text, is_alternative=part.is_alternative)]
    data = as_file(data, label=charset) if kind.startswith("text/") else data
    yield Content(place=at, file=data, instead=inside)


def _text(data: bytes, kind: str, label: str | None) -> str:
    text = decode_text_or_bytes(data, label=label).text
    if kind in ("text/enriched", "text/richtext"):
        return MARKED.sub("", text)
    if kind.startswith("message/") or "headers" in kind:
        return decode_header(text).text
    if "calendar" in kind or "card" in kind or kind == "application/ics":
        return re.sub(r"\\[nN]", " ", re.sub(r"\r?\n[ \t]", "", text))
    return text
