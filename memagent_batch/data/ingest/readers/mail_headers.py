"""Headers of mail to text: encoded words (RFC 2047), correct or not, and bytes that are not encoded at all."""

import re
from base64 import b64decode
from collections.abc import Iterator
from email.message import Message
from itertools import groupby

from memagent_batch.data.ingest.readers.charsets import Decoded, decode_text, find_codec
from memagent_batch.errors import ConversionError

ENCODED_WORD = re.compile(
    r"=\?(?P<charset>[\w.:+()-]+)(?:\*[\w-]*)?\?(?:(?P<b>[bB])\?(?P<base64>[\w+/=\s-]*?)|[qQ]\?(?P<quoted>.*?))"
    r"(?:\?=(?![0-9A-F]{2}\S{0,75}\?=)|(?==\?[\w-]+\?[bBqQ]\?)|$)"
)
"""An encoded word; one whose end is missing ends with the header, or where the next one begins."""
BASE64_LETTERS = bytes(byte for byte in range(128) if chr(byte).isalnum()) + b"+/"
OTHER_BYTES = bytes({*range(256)} - {*BASE64_LETTERS, *b"="})


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
        decoded = decode_text_or_bytes(decode_base64(encoded)[0] if is_base64 else _unquote(encoded), label=charset)
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


def _unquote(data: bytes) -> bytes:
    return re.sub(rb"=([0-9A-Fa-f]{2})", lambda code: bytes.fromhex(code[1].decode()), data.replace(b"_", b" "))
