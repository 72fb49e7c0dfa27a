"""Bytes to text. A guess is always reported as a doubt, never as a fact."""

import codecs
import re
from dataclasses import dataclass

import webencodings
from charset_normalizer import from_bytes

from memagent_batch.errors import ConversionError

BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
SUPERSETS = {
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "iso-8859-8-i": "iso-8859-8",
}
"""Python's codec for a WHATWG encoding whose namesake in Python lacks characters that browsers show."""
ASCII_NAMES = frozenset({"ascii", "us-ascii", "unknown-8bit", "x-unknown", "default", "binary", "8bit", "7bit", "none"})
"""Labels that say nothing about bytes above 127."""
LEGACY = (
    *("cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874"),
    *("cp932", "euc_jp", "iso2022_jp", "gb18030", "big5hkscs", "cp949"),
    *("koi8_r", "koi8_u", "mac_roman", "mac_cyrillic", "cp437", "cp850", "cp852", "cp866"),
    *("iso8859_2", "iso8859_5", "iso8859_7", "iso8859_15"),
)
"""Encodings that a text without a label may have."""
GUESSED_BYTES = 1 << 20
"""Bytes from the beginning of a text by which its encoding is guessed."""
REPLACEMENT = "\ufffd"
MULTI_BYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A text, and why some of its characters may be wrong."""

    text: str
    doubt: str | None = None
    """A loss of severity `uncertain`, in words; None if the encoding is certain and all bytes belong to it."""


def find_codec(label: str) -> str | None:
    """Returns Python's codec for a label, by the WHATWG Encoding Standard or else by Python; None if unknown."""
    label = label.strip().strip("\"'").lower()
    encoding = webencodings.lookup(label)
    if encoding is not None:
        return SUPERSETS.get(encoding.name, str(encoding.codec_info.name))
    try:
        b"".decode(label)
        return codecs.lookup(label).name
    except (LookupError, ValueError):
        return None


def decode_text(data: bytes, *, label: str | None = None) -> Decoded:
    """Decodes bytes by their byte order mark, by their label, as UTF-8, or else by a guess.

    Args:
        data: the text as bytes.
        label: the charset that a header or the text itself names.

    Raises:
        ConversionError: the bytes are not text in the encoding that their byte order mark says.
    """
    mark = next((mark for mark in BYTE_ORDER_MARKS if data.startswith(mark)), None)
    if mark is not None:
        return _decode_marked(data, BYTE_ORDER_MARKS[mark])
    label = (label or "").strip()
    if label.lower() in ASCII_NAMES:
        label = ""
    codec = find_codec(label) if label else None
    if label and codec is None:
        guess = _decode_unlabelled(data)
        return Decoded(text=guess.text, doubt=guess.doubt or _unknown_label_doubt(data, label))
    return _decode_unlabelled(data) if codec is None else _decode_labelled(data, codec, label)


def _decode_marked(data: bytes, codec: str) -> Decoded:
    try:
        return Decoded(text=data.decode(codec))
    except UnicodeDecodeError as error:
        text = data.decode(codec, "replace")
        num_replaced = text.count(REPLACEMENT)
        if num_replaced > len(text) // 100 + 1:
            raise ConversionError(f"its byte order mark says {codec}, which it is not ({error})") from error
        return Decoded(text=text, doubt=_replaced_doubt(num_replaced, codec))


def _decode_labelled(data: bytes, codec: str, label: str) -> Decoded:
    """Takes the label at its word, unless the bytes say that they are UTF-8."""
    if codec not in ("utf-8", "utf-7") and not data.isascii() and _is_utf8(data) and not _is_stateful(codec):
        return Decoded(
            text=data.decode("utf-8"),
            doubt=f"its characters may be wrong: it is labelled {label}, and its bytes are UTF-8",
        )
    try:
        return Decoded(text=data.decode(codec))
    except UnicodeDecodeError:
        pass
    if codec == "utf-8":
        return _decode_unlabelled(data)
    if codec.startswith("cp125"):  # bytes without a character are control characters in browsers
        return Decoded(text=data.decode(codec, "replace"), doubt=_replaced_doubt(1, label))
    text = data.decode(codec, "replace")
    return Decoded(text=text, doubt=_replaced_doubt(text.count(REPLACEMENT), label))


def _decode_unlabelled(data: bytes) -> Decoded:
    if _is_utf8(data):
        return Decoded(text=data.decode("utf-8"))
    text = data.decode("utf-8", "replace")
    num_replaced, num_sequences = text.count(REPLACEMENT), len(MULTI_BYTE.findall(data))
    if num_sequences >= num_replaced:
        return Decoded(text=text, doubt=_replaced_doubt(num_replaced, "UTF-8"))
    return _guess(data)


def _guess(data: bytes) -> Decoded:
    """Decodes text in an old encoding that nothing names."""
    match = from_bytes(data[:GUESSED_BYTES], cp_isolation=[*LEGACY], preemptive_behaviour=False).best()
    codec = match.encoding if match is not None else "cp1252"
    text = data.decode(codec, "replace")
    return Decoded(
        text=text,
        doubt=f"its characters may be wrong: it is not UTF-8 and names no other character set; {codec} fits best",
    )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_stateful(codec: str) -> bool:
    return codec.startswith(("iso2022", "iso-2022", "hz", "utf"))


def _replaced_doubt(num_replaced: int, label: str) -> str:
    places = "1 character is" if num_replaced == 1 else f"{num_replaced:,} characters are"
    return f"{places} wrong: bytes that are not {label}, shown as U+FFFD"


def _unknown_label_doubt(data: bytes, label: str) -> str | None:
    return None if data.isascii() else f"its characters may be wrong: its charset {label!r} is unknown"
