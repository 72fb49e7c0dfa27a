"""RTF: the text in order, with its lists, tables and notes; then headers, footers, comments, pictures and objects.

Libraries lose some of these without a word, and read the letters of fonts by the code page of the whole file.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memagent_batch.data.ingest.readers.charsets import code_page_label, find_codec
from memagent_batch.data.ingest.readers.converter import (
    WHOLE_SOURCE,
    Attachment,
    BuiltIn,
    Part,
    PartStatus,
    picture_parts,
)
from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED, Run, Script, join_runs
from memagent_batch.data.ingest.readers.symbols import symbol_font, symbol_note, to_unicode
from memagent_batch.errors import ConversionError

TOKEN = re.compile(
    rb"\\'(?P<byte>[0-9a-fA-F]{2})|\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,32})? ?|\\(?P<symbol>.)"
    rb"|(?P<group>[{}])|[\r\n]+|(?P<text>[^\\{}\r\n]+)",
    re.S,
)
GROUP_DEPTH = 1000
TRACKED_CHANGES = "tracked changes are read as if all were accepted"
PICTURE = "a picture: what it shows is not read"
OBJECT = "an object of another program, which is not read"
COUNTED_FIELDS = frozenset({"LISTNUM", "AUTONUM", "AUTONUMLGL", "AUTONUMOUT", "EQ"})
"""Fields that programs compute whenever they show them."""
SYMBOL_FIELD = re.compile(r"SYMBOL\s+(0x)?([0-9a-fA-F]{1,5})(?:.*?\\f\s+\"?([^\"\\]+))?", re.I | re.S)
PICTURE_START = (b"\x89PNG", b"\xff\xd8\xff")
UNDEFINED = 25
"""Stands for what a field of a form was never given."""

PLACES = {
    **dict.fromkeys(("header", "headerl", "headerr", "headerf"), "header"),
    **dict.fromkeys(("footer", "footerl", "footerr", "footerf"), "footer"),
    "annotation": "comments",
}
"""Groups that are parts of their own."""
CAPTURED_GROUPS = frozenset(
    {"fldinst", "sn", "sv", "atnid", "atnauthor", "footnote", "ffl", "formfield", "pict", "objdata"}
)
"""Groups that are taken as a whole when they end."""
READ_GROUPS = frozenset({*PLACES, *CAPTURED_GROUPS, "field", "ud"})
READ_GROUPS |= {"shpinst", "shppict", "do", "dptxbxtext", "mmath", "moMath", "moMathPara", "nesttableprops"}
"""Groups that programs may pass over (`\\*`), and that hold text all the same."""
LEFT_OUT_GROUPS = frozenset({"upr", "xe", "tc", "tcn", "ffdeftext", "ffhelptext", "ffstattext"})
"""Groups with words that programs show elsewhere or in their place: entries of an index, hints of form fields."""
SKIPPED_GROUPS = LEFT_OUT_GROUPS | (
    {"colortbl", "stylesheet", "info", "nonshppict", "shprslt", "objclass", "filetbl", "nonesttables"}
    | {"listtable", "revtbl", "atndate", "bkmkstart", "bkmkend", "mmathPr", "sp", "ffname"}
    | {"ffformat", "ffentrymcr", "ffexitmcr"}
)
"""Groups whose text is not one of the document."""
SHOWN_WORDS = (
    dict.fromkeys(("par", "line", "sect", "page", "column", "row", "nestrow"), "\n")
    | dict.fromkeys(("cell", "nestcell"), " | ")
    | dict.fromkeys(("emspace", "enspace", "qmspace"), " ")
    | {"tab": "\t", "emdash": "\u2014", "endash": "\u2013", "bullet": "\u2022", "zwj": "\u200d", "zwnj": "\u200c"}
    | {"lquote": "\u2018", "rquote": "\u2019", "ldblquote": "\u201c", "rdblquote": "\u201d"}
)
SHOWN_SYMBOLS = {b"~": " ", b"_": "-", b"\\": "\\", b"{": "{", b"}": "}", b"\n": "\n", b"\r": "\n"}
WRAPPED_GROUPS = {"mnum": ("(", ")"), "mden": ("/(", ")"), "mrad": ("\u221a(", ")")}
"""What stands before and behind the parts of an equation."""
SCRIPT_GROUPS = {"msup": Script.SUPER, "msub": Script.SUB}
CHARSETS = (
    {77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030", 136: "big5hkscs", 161: "cp1253"}
    | {162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874"}
    | {238: "cp1250", 254: "cp437", 255: "cp850"}
)
"""Encodings of fonts, by their numbers."""
SYMBOL_CHARSET = 2
SCRIPT_WORDS = {"super": Script.SUPER, "up": Script.SUPER, "sub": Script.SUB, "dn": Script.SUB}
FORM_WORDS = frozenset({"fftype", "ffres", "ffdefres"})
FILE_PAGES = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
FORMAT_WORDS = FILE_PAGES.keys() | SCRIPT_WORDS.keys() | FORM_WORDS
INVISIBLE = {0xAD: None, 0xA0: " "}


class RtfConverter(BuiltIn):
    """Hidden text is read, what a tracked change deleted is not."""

    revision = 8

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields the text, and a part for each kind of text beside it."""
        yield from rtf_parts(file.read_bytes())


def rtf_parts(data: bytes) -> Iterator[Part]:
    """Reads the text, and a part for each kind of text beside it.

    Raises:
        ConversionError: it is not RTF.
    """
    if not data.lstrip().startswith(b"{\\rtf"):
        raise ConversionError("it does not begin as RTF does; is it whole?")
    yield from _Reader().parts(data.rstrip(b"\0"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """What holds inside a pair of braces."""

    place: str | None = WHOLE_SOURCE
    """The part that its text belongs to; None if its text is not read."""
    word: str = ""
    """Name of what it is, if it is more than a format."""
    is_new: bool = False
    """Whether nothing of it has been read."""
    is_optional: bool = False
    """Whether programs that don't know its first word pass over it."""
    is_captured: bool = False
    """Whether its text is taken at the end of a group around it."""
    in_fonts: bool = False
    is_left_out: bool = False
    """Whether its words are left out on purpose."""
    has_pictures: bool = True
    is_deleted: bool = False
    is_struck: bool = False
    script: Script = Script.NORMAL
    font: int | None = None
    replacing: int = 1
    """Characters that stand behind one of Unicode for older programs."""


@dataclass(slots=True)
class _Font:
    name: str = ""
    charset: int = 0
    page: str | None = None


@dataclass(slots=True)
class _Field:
    num_shown: int
    """Pieces of text that were shown before its result."""
    code: str = ""
    result: str = ""
    """What a field of a form is filled in with."""


class _Reader:
    def __init__(self) -> None:
        self._groups = [_Group()]
        self._texts: dict[str, list[Run]] = defaultdict(list)
        self._bytes = bytearray()
        """Letters that are not decoded yet."""
        self._page = "cp1252"
        self._fonts: dict[int, _Font] = defaultdict(_Font)
        self._default_font = 0
        self._replaced = 0
        """Characters that are still to be passed over."""
        self._captures: list[list[Run]] = []
        """Texts of the groups that are taken as a whole, the innermost one last."""
        self._notes: list[str] = []
        """Notes that follow the line that they belong to."""
        self._num_notes = 0
        self._num_shown = 0
        self._fields: list[_Field] = [_Field(0)]
        """Fields that are not at their end, below one that stands for the file."""
        self._form: dict[str, int] = {}
        self._entries: list[str] = []
        """Settings and choices of the field of a form that is being read."""
        self._author = self._shape_setting = ""
        self._left_out: list[str] = []
        self._in_table = self._is_tracked = False
        self._num_undecoded = 0
        self._counts = Counter[str]()
        """Things of each kind that are not read."""
        self._unread: list[Part] = []

    def parts(self, data: bytes) -> Iterator[Part]:
        """Yields the parts of a file."""
        at = 0
        while token := TOKEN.match(data, at):
            at = token.end()
            if token["word"] == b"bin":
                size = max(0, int(token["number"] or 0))
                if self._groups[-1].word == "pict":
                    self._bytes += data[at : at + size].hex().encode()
                at += size
                continue
            self._take(token)
        self._decode()
        is_cut = len(self._groups) > 1
        while len(self._groups) > 1:
            self._close()
        self._show_notes(WHOLE_SOURCE)
        yield from self._text_parts()
        yield from self._unread
        if is_cut:
            yield Part(locator="rest of the file", status=PartStatus.FAILED, reason="its end is missing")

    def _text_parts(self) -> Iterator[Part]:
        tracked = TRACKED_CHANGES if self._is_tracked else None
        for place, runs in self._texts.items():
            text = re.sub(r" \| (?=\n|$)", "", join_runs(runs)).translate(INVISIBLE).strip("\n")
            text = re.sub(r"^(\[comment[^\]\n]*\])\s+", r"\1 ", text, flags=re.M) if place == "comments" else text
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            if not text and place != WHOLE_SOURCE:
                continue
            if self._num_undecoded and place == WHOLE_SOURCE:
                doubt = f"{self._num_undecoded:,} letters are not in the character sets of their fonts"
                notes, status = [tracked, f"{doubt}, and are shown as U+FFFD"], PartStatus.NEEDS_REVIEW
            else:
                notes, status = [tracked, symbol_note(text)], PartStatus.OK
            reason = "; ".join(filter(None, notes)) or None
            yield Part(locator=place, text=text, status=status, reason=reason, left_out=" ".join(self._left_out))
            tracked, self._left_out = None, []

    def _take(self, token: re.Match[bytes]) -> None:
        if token["byte"] is not None or token["text"] is not None:
            self._letters(token["text"] or bytes.fromhex(token["byte"].decode()))
        elif token["group"] == b"{":
            if len(self._groups) > GROUP_DEPTH:
                raise ConversionError(f"its groups are nested more than {GROUP_DEPTH} deep")
            self._decode()
            self._groups.append(replace(self._groups[-1], is_new=True, is_optional=False, word=""))
            self._replaced = 0
        elif token["group"] == b"}":
            self._decode()
            self._close()
            self._replaced = 0
        elif token["symbol"] is not None:
            if token["symbol"] == b"*":
                self._set(is_optional=self._groups[-1].is_new)
            self._show(SHOWN_SYMBOLS.get(token["symbol"], ""))
        elif token["word"] is not None:
            self._word(token["word"].decode(), None if token["number"] is None else int(token["number"]))

    def _letters(self, data: bytes) -> None:
        passed = min(self._replaced, len(data))
        self._replaced -= passed
        self._bytes += data[passed:]
        if self._groups[-1].is_new:
            self._set(is_new=False)

    def _word(self, name: str, number: int | None) -> None:
        group = self._groups[-1]
        if name in SHOWN_WORDS:
            self._show_word(name)
        elif name == "u" and number is not None:
            letter = chr(number % 0x10000)
            shown = to_unicode(letter, self._font().name)
            self._left_out += [letter] if shown != letter else []
            self._show(shown)
            self._replaced = group.replacing
        elif name in FORMAT_WORDS or name in self._FORMATS:
            self._set_format(name, number)
        elif group.is_new or name in CAPTURED_GROUPS or name in PLACES:
            self._open(name)
        if group.is_new:
            self._set(is_new=False, is_optional=False)

    def _open(self, name: str) -> None:
        """Begins a group that is more than a format."""
        group = self._groups[-1]
        is_taken = group.has_pictures if name in ("sn", "sv", "pict") else group.place is not None
        if name == "ud" and len(self._groups) > 2:
            self._set(place=self._groups[-3].place, is_left_out=False, has_pictures=self._groups[-3].has_pictures)
        elif name in CAPTURED_GROUPS and not group.word and is_taken:
            self._set(word=name, place=group.place or WHOLE_SOURCE, is_captured=True, script=Script.NORMAL)
            self._captures.append([])
        elif name in SKIPPED_GROUPS or (group.is_optional and name not in READ_GROUPS):
            is_left_out = name in LEFT_OUT_GROUPS and group.place is not None
            self._set(place=None, is_left_out=is_left_out, has_pictures=group.has_pictures and name == "sp")
        elif group.place is not None:
            self._open_shown(name)

    def _open_shown(self, name: str) -> None:
        if name in PLACES:
            self._set(place=PLACES[name], word=name)
            author = f" by {self._author}" if self._author else ""
            self._show("\n" if self._texts[PLACES[name]] else "")
            self._show(f"[comment{author}] " if name == "annotation" else "")
            self._author = ""
        elif name == "field":
            self._set(word=name)
            self._fields.append(_Field(self._num_shown))
        elif name == "fonttbl":
            self._set(in_fonts=True)
        elif name in WRAPPED_GROUPS:
            self._show(WRAPPED_GROUPS[name][0])
            self._set(word=name)
        elif name in SCRIPT_GROUPS:
            self._set(script=SCRIPT_GROUPS[name])

    def _close(self) -> None:
        """Ends the innermost group."""
        group = self._groups.pop()
        self._groups = self._groups or [_Group()]
        closing = self._CLOSINGS.get(group.word)
        if closing is not None:
            closing(self, join_runs(self._captures.pop()).strip() if group.word in CAPTURED_GROUPS else "")
        elif group.word in WRAPPED_GROUPS:
            self._show(WRAPPED_GROUPS[group.word][1])

    def _close_setting(self, value: str) -> None:
        """Shows the letters and the description of a drawing, which are settings of it."""
        place = next((group.place for group in reversed(self._groups) if group.place is not None), None)
        words = {"gtextUNICODE": f"\n{value}\n", "wzDescription": f" [picture: {value}] "}.get(self._shape_setting)
        if words is not None and value and place is not None:
            self._texts[place].append(Run(words))
        else:
            self._left_out.append(value)

    def _close_picture(self, digits: str) -> None:
        locator = self._locator("picture")
        try:
            picture = bytes.fromhex(digits)
        except ValueError:
            picture = b""
        if picture.startswith(PICTURE_START):
            self._unread += picture_parts(locator, picture)
        else:
            self._unread.append(Part(locator=locator, status=PartStatus.NEEDS_OCR, reason=PICTURE))

    def _close_note(self, text: str) -> None:
        self._num_notes += 1
        self._notes.append(f"[^{self._num_notes}] {text}")
        self._add(Run(f"[^{self._num_notes}]"))

    def _close_form(self, _: str) -> None:
        self._left_out += self._entries
        kind, result = self._form.get("fftype"), self._form.get("ffres", UNDEFINED)
        result = self._form.get("ffdefres", 0) if result == UNDEFINED else result
        if kind == 1:
            self._fields[-1].result = CHECKED if result else UNCHECKED
        elif kind == 2 and 0 <= result < len(self._entries):
            self._fields[-1].result = self._entries[result]
        self._form, self._entries = {}, []

    def _close_author(self, text: str) -> None:
        """Keeps the initials or the name of who wrote the comment behind it; the last one is shown."""
        self._left_out.append(self._author)
        self._author = text

    def _close_code(self, code: str) -> None:
        self._left_out.append(code)
        self._fields[-1].code = code
        self._fields[-1].num_shown = self._num_shown

    def _close_field(self, _: str) -> None:
        """Shows what a field says that has no result in the file."""
        field = self._fields.pop()
        symbol, name = SYMBOL_FIELD.match(field.code), (field.code.split() or [""])[0].upper()
        if self._num_shown > field.num_shown:
            return
        self._show(field.result)
        if symbol is not None:
            code = int(symbol[2], 16 if symbol[1] else 10) if symbol[1] or symbol[2].isdecimal() else 0
            self._show(to_unicode(chr(code), (symbol[3] or "").strip()))
        elif name in COUNTED_FIELDS:
            reason = f"a field ({name}) whose result is not in the file; save it as PDF"
            self._unread.append(Part(locator=self._locator("field"), status=PartStatus.SKIPPED, reason=reason))

    def _locator(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind} {self._counts[kind]}"

    def _show_word(self, name: str) -> None:
        group = self._groups[-1]
        shown = SHOWN_WORDS[name]
        is_row = name in ("row", "nestrow")
        self._show(" " if name in ("par", "line") and self._in_table else shown)
        if name == "row":
            self._in_table = False
        if shown == "\n" and (is_row or not self._in_table) and not group.is_captured and group.place == WHOLE_SOURCE:
            self._show_notes(WHOLE_SOURCE)

    def _show_notes(self, place: str) -> None:
        runs = self._texts[place]
        if self._notes and runs and not runs[-1].text.endswith("\n"):
            runs.append(Run("\n"))
        runs += [Run(f"{note}\n") for note in self._notes]
        self._notes.clear()

    def _set(self, **changes: Any) -> None:
        self._decode()
        self._groups[-1] = replace(self._groups[-1], **changes)

    def _show(self, text: str) -> None:
        self._decode()
        group = self._groups[-1]
        if group.in_fonts and group.place is not None:
            self._font().name += text.partition(";")[0].strip()
        elif group.is_left_out or (group.is_deleted and group.place is not None):
            self._is_tracked |= bool(group.is_deleted and text.strip())
            self._left_out.append(text)
        elif text:
            self._add(Run(text, group.script, group.is_struck))

    def _add(self, run: Run) -> None:
        group = self._groups[-1]
        if group.place is None:
            return
        self._num_shown += bool(run.text.strip())
        (self._captures[-1] if group.is_captured else self._texts[group.place]).append(run)

    def _font(self) -> _Font:
        font = self._groups[-1].font
        return self._fonts[self._default_font if font is None else font]

    def _decode(self) -> None:
        """Shows the letters so far, in the encoding of their font."""
        data, self._bytes = bytes(self._bytes), bytearray()
        if not data or (self._groups[-1].place is None and not self._groups[-1].is_left_out):
            return
        font, group = self._font(), self._groups[-1]
        is_symbol = font.charset == SYMBOL_CHARSET or symbol_font(font.name) is not None
        if group.in_fonts or (data.isascii() and not is_symbol):
            self._show(data.decode("latin-1"))
        elif is_symbol:
            letters = data.decode("latin-1")
            self._left_out.append(letters)
            if symbol_font(font.name) is None:
                letters = "".join(each if each.isspace() else chr(0xF000 + ord(each)) for each in letters)
            self._show(to_unicode(letters, font.name))
        else:
            text = data.decode(font.page or CHARSETS.get(font.charset, self._page), "replace")
            self._num_undecoded += text.count("\ufffd")
            self._show(text)

    def _set_format(self, name: str, number: int | None) -> None:
        """Applies a word that changes how the text behind it is read."""
        if name in SCRIPT_WORDS:
            self._set(script=Script.NORMAL if number == 0 else SCRIPT_WORDS[name])
        elif name in FILE_PAGES:
            self._set_page(FILE_PAGES[name])
        elif name in FORM_WORDS:
            self._form[name] = number or 0
        else:
            self._FORMATS[name](self, number)

    def _set_page(self, page: str | None) -> None:
        """Sets the encoding of a font while fonts are listed, else that of the file."""
        if self._groups[-1].in_fonts:
            self._font().page = page
        else:
            self._page = page or "cp1252"

    def _set_charset(self, charset: int) -> None:
        if self._groups[-1].in_fonts:
            self._font().charset = charset

    _FORMATS: Mapping[str, Callable[["_Reader", int | None], None]] = {
        "f": lambda reader, number: reader._set(font=number or 0),
        "uc": lambda reader, number: reader._set(replacing=max(0, number or 0)),
        "plain": lambda reader, _: reader._set(font=None, script=Script.NORMAL, is_struck=False, is_deleted=False),
        **{name: lambda reader, number: reader._set(is_deleted=number != 0) for name in ("deleted", "mvf")},
        **{name: lambda reader, number: reader._set(is_struck=number != 0) for name in ("strike", "striked")},
        "nosupersub": lambda reader, _: reader._set(script=Script.NORMAL),
        "deff": lambda reader, number: setattr(reader, "_default_font", number or 0),
        "fcharset": lambda reader, number: reader._set_charset(number or 0),
        **dict.fromkeys(
            ("ansicpg", "cpg"), lambda reader, number: reader._set_page(find_codec(code_page_label(number or 1252)))
        ),
        "intbl": lambda reader, _: setattr(reader, "_in_table", True),
        "pard": lambda reader, _: setattr(reader, "_in_table", False),
        "revised": lambda reader, number: setattr(reader, "_is_tracked", reader._is_tracked or number != 0),
    }
    _CLOSINGS: Mapping[str, Callable[["_Reader", str], None]] = {
        "sv": _close_setting,
        "pict": _close_picture,
        "objdata": lambda reader, _: reader._unread.append(
            Part(locator=reader._locator("object"), status=PartStatus.FAILED, reason=OBJECT)
        ),
        "footnote": _close_note,
        "formfield": _close_form,
        "fldinst": _close_code,
        "field": _close_field,
        "sn": lambda reader, text: setattr(reader, "_shape_setting", text),
        "atnid": _close_author,
        "atnauthor": _close_author,
        "ffl": lambda reader, text: reader._entries.append(text),
    }
    """What is done at the end of a group, with the text in it."""
