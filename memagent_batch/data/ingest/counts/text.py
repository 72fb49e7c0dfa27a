"""All words of a plain text, decoded apart from its reader."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from memagent_batch.data.ingest.counts.words import Content

BYTE_ORDER_MARKS = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
ASCII_WORD = re.compile(rb"(?<![\x80-\xffA-Za-z0-9_])[A-Za-z0-9]+(?![\x80-\xffA-Za-z0-9_])")
"""A word that is the same in every encoding of bytes: no letter that only one of them has is in it or beside it."""
SHIFTED = re.compile(rb"\x1b\$[^\x1b]*(?:\x1b\([A-Z])?|\x0e[^\x0f]*\x0f?")
"""Letters that ISO-2022 writes in ASCII."""
C1_CONTROLS = re.compile("[\x80-\x9f]")
NUL_SHARE = 10
"""One NUL in so many bytes makes a text one of letters with two bytes."""


def text_contents(file: Path) -> Iterator[Content]:
    """Yields the words of a text; in an encoding that nothing names, those that are the same in all."""
    yield Content(place="text", text=_words(file.read_bytes()))


def _words(data: bytes) -> str:
    marked = next((codec for mark, codec in BYTE_ORDER_MARKS.items() if data.startswith(mark)), None)
    if marked is not None:
        return data.decode(marked, "replace")
    num_nuls = data.count(0)
    if num_nuls > len(data) // NUL_SHARE:
        order = "be" if data[::2].count(0) > data[1::2].count(0) else "le"
        return data.decode(f"utf-{32 if num_nuls > len(data) * 0.6 else 16}-{order}", "replace")
    if b"\x1b$" in data:
        data = SHIFTED.sub(b" ", data)
    with suppress(UnicodeDecodeError):
        text = data.decode("utf-8-sig")
        if not C1_CONTROLS.search(text):
            return text
    return " ".join(word.decode() for word in ASCII_WORD.findall(data))
