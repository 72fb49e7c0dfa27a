"""All that a package of Office or LibreOffice contains: the text nodes of every XML part, and every other file.

XML is searched, not parsed: what the parser of a reader passes over must not be lost here as well. And all files of a
ZIP archive.
"""

import re
import zipfile
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape, unescape
from pathlib import Path

from memagent_batch.data.ingest.counts.words import Content

SETTINGS = re.compile(
    r"(\[Content_Types\]\.xml|mimetype|layout-cache|.*\.(rels|odttf|fntdata|ttf)|.*vba(Project|Data).*"
    r"|(docProps|customXml|customUI|docMetadata|_xmlsignatures|\[trash\]|META-INF|Thumbnails|Configurations2|Basic|Dialogs"
    r"|ObjectReplacements)/.*"
    r"|(.*/)?(theme|printerSettings|fonts|ink|persons|revisionInfo|webextensions|slicer\w*|timeline\w*|ctrlProps|tags)/.*"
    r"|(.*/)?(settings|meta|manifest)\.(xml|rdf)"
    r"|.+/(styles\w*|webSettings|fontTable|calcChain|tableStyles|presProps|viewProps|people|metadata|\w*[aA]uthors"
    r"|connections|queryTable\d*|volatileDependencies|xmlMaps|rd\w+|changesInfo\d*)\.xml"
    r"|.+/customProperty\d*\.bin)$"
)
"""Parts of a package that say how it looks, or what is said of it, and hold none of its text."""
OF_FINDER = re.compile(r"(.*/)?(__MACOSX/(.*/)?\._.*|\.DS_Store)$", re.DOTALL)
COPIES = re.compile(r"(.*/)?diagrams/drawing\d*\.xml$")
"""Parts that keep how others were drawn."""
SHEET_START = re.compile(r"<(?:\w+:)?(worksheet|sst|dialogsheet|macrosheet)\b")
START_CHARACTERS = 4096
SHEET_END = re.compile(r"</(?:\w+:)?sheetData>|<(?:\w+:)?sheetData\s*/>")

SETTING_NAMES = {
    "posOffset",
    "pctWidth",
    "pctHeight",
    "pctPosHOffset",
    "pctPosVOffset",
    "wp:align",
    "attrName",
    "sqref",
}
SETTING_NAMES |= {"xdr:col", "xdr:row", "xdr:colOff", "xdr:rowOff", "cdr:x", "cdr:y", "tableStyleId", "styleId"}
SETTING_NAMES |= {"c:f", "cx:f", "xm:f", "c15:f", "c16r2:f", "formatCode", "number:text", "embedded-text", "list-id"}
SETTING_NAMES |= {"sqref", "creationId", "creator-initials", "sender-initials", "FieldCodes", "LinkType", "LockedField"}
SETTING_NAMES |= {"index-title-template", "index-entry-span", "binary-data", "script", "currency-symbol"}
SETTING_NAMES |= {"x14:id", "formula", "calculatedColumnFormula", "totalsRowFormula"}
"""Elements whose letters are positions and other settings, pictures and programs."""
HIDDEN = frozenset({"w:delText", "w:instrText", "w:delInstrText"})
"""Elements inside of words that do not part them."""
LETTERS = re.compile(r">([^<]+)")
TAG, NAME = re.compile(r"<[^<>]*>"), re.compile(r"</?([^\s<>/]+)")
HIDDEN_TAG = rf"<(?:{'|'.join(sorted(HIDDEN))})(?=[\s>])[^<>]*>[^<]*"
HIDDEN_LETTERS, OTHER_LETTERS = re.compile(HIDDEN_TAG), re.compile(rf"({HIDDEN_TAG})|(>)[^<]+")
APART = re.compile(
    r"p|h|tc|tr|si|is|c|v|br|tab|cr|ptab|s|line-break|table|table-cell|table-row|list-item|annotation"
    r"|creator|date|title|desc|note|note-citation|note-body|cm|pt|e|sub|sup|num|den|deg|lim|fName|oMath|definedName"
    r"|m[inos]|mtext|AlternateContent|Fallback|sdt|rt|rubyBase|ruby-base|ruby-text"
    r"|formula[12]|(?:odd|even|first)(?:Header|Footer)"
)
"""Elements at which a word ends."""
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
ATTRIBUTES = {name: name for name in ("descr", "title", "alt", "string", "tooltip", "w:tooltip")}
ATTRIBUTES |= {
    name: name for name in ("prompt", "promptTitle", "error", "errorTitle", "form:label", "form:current-value")
}
ATTRIBUTES |= {f"{family}:title": f"{family}:title" for family in ("office", "xlink", "form", "table")}
ATTRIBUTES |= {"table:condition": "table:condition"}
ATTRIBUTES |= {"w:comment ": "(?<=w:comment )w:author"}
ATTRIBUTES |= {f"w:tbl{name}": f"(?<=w:tbl{name} )w:val" for name in ("Caption", "Description")}
"""Patterns of the names of attributes that people read, by what XML with them contains."""
EMPTY_CELL = re.compile(r"<table:table-cell\b([^<>]*\soffice:[^<>]*)/>")
CELL_VALUE = re.compile(r'\soffice:(?:value|(?:date|time|boolean|string)-value)="([^"]*)"')
"""Of a cell of LibreOffice without a text."""

SHARED_CELL = re.compile(r"""<(?:\w+:)?c\s[^<>]*\bt=["']s["'][^<>]*>\s*<(?:\w+:)?v>\s*(\d+)\s*(?=</)""")
SHARED_TEXT = re.compile(r"<(?:\w+:)?si(?:\s[^<>]*)?(?:/>|>(.*?)</(?:\w+:)?si>)", re.DOTALL)
READING = re.compile(r"<((?:\w+:)?rPh)\b.*?</\1>", re.DOTALL)
"""How a text of a cell is pronounced."""
ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
"""A character that XML does not allow, in texts of workbooks."""
DECLARED = re.compile(rb"""\s*<\?xml[^>]*encoding=["']([\w.-]+)""")
PIECE_BYTES = 8 << 20
"""Sheets are searched in pieces of this size."""


def office_contents(file: Path) -> Iterator[Content]:
    """Yields the text of each XML part of a package, and its other files.

    Texts that the cells of a workbook share are there as often as there are cells with them.
    """
    shared, uses = list[str](), Counter[str]()
    with zipfile.ZipFile(file) as package:
        for member in package.infolist():
            name, kind = member.filename, None
            if member.is_dir() or SETTINGS.match(name):
                continue
            if not name.lower().endswith((".xml", ".vml")):
                yield Content(place=name, file=package.read(member))
                continue
            for xml in _pieces(package, member):
                found = SHEET_START.search(xml, 0, START_CHARACTERS)
                kind = found[1] if found else kind
                if kind == "sst":
                    shared += map(_shared_text, SHARED_TEXT.findall(xml))
                elif kind is not None:
                    text, numbers = _cells(xml)
                    uses.update(numbers)
                    yield Content(place=name, text=text)
                else:
                    yield Content(place=name, text=_text(xml, name), is_alternative=COPIES.match(name) is not None)
    yield Content(
        place="cells", text="".join(f"{text} " * uses.get(str(number), 0) for number, text in enumerate(shared))
    )


def zip_contents(file: Path) -> Iterator[Content]:
    """Yields the files of an archive; what the Finder of macOS adds to one is none of them."""
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if (member.file_size or not member.is_dir()) and not OF_FINDER.match(member.filename):
                yield Content(place=f"file {member.filename}", is_member=True)


def _pieces(package: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[str]:
    """Yields the XML of a part: at once, or in pieces that end with a row or a shared text."""
    with package.open(member) as stream:
        rest = stream.read(PIECE_BYTES)
        declared = DECLARED.match(rest)
        is_wide = rest.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
        encoding = "utf-16" if is_wide else declared[1].decode() if declared else "utf-8"
        while more := stream.read(PIECE_BYTES):
            rest += more
            end = 0 if is_wide else max(rest.rfind(b"row>"), rest.rfind(b"si>"))
            if end > 0:
                yield rest[: end + 4].decode(encoding, "replace")
                rest = rest[end + 4 :]
        yield rest.removeprefix(BOM_UTF8).decode(encoding, "replace")


def _text(xml: str, place: str = "") -> str:
    """Returns the letters between the tags, and what the attributes say that people read."""
    xml = _without_cdata(xml)
    if "<table:table-cell" in xml:
        xml = EMPTY_CELL.sub(lambda cell: f"<v>{' '.join(CELL_VALUE.findall(cell[1]))}</v>", xml)
    attributes = "|".join(pattern for name, pattern in ATTRIBUTES.items() if name in xml)
    values = re.findall(rf"""\s(?:{attributes})=(?:"([^"]*)"|'([^']*)')""", xml) if attributes else ()
    said = [first or second for first, second in values]
    names, of_vml = {*NAME.findall(xml)}, "x:" if place.endswith(".vml") else "-"
    settings = [name for name in names if not SETTING_NAMES.isdisjoint((name, _local(name))) or name.startswith(of_vml)]
    if settings:
        xml = re.sub(rf"</?(?:{_any(settings)})(?:\s[^<>]*|/)?>[^<]+", "", xml)
    apart = _any(name for name in names if APART.fullmatch(_local(name)))
    if not HIDDEN.isdisjoint(names):
        said.append(_letters(OTHER_LETTERS.sub(r"\1\2", xml), apart))
        xml = HIDDEN_LETTERS.sub("", xml)
    return _unescaped(" ".join([_letters(xml, apart), *said]))


def _without_cdata(xml: str) -> str:
    """Returns XML with the letters of CDATA sections as others."""
    return CDATA.sub(lambda letters: escape(letters[1]), xml) if "<![CDATA[" in xml else xml


def _letters(xml: str, apart: str) -> str:
    """Returns the letters between the tags, and a space at tags of any of the names at which a word ends."""
    xml = xml[max(0, xml.find("<")) :]
    return TAG.sub("", re.sub(rf"<(?=/?(?:{apart})[\s/>])", " <", xml) if apart else xml)


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _any(names: Iterable[str]) -> str:
    """Returns a pattern for any of the names."""
    return "|".join(map(re.escape, sorted(names)))


def _cells(xml: str) -> tuple[str, list[str]]:
    """Returns the letters of a sheet, and the numbers of the texts that its cells share with others."""
    cells, rest = [*SHEET_END.split(_without_cdata(xml), maxsplit=1), ""][:2]
    pieces = SHARED_CELL.split(cells)
    cells = READING.sub("", " ".join(pieces[::2]))
    return " ".join([_unescaped(TAG.sub(" ", cells)), _text(rest)]), pieces[1::2]


def _shared_text(xml: str) -> str:
    """Returns the letters of a text that cells share; those of one run are the rule."""
    is_plain = xml.count("<") == 2
    return _unescaped(xml[xml.index(">") + 1 : xml.rindex("<")]) if is_plain else _text(READING.sub("", xml))


def _unescaped(text: str) -> str:
    text = unescape(text) if "&" in text else text
    return ESCAPED.sub(lambda code: chr(int(code[1], 16)), text) if "_x" in text else text
