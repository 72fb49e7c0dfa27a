"""All that a page in HTML contains: its text, the attributes that people read, and the files in its addresses."""

import re
import zipfile
from base64 import b64decode
from binascii import Error
from collections.abc import Iterator, Mapping
from html import escape, unescape
from pathlib import Path
from urllib.parse import unquote_to_bytes

from memagent_batch.data.ingest.counts.words import Content
from memagent_batch.data.ingest.readers.html import decode_page

SETTINGS = r"(?:=\s*+\"[^\"]*\"|=\s*+'[^']*'|[^>])*+"
RULES = re.compile(rf"<style\b{SETTINGS}(?<!/)>(.*?)</style", re.I | re.S)
DISPLAY = re.compile(r"(?:^|[;\s\"'{])display\s*:\s*(?!inline\s*(?:[;!\"'}]|$)|none|contents|inherit|-)([a-z-]+)", re.I)
"""A way to show an element beside which a word ends."""
CONTENT = re.compile(r"(?:^|[;\s])content\s*:\s*(?!none|normal)", re.I)
"""Words that a rule writes, beside which a word ends."""
LAST_NAME = re.compile(r"([.#]?[\w-]+)(?:[:\[][^\s>+~]*)?\s*$")
"""A class, id or tag of the elements that a selector names."""
UNCLOSED = frozenset(
    {"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
)
HIDDEN = re.compile(
    rf"<!--(?:-?>|.*?(?:--!?>|\Z))|<(script|style)\b{SETTINGS}(?<!/)>.*?(?:</\1\b[^>]*+(?:>|\Z)|\Z)", re.I | re.S
)
"""What of a page is no text, and may look like a tag."""
SECTION = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.S)
TAG = re.compile(rf"<[a-z]{SETTINGS}(?:>|\Z)", re.I)
APART = re.compile(
    r"</?(?:address|area|article|aside|audio|blockquote|body|br|button|canvas|caption|center|dd|details|dialog|dir|div|dl"
    r"|dt|embed|fieldset|figcaption|figure|footer|form|frame|h[1-6]|head|header|hgroup|hr|html|iframe|image|img|input"
    r"|label|legend|li|main|menu|meter|nav|object|ol|optgroup|option|p|pre|progress|rp|rt|script|search|section|select"
    rf"|style|summary|svg|table|tbody|td|text|textarea|tfoot|th|thead|title|tr|ul|video)(?=[\s/>]){SETTINGS}>",
    re.I,
)
"""Tags at which a word ends."""
OTHER = re.compile(rf"<(?:[a-z]{SETTINGS}|[!?/][^>]*+)(?:>|\Z)", re.I)
READABLE = re.compile(
    r"\b(?:alt|title|placeholder|value|label|summary|abbr|standby|srcdoc|aria-(?:label|description|placeholder"
    r"|valuetext|roledescription))\s*=",
    re.I,
)
ATTRIBUTE = re.compile(r"([^\s=/\"'>]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
UNREADABLE_TAGS = frozenset({"html", "head", "link", "meta"})
"""Tags whose attributes no browser shows."""
FIELDS = frozenset({"", "text", "search", "tel", "url", "email", "number", "range", "date", "datetime", "month"}) | {
    *("week", "time", "datetime-local", "submit", "reset", "button")
}
"""Types of fields whose values a browser shows."""
CHOICES = re.compile(r"<datalist\b(.*?)</datalist", re.I | re.S)
"""What a browser proposes for a field: the values of its options."""
NAME_CHARACTERS = 200
"""Characters of a selector among which the last name is."""
MOST_OPEN = 100
"""Open elements that are remembered: those that pages do not close pile up."""
BOOK_SETTINGS = re.compile(r"mimetype$|META-INF/|.*\.(opf|ncx|css|js|[ot]tf|woff2?|smil|pls|xpgt)$|.*iTunes", re.I)
"""Files of an electronic book that say how it looks, or in which order its pages come."""
DATA_URL = re.compile(r"data:(?:image/(?!svg)|audio/|video/|application/pdf)[^,\"'>)]*;base64,([^\"'>)]*)", re.I)


def html_contents(file: Path) -> Iterator[Content]:
    """Yields the contents of a page."""
    yield from page_contents(decode_page(file.read_bytes()).text)


def epub_contents(file: Path) -> Iterator[Content]:
    """Yields the contents of the pages of an electronic book, and its other files."""
    with zipfile.ZipFile(file) as book:
        sheets = [book.read(name).decode("utf-8", "replace") for name in book.namelist() if name.endswith(".css")]
        for name in book.namelist():
            if name.endswith("/") or BOOK_SETTINGS.match(name):
                continue
            data = book.read(name)
            if re.search(rb"<(\w+:)?html\b", data[:4096], re.I):
                yield from page_contents(decode_page(data).text, place=f"{name}, ", style_sheets=" ".join(sheets))
            else:
                yield Content(place=name, file=data)


def page_contents(
    page: str, *, place: str = "", is_alternative: bool = False, style_sheets: str = ""
) -> Iterator[Content]:
    """Yields the text of a page, its attributes and the files in its addresses.

    Args:
        page: the page.
        place: stands before the places.
        is_alternative: whether the page says again what other contents say.
        style_sheets: the rules that it links to.
    """
    rules = " ".join(RULES.findall(page)) if re.search("base64|display|content", page) else ""
    page = SECTION.sub(lambda section: escape(section[1]), HIDDEN.sub(" ", page))
    tags = TAG.findall(page)
    readable = {tag: [*_readable(tag)] for tag in {*tags} if READABLE.search(tag) is not None}
    attributes = [attribute for tag in tags for attribute in readable.get(tag, ())]
    choices = ATTRIBUTE.findall(" ".join(CHOICES.findall(page)))
    attributes += (("value", "".join(values)) for name, *values in choices if name.lower() == "value")
    text = _without_tags(page, f"{rules} {style_sheets}")
    yield Content(place=f"{place}text", text=unescape(text), is_alternative=is_alternative)
    shown = unescape("\n".join(value for name, value in attributes if name != "srcdoc"))
    yield Content(place=f"{place}tooltips, labels and fields", text=shown, is_alternative=is_alternative)
    for name, value in attributes:
        if name == "srcdoc":
            yield from page_contents(unescape(value), place=f"{place}page inside, ", is_alternative=is_alternative)
    shown = f"{rules} {' '.join(tags)}" if "base64" in page else rules
    for data in DATA_URL.findall(shown):
        yield Content(place=f"{place}picture", file=_decode(data))


def _without_tags(page: str, rules: str) -> str:
    """Returns the text of a page, with blanks where tags or rules end a word."""
    displays = _displays(rules) if "display" in rules or "content" in rules else {}
    if not displays and DISPLAY.search(page) is None:
        return OTHER.sub("", APART.sub(" ", page))
    pieces, end = list[str](), 0
    around = list[tuple[str, bool, bool]]()
    """Tags of the open elements, whether a word ends at each, and at each inside it."""
    for found in OTHER.finditer(page):
        pieces.append(page[end : found.start()])
        tag, end = found[0], found.end()
        name = re.split(r"[\s/>]", tag.lstrip("</"), maxsplit=1)[0].lower()
        is_end = APART.match(tag) is not None
        if tag.startswith("</"):
            place = next((place for place in range(len(around) - 1, -1, -1) if around[place][0] == name), len(around))
            is_end |= any(ends for _, ends, _ in around[place:])
            del around[place:]
        elif tag[1].isalpha():
            shown = _display(tag, name, displays)
            ends = bool(shown or (around and around[-1][2]))
            is_end |= ends
            if name not in UNCLOSED and not tag.endswith("/>"):
                around = [*around[-MOST_OPEN:], (name, ends, shown.endswith(("flex", "grid")))]
        pieces.append(" " if is_end else "")
    return "".join([*pieces, page[end:]])


def _displays(rules: str) -> dict[str, str]:
    """Returns how classes, ids and tags are shown beside which a word ends."""
    displays = dict[str, str]()
    for rule in rules.split("}"):
        head, _, declarations = rule.rpartition("{")
        display = DISPLAY.search(declarations) or CONTENT.search(declarations)
        for selector in head.rpartition("{")[2].split(",") if display is not None else ():
            name = LAST_NAME.search(selector[-NAME_CHARACTERS:])
            if name is not None and display is not None:
                displays[name[1]] = display[1].lower() if display.re is DISPLAY else displays.get(name[1], "content")
    return displays


def _display(tag: str, name: str, displays: Mapping[str, str]) -> str:
    """Returns how an element is shown, by its attributes or rules; empty if words go on beside it."""
    values = {found[1].lower(): found[2] or found[3] or found[4] or "" for found in ATTRIBUTE.finditer(tag)}
    inline = DISPLAY.search(unescape(values.get("style", "")))
    names = [f"#{values.get('id', '')}", *(f".{each}" for each in values.get("class", "").split()), name]
    return inline[1].lower() if inline is not None else next((displays[each] for each in names if each in displays), "")


def _readable(tag: str) -> Iterator[tuple[str, str]]:
    """Yields the names and values of attributes that people read."""
    name = re.split(r"[\s/>]", tag[1:], maxsplit=1)[0].lower()
    values = {found[1].lower(): found[2] or found[3] or found[4] or "" for found in ATTRIBUTE.finditer(tag)}
    kind = values.get("type", "").lower() if name == "input" else None
    if kind not in FIELDS:
        values.pop("value", None)
    if kind not in (None, "image"):
        values.pop("alt", None)
    if name not in UNREADABLE_TAGS:
        yield from ((name, value) for name, value in values.items() if READABLE.fullmatch(f"{name}="))


def _decode(data: str) -> bytes:
    try:
        return b64decode(unquote_to_bytes(data) + b"==")
    except Error:
        return b""
