"""Bytes to text. A guess is always reported as a doubt, never as a fact."""

import codecs
import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass

import chardet
import webencodings

from memagent_batch.errors import ConversionError

BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32"}
BYTE_ORDER_MARKS |= {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
SUPERSETS = {"shift_jis": "cp932", "euc-kr": "cp949", "gbk": "gb18030", "big5": "big5hkscs"}
SUPERSETS |= {"iso-8859-8-i": "iso-8859-8"}
"""Python's codec for a WHATWG encoding whose namesake in Python lacks characters that browsers show."""
ASCII_NAMES = frozenset({"ascii", "us-ascii", "unknown-8bit", "x-unknown", "default", "binary", "8bit", "7bit", "none"})
"""Labels that say nothing about bytes above 127."""
STATEFUL_CODECS = ("iso2022", "iso-2022", "hz", "utf")
PRINTABLE = bytes((*b"\t\n\r", *range(0x20, 0x7F)))
CONTROL_BYTES = bytes({*range(0x20), 0x7F} - {*b"\b\t\n\v\f\r\x1a\x1b"})
NO_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
"""Categories of characters that no text has, as a rule."""
C1_CONTROL = re.compile("[\x80-\x84\x86-\x9f]")
C1_SIGNS = {code: bytes([code]).decode("cp1252", "replace") for code in range(0x80, 0xA0)}
"""What control characters stand for in a text that was taken for ISO-8859-1 and was windows-1252."""
ISO_2022 = {b"\x1b$)C": "iso2022_kr", b"\x1b$": "iso2022_jp_ext"}
"""How letters of two bytes begin in encodings that use bytes below 128 alone."""
CHARACTERS_PER_CONTROL = 50
"""Bytes of which one may be a control character if they are text."""
REPLACEMENT = "\ufffd"
OLD_CODECS = frozenset({"mac-roman", "mac-cyrillic", "cp437", "cp737", "cp850", "cp852", "cp862", "cp866", "cp874"}) | {
    *(f"cp125{number}" for number in range(9)),
    *(f"iso8859-{number}" for number in (1, 2, 5, 6, 7, 15)),
    *("koi8-r", "koi8-u", "cp932", "euc_jp", "gb18030", "big5hkscs", "cp949"),
}
"""Encodings in which programs wrote texts before UTF-8; `chardet` knows rarer ones too."""
ODD_LETTERS = re.compile(
    "[A-Za-zÀ-ɏ](?=[Ͱ-ۿ])|[Ͱ-ۿ](?=[A-Za-zÀ-ɏ])|[Ͱ-Ͽ](?=[Ѐ-ӿ])|[Ѐ-ӿ](?=[Ͱ-Ͽ])"  # two scripts in a word
    r"|[a-zß-öø-ÿа-я](?=[A-ZÀ-ÖØ-ÞА-Я])"  # a capital after a small letter
    r"|(?<=[^\W\d_])[¡-¿×÷‐-⯿](?<![’‘·])(?=[^\W\d_])|[\x80-\x9f\ufffd]"  # a sign inside a word, or no character
)
"""What a text in a wrong encoding has many of."""
ODD_LETTER_FACTOR = 0.5
"""By which each of them makes an encoding less likely."""
SAMPLE_BYTES, CONTEXT_BYTES = 64 << 10, 200
"""Bytes of a text by which an encoding is guessed, and those of a line before its first byte above 127."""
NOT_ASCII = re.compile(rb"[\x80-\xff][^\r\n]*")
MULTI_BYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
CODE_PAGES: dict[int, str] = (
    {37: "cp037", 708: "iso8859-6", 936: "gb18030", 949: "cp949", 950: "big5hkscs", 1361: "johab", 1200: "utf-16-le"}
    | {1201: "utf-16-be", 12000: "utf-32-le", 12001: "utf-32-be", 65000: "utf-7", 65001: "utf-8", 10000: "mac_roman"}
    | {10001: "shift_jis", 10002: "big5", 10003: "euc_kr", 10004: "mac_arabic", 10006: "mac_greek", 10029: "mac_latin2"}
    | {10007: "mac_cyrillic", 10008: "gb2312", 10010: "mac_romanian", 10079: "mac_iceland", 10081: "mac_turkish"}
    | {10082: "mac_croatian", 20000: "big5", 20127: "ascii", 20261: "latin-1", 20866: "koi8-r", 21866: "koi8-u"}
    | {20932: "euc_jp", 20936: "gb18030", 20949: "cp949", 38598: "iso8859-8", 50225: "iso2022_kr", 50227: "gb18030"}
    | {51932: "euc_jp", 51936: "gb18030", 51949: "cp949", 51950: "big5hkscs", 52936: "hz", 54936: "gb18030"}
    | {28590 + part: f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17))}
    | dict.fromkeys((50220, 50221, 50222), "iso2022_jp_ext")
)
"""Python's encodings of the code pages whose names in Python are not their numbers."""


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
        "a".encode(label)
        return codecs.lookup(label).name
    except (LookupError, ValueError):
        return None


def code_page_label(page: int) -> str:
    """Returns the name of an encoding; one that Python may not know."""
    return CODE_PAGES.get(page, f"cp{page}")


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
    text, doubt = decoded.text, decoded.doubt
    if "\0" in text:
        _require_text(data)
        doubt = doubt or "its characters may be wrong: it has NUL bytes, shown as spaces"
        text = re.sub("\0+", " ", text)
    if C1_CONTROL.search(text):
        doubt = doubt or "its characters may be wrong: control characters are shown as the signs of windows-1252"
        text = text.translate(C1_SIGNS)
    return Decoded(text=text, doubt=doubt)


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
            raise ConversionError(
                f"its byte order mark says {codec}, which it is not ({error}); save it as UTF-8"
            ) from error
        return Decoded(text=text, doubt=_replaced_doubt(num_replaced, codec))


def _decode_labelled(data: bytes, codec: str, label: str) -> Decoded:
    """Takes the label at its word, unless the bytes say that they are UTF-8."""
    if (
        codec not in ("utf-8", "utf-7")
        and not data.isascii()
        and is_valid_utf8(data)
        and not codec.startswith(STATEFUL_CODECS)
    ):
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
    text = data.decode(codec, "replace")
    return Decoded(text=text, doubt=_replaced_doubt(text.count(REPLACEMENT), label))


def _decode_unlabelled(data: bytes) -> Decoded:
    escaped = next((codec for mark, codec in ISO_2022.items() if mark in data and data.isascii()), None)
    if escaped is not None:
        return Decoded(text=data.decode(escaped, "replace"), doubt=_guess_doubt(escaped))
    if is_valid_utf8(data):
        return Decoded(text=data.decode("utf-8"))
    text = data.decode("utf-8", "replace")
    num_replaced, num_sequences = text.count(REPLACEMENT), len(MULTI_BYTE.findall(data))
    if num_sequences >= num_replaced:
        return Decoded(text=text, doubt=_replaced_doubt(num_replaced, "UTF-8"))
    _require_text(data)
    codec = guess_encoding(data)
    return Decoded(text=data.decode(codec, "replace"), doubt=_guess_doubt(codec))


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
            if all(
                character in "\t\n\r\f" or unicodedata.category(character) not in NO_TEXT for character in set(text)
            ):
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


def guess_encoding(data: bytes) -> str:
    """Returns Python's codec for the most likely encoding of a text with bytes above 127.

    `chardet` ranks the encodings by the letters that each language uses; those that give odd words come later.
    """
    sample, scores = bytearray(), dict[str, float]()
    for line in NOT_ASCII.finditer(data):
        before = data[max(0, line.start() - CONTEXT_BYTES) : line.start()]
        sample += before.rpartition(b"\n")[2] + line[0] + b"\n"
        if len(sample) >= SAMPLE_BYTES:
            sample = sample[:SAMPLE_BYTES]
            sample = sample[: sample.rfind(b" ")] if b" " in sample else sample  # not in the middle of a letter
            break
    for guess in chardet.detect_all(bytes(sample), ignore_threshold=True):
        codec = find_codec(guess["encoding"] or "")
        if codec in OLD_CODECS and codec not in scores:
            odd_letters = ODD_LETTERS.findall(sample.decode(codec, "replace"))
            scores[codec] = guess["confidence"] * ODD_LETTER_FACTOR ** len(odd_letters)
    return max(scores, key=lambda codec: scores[codec], default="cp1252")


def is_valid_utf8(data: bytes) -> bool:
    """Returns whether bytes are a text in UTF-8."""
    with suppress(UnicodeDecodeError):
        data.decode("utf-8")
        return True
    return False


def _guess_doubt(codec: str) -> str:
    return f"its characters may be wrong: it is not UTF-8 and names no other character set; {codec} fits best"


def _replaced_doubt(num_replaced: int, label: str) -> str:
    places = "1 character is" if num_replaced == 1 else f"{num_replaced:,} characters are"
    return f"{places} wrong: bytes that are not {label}, shown as U+FFFD"
