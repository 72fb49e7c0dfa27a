"""Headers and bodies of mail to plain text, whether their encodings are correct or not."""

import re
import unicodedata
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from email.message import Message
from email.policy import Compat32
from itertools import groupby, pairwise

from memagent_batch.data.ingest.readers.charsets import (
    BYTE_ORDER_MARKS,
    Decoded,
    decode_text,
    find_codec,
    is_ascii_label,
    is_valid_utf8,
)
from memagent_batch.errors import ConversionError

ENCODED_WORD = re.compile(
    r"=\?(?P<charset>[\w.:+()-]+)(?:\*[\w-]*)?\?(?:(?P<b>[bB])\?(?P<base64>[\w+/=\s-]*?)|[qQ]\?(?P<quoted>.*?))"
    r"(?:\?=(?![0-9A-F]{2}\S{0,75}\?=)|(?==\?[\w-]+\?[bBqQ]\?)|$)"
)
"""An encoded word; one whose end is missing ends with the header, or where the next one begins."""
UU_KINDS = frozenset({"x-uuencode", "uuencode", "uue", "x-uue"})
BASE64_LETTERS = bytes(byte for byte in range(128) if chr(byte).isalnum()) + b"+/"
OTHER_BYTES = bytes({*range(256)} - {*BASE64_LETTERS, *b"="})
IGNORED = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff_]")
"""Characters inside words that nobody sees, and the marks of emphasis in plain text."""
PLACEHOLDER = re.compile(r"\[(?:cid|image)\b[^\]]{0,200}\]|\[\d{1,3}\]|<?mailto:\S+", re.I)
URL = re.compile(r"<?\b(?:https?://|www\.)[^\s<>\"]+>?", re.I)
LIST_MARK = re.compile(r"^[ \t>]*(?:[-*+\u2022\u00b7\u25aa\u25cf\u25e6\u2013o]|\(?(?:\d{1,3}|[a-z])[.)])[ \t]+", re.M)
WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"  # characters of languages without blanks between words
    r"|(?<!\w)[-+\u2212]?\d(?:[\d.,:/-]*\d)?|\d+|[^\W\d]+|[$\u00a2-\u00a5\u20a0-\u20bf%\u00a7]"
    r"|[\u2190-\u2bff\U0001f300-\U0001faff]"
)
"""Words, numbers with their signs, currencies, and pictures such as ticks."""
ARMOUR = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z))", re.S)
BASE64 = re.compile(
    r"(?<![^\s:;,])(?:(?>[A-Za-z0-9+/]{60,})\s+){2,}[A-Za-z0-9+/]*={0,2}(?!\S)"
    r"|(?<![^\s:;,])(?>[A-Za-z0-9+/]{300,})={0,2}(?!\S)"
    r"|\A\s*(?:(?>[A-Za-z0-9+/]{60,})\s+)*(?>[A-Za-z0-9+/]{40,})={0,2}\s*\Z"
)
"""Lines of base64: several long ones, a very long one, or nothing else in the text."""
MIXED = re.compile(r"(?=.*[A-Z])(?=.*[g-z])(?=.*[0-9+/])", re.S)
"""What base64 has and numbers in hexadecimal digits, or words, lack."""


class _Policy(Compat32):
    """Leaves headers as they are in the file. Bytes above 127 are surrogates."""

    def header_fetch_parse(self, name: str, value: str) -> str:
        return value

    def fold(self, name: str, value: str) -> str:
        return f"{name}: {value}\n"

    def fold_binary(self, name: str, value: str) -> bytes:
        return self.fold(name, value).encode("utf-8", "surrogateescape")


POLICY = _Policy()


def parameter(part: Message, name: str, *, header: str = "content-type") -> str:
    """Returns a parameter of a header; empty if it is not there. One with a charset (RFC 2231) is a tuple."""
    value = part.get_param(name, "", header)
    if not isinstance(value, tuple):
        return str(value)
    charset, _, text = value
    return decode_text_or_bytes(text.encode("latin-1", "replace"), label=charset or None).text


def charset_label(part: Message) -> str | None:
    """Returns the charset in the Content-Type of a part; None if there is none."""
    return parameter(part, "charset").strip() or None


def transfer_encoding(part: Message) -> str:
    """Returns how a part is encoded; empty if it is not."""
    name = re.match(r"\W*([\w-]+)", str(part.get("content-transfer-encoding", "")))
    encoding = name[1].lower() if name else ""
    return encoding if encoding in {"base64", "quoted-printable", *UU_KINDS} else ""


def leaf_bytes(part: Message) -> tuple[bytes, bool]:
    """Decodes a part.

    Returns:
        Its bytes, and whether some of them are lost.
    """
    if transfer_encoding(part) == "base64":
        return decode_base64(str(part.get_payload() or "").encode("utf-8", "surrogateescape"))
    data = part.get_payload(decode=True)
    return (data if isinstance(data, bytes) else b""), False


def file_name(part: Message) -> str:
    """Returns the name of a file; empty if it has none."""
    name = parameter(part, "filename", header="content-disposition") or parameter(part, "name")
    return " ".join(decode_header(name, label=charset_label(part)).text.split())


def as_file(data: bytes, *, label: str | None) -> bytes:
    """Returns a text that is a file of its own: in UTF-8 if a header names the charset that it has."""
    codec = find_codec(label) if label is not None and not is_ascii_label(label) else None
    if codec is None or data.startswith(tuple(BYTE_ORDER_MARKS)):
        return data
    with suppress(UnicodeDecodeError):
        text = data.decode(codec)
        is_utf8 = text.encode("utf-8", "replace") == data or (not data.isascii() and is_valid_utf8(data))
        return data if is_utf8 else text.encode("utf-8-sig", "replace")
    return data


def decode_base64(data: bytes) -> tuple[bytes, bool]:
    """Decodes base64, also several pieces with padding one after another.

    Returns:
        The bytes, and whether characters are missing or of another kind.
    """
    letters = data.translate(None, OTHER_BYTES)
    is_damaged = len(b"".join(data.split())) > len(letters)
    pieces = [piece for piece in letters.split(b"=") if piece]
    decoded = []
    for piece in pieces:
        num_missing = -len(piece) % 4
        is_damaged |= num_missing == 3 or (num_missing > 0 and piece is pieces[-1] and not letters.endswith(b"="))
        decoded.append(b64decode(piece[:-1] if num_missing == 3 else piece + b"=" * num_missing))
    return b"".join(decoded), is_damaged


def decode_mail_text(data: bytes, *, label: str | None) -> Decoded:
    """Decodes a text of a mail as `decode_text` does. A charset that is not known is a doubt of its own.

    Raises:
        ConversionError: it is not text.
    """
    decoded = decode_text(data, label=label)
    if label and not data.isascii() and find_codec(label) is None and "charset" not in (decoded.doubt or ""):
        return Decoded(text=decoded.text, doubt=f"its characters may be wrong: its charset {label!r} is unknown")
    return decoded


def decode_text_or_bytes(data: bytes, *, label: str | None) -> Decoded:
    """Decodes a header or a field, also one that is no text: a short one is no reason to fail."""
    try:
        return decode_mail_text(data, label=label)
    except ConversionError as error:
        return Decoded(text=data.decode("latin-1"), doubt=f"its characters may be wrong: {error}")


def decode_header(value: str, *, label: str | None = None) -> Decoded:
    """Decodes a header, or several lines of them.

    Args:
        value: the header as the file has it, its bytes above 127 as surrogates.
        label: the charset of the message, for bytes that are not encoded and not UTF-8.
    """
    decoded = [*_decode_pieces(value, label)]
    doubt = next((piece.doubt for piece in decoded if piece.doubt), None)
    return Decoded(text="".join(piece.text for piece in decoded), doubt=doubt)


def header_text(message: Message, name: str, *, label: str | None = None) -> Decoded:
    """Returns all headers of a name as one line; empty if there are none."""
    values = [str(value) for header, value in message.raw_items() if header.lower() == name.lower()]
    decoded = decode_header("; ".join(" ".join(value.split()) for value in values if value.strip()), label=label)
    return Decoded(text=" ".join(decoded.text.split()), doubt=decoded.doubt)


def _decode_pieces(value: str, label: str | None) -> Iterator[Decoded]:
    """Decodes a header piece by piece. Neighbouring words of one charset may share a character."""
    for words, pieces in groupby(_split_words(value), key=lambda piece: piece[0]):
        data = "".join(text for _, text in pieces)
        if words is None:
            yield _decode_raw(data, label)
            continue
        charset, is_base64 = words
        encoded = data.encode("utf-8", "surrogateescape")
        is_cut = is_base64 and len(re.sub(rb"[\s=]", b"", encoded)) % 4 == 1
        quoted = encoded.replace(b"_", b" ")
        unquoted = re.sub(rb"=([0-9A-Fa-f]{2})", lambda code: bytes.fromhex(code[1].decode()), quoted)
        decoded = decode_text_or_bytes(decode_base64(encoded)[0] if is_base64 else unquoted, label=charset)
        yield Decoded(text=decoded.text, doubt="its end is missing" if is_cut else decoded.doubt)


def _split_words(value: str) -> Iterator[tuple[tuple[str, bool] | None, str]]:
    """Yields encoded words, each with its charset and whether it is in base64, and the text between them (None).

    Blanks between two encoded words only separate them.
    """
    end, is_after_word = 0, False
    for word in ENCODED_WORD.finditer(value):
        between = value[end : word.start()]
        if between and not (is_after_word and between.isspace()):
            yield None, between
        is_base64 = word["b"] is not None
        yield (word["charset"].lower(), is_base64), word["base64"] if is_base64 else word["quoted"]
        end, is_after_word = word.end(), True
    if value[end:]:
        yield None, value[end:]


def _decode_raw(text: str, label: str | None) -> Decoded:
    data = text.encode("utf-8", "surrogateescape")
    is_labelled = label is not None and find_codec(label) not in (None, "utf-8")
    try:
        return decode_text_or_bytes(data, label=None) if data.isascii() else Decoded(text=data.decode("utf-8"))
    except UnicodeDecodeError:
        return decode_text_or_bytes(data, label=label if is_labelled else None)


def find_phrases(text: str) -> set[tuple[str, ...]]:
    """Returns the words of a text, the pairs of neighbouring words, and its addresses (URLs).

    Two texts with the same phrases say the same to a reader, whatever their marks of lists and emphasis, blanks, line
    ends and placeholders of links and pictures are.
    """
    text = PLACEHOLDER.sub(" ", IGNORED.sub("", unicodedata.normalize("NFKC", text)).casefold())
    urls = {(re.sub(r"^(?:https?://)?(?:www\.)?", "", url.strip("<>")).rstrip("/.,;:)"),) for url in URL.findall(text)}
    words = WORD.findall(LIST_MARK.sub(" ", URL.sub(" ", text)))
    return urls | {(word,) for word in words} | set(pairwise(words))


def remove_base64(text: str) -> tuple[str, str]:
    """Removes lines of base64, but not those of keys and signatures; returns the rest, and what was removed."""
    pieces, removed = ARMOUR.split(text), list[str]()

    def replacement(lines: re.Match[str]) -> str:
        if not MIXED.match(lines[0]):
            return lines[0]
        removed.append(lines[0])
        return ""

    for position in range(0, len(pieces), 2):
        pieces[position] = BASE64.sub(replacement, pieces[position])
    return "".join(pieces), "\n".join(removed)


def unwrap_flowed(text: str, *, joins_words: bool) -> str:
    """Joins the lines of paragraphs (RFC 3676).

    Args:
        text: text whose lines end with a blank where the next one continues them.
        joins_words: whether that blank is not a part of the text (`DelSp`).
    """
    paragraphs, open_depth = list[list[str]](), -1
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip(">"))
        content = line[depth:].removeprefix(" ")
        is_open = content.endswith(" ") and content != "-- "
        shown = content[:-1] if is_open and joins_words else content
        if depth == open_depth and content != "-- ":
            paragraphs[-1].append(shown)
        else:
            paragraphs.append([">" * depth, " " if depth else "", shown])
        open_depth = depth if is_open else -1
    return "\n".join("".join(paragraph) for paragraph in paragraphs)


def unmark_enriched(text: str) -> str:
    """Removes the marks of text/enriched and text/richtext."""
    text = re.sub(r"<param>[^<]*</param>|<comment>[^<]*</comment>", "", text, flags=re.I)
    text = re.sub(r"<nl>", "\n", text.replace("<<", "\0"), flags=re.I)
    text = re.sub(r"<lt>", "\0", text, flags=re.I)
    return re.sub(r"</?[A-Za-z][\w-]*>", "", text).replace("\0", "<")


def unfold_calendar(text: str) -> str:
    """Joins the lines of properties of a calendar or an address card, and shows the characters that they escape."""
    text = re.sub(r"\n[ \t]", "", text)
    escapes = {"n": "\n", "N": "\n"}
    return re.sub(r"\\([nN,;\\])", lambda escape: escapes.get(escape[1], escape[1]), text)
