"""Bytes to text. A guess is always reported as a doubt, never as a fact."""

import codecs
import re
from contextlib import suppress
from dataclasses import dataclass

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
PRINTABLE = bytes((*b"\t\n\r", *range(0x20, 0x7F)))
CONTROL_BYTES = bytes({*range(0x20), 0x7F} - {*b"\b\t\n\v\f\r\x1a\x1b"})
CONTROL = re.compile("[\0-\x07\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
"""Characters that no text has, as a rule."""
CHARACTERS_PER_CONTROL = 50
"""Bytes of which one may be a control character if they are text."""
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
    import webencodings

    label = label.strip().strip("\"'").lower()
    encoding = webencodings.lookup(label)
    if encoding is not None:
        return SUPERSETS.get(encoding.name, str(encoding.codec_info.name))
    try:
        b"".decode(label)
        return codecs.lookup(label).name
    except (LookupError, ValueError):
        return None


def is_ascii_label(label: str) -> bool:
    """Returns whether a label says nothing about bytes above 127."""
    return label.strip().strip("\"'").lower() in ASCII_NAMES


def decode_text(data: bytes, *, label: str | None = None) -> Decoded:
    """Decodes bytes by their byte order mark, by their label, as UTF-8, or else by a guess.

    Args:
        data: the text as bytes.
        label: the charset that a header or the text itself names.

    Returns:
        The text, without NUL characters.

    Raises:
        ConversionError: the bytes are not text, or not in the encoding that their byte order mark says.
    """
    decoded = _decode(data, label)
    num_nuls = decoded.text.count("\0")
    if num_nuls == 0:
        return decoded
    _require_text(data)
    doubt = f"its characters may be wrong: it has {num_nuls:,} NUL bytes, shown as spaces"
    return Decoded(text=re.sub("\0+", " ", decoded.text), doubt=decoded.doubt or doubt)


def _decode(data: bytes, label: str | None) -> Decoded:
    mark = next((mark for mark in BYTE_ORDER_MARKS if data.startswith(mark)), None)
    if mark is not None:
        return _decode_marked(data, BYTE_ORDER_MARKS[mark])
    label = "" if label is None or is_ascii_label(label) else label.strip()
    codec = find_codec(label) if label else None
    if not (codec or "").startswith("utf-") and (wide := _decode_wide(data)) is not None:
        return wide
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


def _decode_wide(data: bytes) -> Decoded | None:
    """Decodes text in UTF-16 or UTF-32 without a byte order mark; None if it is in another encoding."""
    num_nuls = data.count(0)
    is_ascii = len(data) - len(data.translate(None, PRINTABLE)) > len(data) // 2 + num_nuls
    if num_nuls == 0 or is_ascii:
        return None
    order = "be" if data[::2].count(0) > data[1::2].count(0) else "le"
    for codec in (f"utf-32-{order}", f"utf-16-{order}"):
        with suppress(UnicodeDecodeError):
            text = data.decode(codec)
            if not CONTROL.search(text):
                doubt = f"its characters may be wrong: it has NUL bytes and names no character set; {codec} fits"
                return Decoded(text=text, doubt=doubt)
    return None


def _require_text(data: bytes) -> None:
    """Raises an error if many of the bytes are control characters."""
    num_controls = len(data) - len(data.translate(None, CONTROL_BYTES)) - data.count(0)
    if num_controls > len(data) // CHARACTERS_PER_CONTROL:
        raise ConversionError(
            f"it is not text: {num_controls:,} of its {len(data):,} bytes are control characters"
            f"{', and it holds NUL bytes' if 0 in data else ''}; save it as text in UTF-8, or name a converter"
        )


def _guess(data: bytes) -> Decoded:
    """Decodes text in an old encoding that nothing names."""
    _require_text(data)
    from charset_normalizer import from_bytes

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
