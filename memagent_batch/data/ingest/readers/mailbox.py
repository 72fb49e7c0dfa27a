"""Files of mail as bytes: mailboxes are split into messages, and messages are brought into the form of RFC 5322."""

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE

WIDE_BYTES = 64
"""Bytes by which UTF-16 without a byte order mark is recognised."""
BEFORE_HEADERS = re.compile(rb"(?:[ \t]*\r?\n)*(?:(?P<length>\d{1,12})[ \t]*\r?\n(?=[\w-]+:))?")
"""Blank lines, and the length of the message in an `.emlx` file."""
HEADER_LINE = re.compile(rb"[!-9;-~]+[ \t]*:")
SPACED_HEADER = re.compile(rb"^([!-9;-~]+)[ \t]+:", re.M)
KNOWN_NAMES = (
    rb"(?i:from|to|cc|bcc|date|subject|received|sender|status|lines|organi[sz]ation|comments|keywords|references|path"
    rb"|newsgroups|xref|[a-z]+-[\w-]+)[ \t]*:"
)
KNOWN_HEADER = re.compile(KNOWN_NAMES)
FROM_LINES = re.compile(rb"(?:>?From (?![ \t]*:)[^\n]*\n)+(?=" + KNOWN_NAMES + rb")")
"""Lines of a mailbox before the headers."""
MAIL_HEADERS = frozenset(
    b"from to date subject received return-path message-id mime-version delivered-to content-type reply-to "
    b"dkim-signature x-mozilla-status x-gmail-labels snapshot-content-location".split()
)
"""Two of these at the beginning of a file make it a message."""
BORDER = re.compile(
    rb"From (?:(?<=\nFrom )|(?<=\AFrom ))"
    rb"(?=[^\r\n]*\d{4})[^\r\n]*\d:\d\d[^\r\n]*\r?\n(?=(?:>From [^\r\n]*\r?\n)?" + KNOWN_NAMES + rb")"
)
"""How a message of a mailbox begins after a blank line: sender, date and time, before a header. A sentence that begins
with the word may have all but the header."""
ESCAPED_FROM = re.compile(rb"\n>(?=>*From )")
MMDF_BORDER = re.compile(rb"^\x01{4}\r?\n", re.M)
HEADERS_END = re.compile(rb"\n\r?\n|\r\r")


def is_mail(head: bytes) -> bool:
    """Returns whether a file that begins with these bytes is a message or a mailbox."""
    head, _ = to_bytes_of_mail(head)
    if BORDER.match(head) or MMDF_BORDER.match(head):
        return True
    names = set()
    for line in head.splitlines():
        if HEADER_LINE.match(line):
            names.add(line.partition(b":")[0].strip().lower())
        elif not line.startswith((b" ", b"\t", b"From ", b">From ")):
            break
    return len(names & MAIL_HEADERS) > 1


def to_bytes_of_mail(data: bytes) -> tuple[bytes, bool]:
    """Removes what stands before the first header.

    Returns:
        The file, and whether it was converted from UTF-16 to UTF-8, so that the charsets that it names are not those of
        its bytes.
    """
    codec = "utf-16" if data.startswith((BOM_UTF16_BE, BOM_UTF16_LE)) else _wide_codec(data)
    data = data.decode(codec, "replace").encode("utf-8") if codec else data.removeprefix(BOM_UTF8)
    start = BEFORE_HEADERS.match(data)
    assert start is not None  # it matches nothing too
    length = int(start["length"]) if start["length"] else len(data)
    return data[start.end() :][:length], bool(codec)


def split_mailbox(data: bytes) -> list[bytes] | None:
    """Splits a mailbox (mbox or MMDF) into its messages; returns None for a file that is one message."""
    if MMDF_BORDER.match(data):
        return [message for message in MMDF_BORDER.split(data) if message.strip()]
    if BORDER.match(data) is None:
        return None
    borders = [
        border
        for border in BORDER.finditer(data)
        if border.start() == 0 or data[max(0, border.start() - 3) : border.start()].endswith((b"\n\n", b"\n\r\n"))
    ]
    ends = [*(border.start() for border in borders[1:]), len(data)]
    messages = (data[border.end() : end] for border, end in zip(borders, ends, strict=True))
    return [ESCAPED_FROM.sub(b"\n", message) for message in messages]


def repair_headers(message: bytes) -> bytes:
    """Removes the lines of a mailbox before the headers, and makes lines among them a part of the header before.

    Programs break long lists of recipients without a blank at the beginning of the next line.
    Lines after the last known header may be the text of a message without a blank line, and stay as they are.
    """
    from_lines = FROM_LINES.match(message)
    message = message[from_lines.end() :] if from_lines else message
    end = HEADERS_END.search(message)
    head, rest = (message, b"") if end is None else (message[: end.start()], message[end.start() :])
    lines = SPACED_HEADER.sub(rb"\1:", head).split(b"\n")
    known = [number for number, line in enumerate(lines) if KNOWN_HEADER.match(line)]
    if not known:
        return b"\n" + message  # a text without headers, whose first lines a parser could drop
    for number in range(1, known[-1]):
        line = lines[number]
        if line.strip() and not line.startswith((b" ", b"\t")) and HEADER_LINE.match(line) is None:
            lines[number] = b" " + line
    return b"\n".join(lines) + rest


def _wide_codec(data: bytes) -> str:
    """Returns the codec of UTF-16 without a byte order mark; empty if it is another encoding."""
    even, odd = data[:WIDE_BYTES:2], data[1:WIDE_BYTES:2]
    if len(odd) < 2:
        return ""
    return "utf-16-le" if not any(odd) and all(even) else "utf-16-be" if not any(even) and all(odd) else ""
