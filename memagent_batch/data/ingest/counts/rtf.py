r"""All that an RTF file contains: the letters of every group but fonts, colours, styles, lists and binary data."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from memagent_batch.data.ingest.counts.words import Content
from memagent_batch.data.ingest.readers.charsets import code_page_label, find_codec

SETTINGS = frozenset(
    b"colortbl stylesheet listtable listoverridetable listpicture pgdsctbl revtbl rsidtbl filetbl info"
    b" generator objdata pict themedata colorschememapping datastore datafield latentstyles xmlnstbl pgptbl"
    b" mmathPr bkmkstart bkmkend blipuid panose falt objclass objname wgrffmtfilter userprops docvar pnseclvl"
    b" pntxta pntxtb sn fname htmltag mhtmltag ffname ffformat ffentrymcr ffexitmcr atrfstart atrfend atnref"
    b" atndate picprop passwordhash oldcprops oldpprops oldtprops oldsprops defchp defpap hlfr hlsrc hlloc".split()
)
"""Groups that say how a text looks, name it for programs, or have no letters."""
PLACES = frozenset(
    b"header headerl headerr headerf footer footerl footerr footerf footnote annotation atnid atnauthor"
    b" fldinst shptxt sv dptxbxtext formfield ffl ffdeftext ffhelptext ffstattext upr ud xe tc tcn shprslt"
    b" nonshppict nonesttables result deleted mvf".split()
)
"""Groups whose letters stand apart from those around them."""
ALTERNATIVES = frozenset({"shprslt", "nonshppict", "nonesttables"})
"""Groups that say again for older programs what another one says."""
SHAPE_NUMBERS = re.compile(r"[-\d;,.() ]*|[0-9a-fA-F\s]{32,}")
"""Values of the settings of a drawing that aren't words."""
BREAKS = frozenset(
    b"par line lbr sect page column row nestrow cell nestcell tab emspace enspace qmspace emdash endash bullet"
    b" lquote rquote ldblquote rdblquote".split()
)
"""Control words at which a word ends."""
FILE_PAGES = {b"mac": 10000, b"pc": 437, b"pca": 850, b"ansi": 1252}
FONT_WORDS = frozenset({b"f", b"plain", b"deff", b"fonttbl", b"fcharset", b"cpg", b"ansicpg", *FILE_PAGES})
BACKSLASH, WORD_END = rb"\'5c", b"\n"
SYMBOLS = {b"~": b" ", b"_": b"-", b"-": b"", b"|": b"", b":": b"", b"\\": BACKSLASH, b"{": b"{", b"}": b"}"}
FONT_PAGES = {77: 10000, 128: 932, 129: 949, 130: 1361, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255}
FONT_PAGES |= {178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250, 254: 437, 255: 850}
"""Code pages of the character sets of fonts."""

KNOWN = SETTINGS | PLACES | BREAKS | FONT_WORDS | {b"bin", b"u", b"uc"}


def _one_of(words: Iterable[bytes]) -> bytes:
    """Returns a pattern for any of the words, which are looked up by their first letters."""
    ends = defaultdict[bytes, list[bytes]](list)
    for word in sorted(words):
        ends[word[:1]].append(word[1:])
    return b"|".join(first + b"(?:" + b"|".join(each) + b")" for first, each in ends.items())


NUMBER = rb"(?![a-zA-Z])(?:-?\d{1,32})? ?"
FORMAT = rb"\\(?!(?:" + _one_of(KNOWN) + rb")(?![a-zA-Z]))[a-zA-Z]{1,32}+" + NUMBER
"""A control word that changes only how the text looks."""
BREAK = rb"\\(?:" + _one_of(BREAKS) + rb")" + NUMBER
FORMATS, BREAK_WORDS, BYTE = re.compile(FORMAT), re.compile(BREAK), re.compile(rb"\\'([0-9a-fA-F]{2})")
IN_TEXT = rb"|\\'[0-9a-fA-F]{2}|" + FORMAT + rb"|" + BREAK
TOKEN = re.compile(
    rb"(?P<text>(?:[^\\{}\r\n]" + IN_TEXT + rb")(?:[^\\{}]+" + IN_TEXT + rb")*+)"
    rb"|\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,32})? ?|(?P<open>\{)|(?P<close>\})|(?P<star>\\\*)|\\(?P<symbol>.)"
    rb"|[\r\n]+",
    re.S,
)
"""Letters with words between them that change their looks or end a line, or something else."""
STARRED = re.compile(rb"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,32})? ?")
"""The name of a group that programs may pass over."""


def rtf_contents(file: Path) -> Iterator[Content]:
    """Yields the letters of the text, and those of each kind of group beside it."""
    yield from letters_of(file.read_bytes())


def letters_of(data: bytes) -> Iterator[Content]:
    """Yields the same of RTF inside another file."""
    yield from _Letters(data).contents()


class _Letters:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pieces: dict[str, list[str]] = defaultdict(list)
        self._place, self._font, self._replacing = "text", -1, 1
        self._groups: list[tuple[str, int, int]] = []
        """Place, font and characters to pass over after one of Unicode, outside of each group."""
        self._page, self._default_font = "cp1252", 0
        self._fonts: dict[int, str] = {}
        self._fonts_depth = self._replaced = 0
        self._bytes, self._codec = bytearray(), self._page
        """Letters that are not decoded yet, and their encoding."""

    def contents(self) -> Iterator[Content]:
        """Yields the letters of each place."""
        at, is_new, is_star = 0, False, False
        while token := TOKEN.match(self._data, at):
            kind = token.lastgroup
            if kind == "text" and is_star and (starred := STARRED.match(self._data, at)):
                token, kind = starred, "word"
            at = token.end()
            if kind == "text":
                self._add(token["text"])
            elif kind in ("open", "close"):
                self._change_group(is_open=kind == "open")
            elif kind == "symbol":
                self._bytes += b"" if self._fonts_depth else SYMBOLS.get(token["symbol"], b" ")
            elif kind is not None and kind != "star":
                at = self._after_word(token["word"], token["number"], at, is_new=is_new, is_star=is_star)
            is_star = kind == "star"
            is_new = is_star or kind == "open" or (is_new and kind is None)
        self._decode()
        for place, pieces in self._pieces.items():
            text = "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            yield Content(place=place, text=text, is_alternative=place in ALTERNATIVES)

    def _after_word(self, name: bytes, digits: bytes | None, at: int, *, is_new: bool, is_star: bool) -> int:
        """Takes a control word; returns where the letters behind it begin."""
        number = int(digits or 0)
        if name == b"bin":
            return at + max(0, number)
        if is_new and name in SETTINGS:
            return _group_end(self._data, at)
        if name == b"u":
            self._decode()
            self._pieces[self._place] += () if self._fonts_depth else chr(number % 0x10000)
            self._replaced = self._replacing
        elif name == b"uc":
            self._replacing = max(0, number)
        elif is_star or name in PLACES:
            self._decode()
            self._place = self._groups[-1][0] if digits == b"0" and self._groups else name.decode()
        elif name in FONT_WORDS:
            self._set_font(name, number)
        return at

    def _set_font(self, name: bytes, number: int) -> None:
        """Applies a word that changes in which encoding the letters behind it are."""
        if name in (b"f", b"plain"):
            self._font = number if name == b"f" else -1
        elif name == b"deff":
            self._default_font = number
        elif name == b"fonttbl":
            self._decode()
            self._fonts_depth = len(self._groups)
        else:
            page = FONT_PAGES.get(number) if name == b"fcharset" else FILE_PAGES.get(name, number)
            codec = find_codec(code_page_label(page)) if page else None
            if self._fonts_depth and codec:
                self._fonts[self._font] = codec
            elif not self._fonts_depth:
                self._page = codec or "cp1252"
        self._set_codec()

    def _set_codec(self) -> None:
        """Decodes the letters so far if those that follow are in another encoding."""
        codec = self._fonts.get(self._default_font if self._font < 0 else self._font, self._page)
        if codec != self._codec:
            self._decode()
            self._codec = codec

    def _change_group(self, *, is_open: bool) -> None:
        self._replaced = 0
        if is_open:
            self._groups.append((self._place, self._font, self._replacing))
        elif self._groups:
            if len(self._groups) == self._fonts_depth:
                self._fonts_depth = 0
            place, font, self._replacing = self._groups.pop()
            if place != self._place:
                self._decode()
                self._end_place()
                self._place = place
            if font != self._font:
                self._font = font
                self._set_codec()

    def _end_place(self) -> None:
        pieces = self._pieces[self._place]
        pieces.append(" ")
        if self._place == "sv":
            if not SHAPE_NUMBERS.fullmatch("".join(pieces)):
                self._pieces["drawing"] += pieces
            pieces.clear()

    def _add(self, data: bytes) -> None:
        """Adds bytes to the text, without the letters that only stand in for a Unicode character before them."""
        if self._replaced:
            letters = _letters(data)
            data = letters[self._replaced :].replace(b"\\", BACKSLASH)
            self._replaced -= min(self._replaced, len(letters))
        if not self._fonts_depth:
            self._bytes += data
            self._bytes += WORD_END

    def _decode(self) -> None:
        if self._bytes:
            self._pieces[self._place].append(_letters(self._bytes).decode(self._codec, "replace"))
            self._bytes.clear()


def _letters(data: bytes | bytearray) -> bytes:
    """Returns letters without the control words between them."""
    if b"\\" in data:
        data = FORMATS.sub(b"", BREAK_WORDS.sub(b"\t", data))
    data = bytes(data.translate(None, b"\r\n"))
    return BYTE.sub(lambda byte: bytes.fromhex(byte[1].decode()), data) if b"\\" in data else data


def _group_end(data: bytes, at: int) -> int:
    """Returns where the brace stands that ends the group."""
    depth = 1
    while token := TOKEN.match(data, at):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if depth == 0:
            return token.start()
        at = token.end() + (max(0, int(token["number"] or 0)) if token["word"] == b"bin" else 0)
    return len(data)
