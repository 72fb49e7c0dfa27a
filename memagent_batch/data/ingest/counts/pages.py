"""All that a page in HTML contains: its text, the attributes that people read, and the files in its addresses."""

import re
import zipfile
from base64 import b64decode
from binascii import Error
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from urllib.parse import unquote_to_bytes

from memagent_batch.data.ingest.counts.words import Content
from memagent_batch.data.ingest.readers.html import decode_page

SETTINGS = r"(?:=\s*+\"[^\"]*\"|=\s*+'[^']*'|[^>])*+"
RULES = re.compile(rf"<style\b{SETTINGS}(?<!/)>(.*?)</style", re.I | re.S)
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
BOOK_SETTINGS = re.compile(r"mimetype$|META-INF/|.*\.(opf|ncx|css|js|[ot]tf|woff2?|smil|pls|xpgt)$|.*iTunes", re.I)
"""Files of an electronic book that say how it looks, or in which order its pages come."""
DATA_URL = re.compile(r"data:(?:image/(?!svg)|audio/|video/|application/pdf)[^,\"'>)]*;base64,([^\"'>)]*)", re.I)


def html_contents(file: Path) -> Iterator[Content]:
    """Yields the contents of a page."""
    yield from page_contents(decode_page(file.read_bytes()).text)


def epub_contents(file: Path) -> Iterator[Content]:
    """Yields the contents of the pages of an electronic book, and its other files."""
    with zipfile.ZipFile(file) as book:
        for name in book.namelist():
            if name.endswith("/") or BOOK_SETTINGS.match(name):
                continue
            data = book.read(name)
            if re.search(rb"<(\w+:)?html\b", data[:4096], re.I):
                yield from page_contents(decode_page(data).text, place=f"{name}, ")
            else:
                yield Content(place=name, file=data)


def page_contents(page: str, *, place: str = "", is_alternative: bool = False) -> Iterator[Content]:
    """Yields the text of a page, its attributes and the files in its addresses.

    Args:
        page: the page.
        place: stands before the places.
        is_alternative: whether the page says again what other contents say.
    """
    rules = " ".join(RULES.findall(page)) if "base64" in page else ""
    page = SECTION.sub(lambda section: escape(section[1]), HIDDEN.sub(" ", page))
    tags = TAG.findall(page)
    readable = {tag: [*_readable(tag)] for tag in {*tags} if READABLE.search(tag) is not None}
    attributes = [attribute for tag in tags for attribute in readable.get(tag, ())]
    choices = ATTRIBUTE.findall(" ".join(CHOICES.findall(page)))
    attributes += (("value", "".join(values)) for name, *values in choices if name.lower() == "value")
    text = OTHER.sub("", APART.sub(" ", page))
    yield Content(place=f"{place}text", text=unescape(text), is_alternative=is_alternative)
    shown = unescape("\n".join(value for name, value in attributes if name != "srcdoc"))
    yield Content(place=f"{place}tooltips, labels and fields", text=shown, is_alternative=is_alternative)
    for name, value in attributes:
        if name == "srcdoc":
            yield from page_contents(unescape(value), place=f"{place}page inside, ", is_alternative=is_alternative)
    shown = f"{rules} {' '.join(tags)}" if "base64" in page else rules
    for data in DATA_URL.findall(shown):
        yield Content(place=f"{place}picture", file=_decode(data))


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
