"""RTF: the text in order, with its lists and tables; then headers, footers, notes, comments, pictures and objects.

Libraries lose some of these without a word, and read the letters of fonts by the code page of the whole file.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memagent_batch.convert.code_pages import code_page_label
from memagent_batch.convert.converter import WHOLE_SOURCE, Attachment, BuiltIn, Part, PartStatus
from memagent_batch.convert.symbols import UNKNOWN_SYMBOL, symbol_note
from memagent_batch.errors import ConversionError

TOKEN = re.compile(
    rb"\\'(?P<byte>[0-9a-fA-F]{2})|\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,9})? ?|\\(?P<symbol>.)"
    rb"|(?P<group>[{}])|[\r\n]+|(?P<text>[^\\{}\r\n]+)",
    re.S,
)
GROUP_DEPTH = 1000
GROUP_PLACES = {
    **dict.fromkeys(("header", "headerl", "headerr", "headerf"), "header"),
    **dict.fromkeys(("footer", "footerl", "footerr", "footerf"), "footer"),
    "footnote": "notes",
    "annotation": "comments",
}
"""Groups that are parts of their own."""
READ_GROUPS = frozenset({*GROUP_PLACES, "shpinst", "shppict", "mmath", "moMath", "moMathPara"})
"""Groups that programs may pass over (`\\*`), and that hold text all the same."""
SKIPPED_GROUPS = frozenset(
    {"fonttbl", "colortbl", "stylesheet", "info", "fldinst", "sp", "nonshppict", "objclass", "filetbl"}
    | {"listtable", "revtbl", "atnid", "atnauthor", "atndate", "bkmkstart", "bkmkend", "xe", "tc", "mmathPr"}
)
"""Groups whose text is not one of the document."""
UNREAD_WORDS = {
    "pict": (PartStatus.NEEDS_OCR, "a picture: what it shows is not read"),
    "objdata": (PartStatus.FAILED, "an object of another program, which is not read"),
    "fftype": (PartStatus.FAILED, "a box or list of a form: what was chosen is not read"),
}
UNREAD_LOCATORS = {"pict": "picture", "objdata": "object", "fftype": "form field"}
SHOWN_WORDS = {
    **dict.fromkeys((b"par", b"line", b"sect", b"page", b"column"), "\n"),
    b"row": "\n",
    b"nestrow": "\n",
    b"cell": " | ",
    b"nestcell": " | ",
    b"tab": "\t",
    b"emdash": "\u2014",
    b"endash": "\u2013",
    b"bullet": "\u2022",
    b"lquote": "\u2018",
    b"rquote": "\u2019",
    b"ldblquote": "\u201c",
    b"rdblquote": "\u201d",
    b"emspace": " ",
    b"enspace": " ",
}
SHOWN_SYMBOLS = {b"~": " ", b"_": "-", b"\\": "\\", b"{": "{", b"}": "}", b"\n": "\n", b"\r": "\n"}
CHARSETS = {128: "cp932", 129: "cp949", 134: "gbk", 136: "cp950", 161: "cp1253", 162: "cp1254", 163: "cp1258"} | {
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    77: "mac_roman",
}
"""Encodings of fonts, by their numbers."""
SYMBOL_CHARSET = 2
FILE_PAGES = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
FORMAT_WORDS = frozenset({"f", "fcharset", "ansicpg", "uc", "deleted", "plain", *FILE_PAGES})
CHOICES = (1, 2)
"""Kinds of form fields that hold no text: boxes and lists."""


class RtfConverter(BuiltIn):
    """Hidden text is read, what a tracked change deleted is not."""

    own = 3

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """The text, and a part for each kind of text beside it.

        Raises:
            ConversionError: it is not RTF.
        """
        yield from rtf_parts(file.read_bytes())


def rtf_parts(data: bytes) -> Iterator[Part]:
    """Reads the text, and a part for each kind of text beside it.

    Raises:
        ConversionError: it is not RTF.
    """
    if not data.lstrip().startswith(b"{\\rtf"):
        raise ConversionError("it does not begin as RTF does; is it whole?")
    yield from _Reader().parts(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """What holds inside a pair of braces."""

    place: str | None = WHOLE_SOURCE
    """The part that its text belongs to; None if its text is not read."""
    is_optional: bool = False
    """Whether programs that don't know its first word pass over it."""
    is_deleted: bool = False
    in_fonts: bool = False
    font: int = 0
    replacing: int = 1
    """Characters that stand behind one of Unicode for older programs."""


class _Reader:
    def __init__(self) -> None:
        self._groups = [_Group()]
        self._texts: dict[str, list[str]] = defaultdict(list)
        self._bytes = bytearray()
        """Letters that are not decoded yet."""
        self._page = "cp1252"
        self._charsets: dict[int, int] = {}
        self._replaced = 0
        """Characters that are still to be passed over."""
        self._unread: list[str] = []

    def parts(self, data: bytes) -> Iterator[Part]:
        """The parts of a file."""
        at = 0
        while token := TOKEN.match(data, at):
            at = token.end()
            if token["word"] == b"bin":
                at += max(0, int(token["number"] or 0))
            self._take(token)
        self._decode()
        for place, texts in self._texts.items():
            text = re.sub(r" \| (?=\n|$)", "", "".join(texts)).strip("\n")
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            if text or place == WHOLE_SOURCE:
                yield Part(locator=place, text=text, reason=symbol_note(text))
        for number, word in enumerate(self._unread, start=1):
            status, reason = UNREAD_WORDS[word]
            yield Part(locator=f"{UNREAD_LOCATORS[word]} {number}", status=status, reason=reason)
        if len(self._groups) > 1:
            yield Part(locator="rest of the file", status=PartStatus.FAILED, reason="its end is missing")

    def _take(self, token: re.Match[bytes]) -> None:
        if token["byte"] is not None:
            self._letters(bytes.fromhex(token["byte"].decode()))
        elif token["text"] is not None:
            self._letters(token["text"])
        elif token["group"] == b"{":
            if len(self._groups) > GROUP_DEPTH:
                raise ConversionError(f"its groups are nested more than {GROUP_DEPTH} deep")
            self._decode()
            self._groups.append(replace(self._groups[-1], is_optional=False))
            self._replaced = 0
        elif token["group"] == b"}":
            self._decode()
            self._groups.pop()
            self._groups = self._groups or [_Group()]
            self._replaced = 0
        elif token["symbol"] is not None:
            self._symbol(token["symbol"])
        elif token["word"] is not None:
            self._word(token["word"], None if token["number"] is None else int(token["number"]))

    def _letters(self, data: bytes) -> None:
        passed = min(self._replaced, len(data))
        self._replaced -= passed
        self._bytes += data[passed:]

    def _symbol(self, symbol: bytes) -> None:
        if symbol == b"*":
            self._set(is_optional=True)
        elif symbol in SHOWN_SYMBOLS:
            self._show(SHOWN_SYMBOLS[symbol])

    def _word(self, word: bytes, number: int | None) -> None:
        name, group = word.decode(), self._groups[-1]
        if number in CHOICES if name == "fftype" else name in UNREAD_WORDS and group.place is not None:
            self._unread.append(name)
        if word in SHOWN_WORDS:
            self._show(SHOWN_WORDS[word])
        elif word == b"u" and number is not None:
            self._show(chr(number % 0x10000))
            self._replaced = group.replacing
        elif name in FORMAT_WORDS:
            self._format(name, number)
        elif name in SKIPPED_GROUPS or name in UNREAD_WORDS or (group.is_optional and name not in READ_GROUPS):
            self._set(place=None, in_fonts=name == "fonttbl")
        elif name in GROUP_PLACES and group.place is not None:
            self._set(place=GROUP_PLACES[name])
            self._show("\n" if self._texts[GROUP_PLACES[name]] else "")
        if group.is_optional:
            self._set(is_optional=False)

    def _format(self, name: str, number: int | None) -> None:
        group = self._groups[-1]
        if name in FILE_PAGES:
            self._page = FILE_PAGES[name]
        elif name == "ansicpg":
            self._page = code_page_label(number or 1252)
        elif name == "fcharset" and group.in_fonts:
            self._charsets[group.font] = number or 0
        elif name == "f":
            self._set(font=number or 0)
        elif name == "uc":
            self._set(replacing=number or 0)
        else:
            self._set(is_deleted=name == "deleted" and number != 0)

    def _set(self, **changes: Any) -> None:
        self._decode()
        self._groups[-1] = replace(self._groups[-1], **changes)

    def _show(self, text: str) -> None:
        self._decode()
        group = self._groups[-1]
        if group.place is not None and not group.is_deleted:
            self._texts[group.place].append(text)

    def _decode(self) -> None:
        """Shows the letters so far, in the encoding of their font."""
        data, self._bytes = bytes(self._bytes), bytearray()
        if not data:
            return
        charset = self._charsets.get(self._groups[-1].font, 0)
        if charset == SYMBOL_CHARSET:
            self._show("".join(letter if letter.isspace() else UNKNOWN_SYMBOL for letter in data.decode("latin-1")))
        else:
            self._show(data.decode(CHARSETS.get(charset, self._page), "replace"))
