"""HTML by lxml: all that a reader sees, in the order of the page."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from memagent_batch.data.ingest.readers.charsets import Decoded, decode_text, find_codec, is_ascii_label
from memagent_batch.data.ingest.readers.converter import (
    WHOLE_SOURCE,
    Attachment,
    BuiltIn,
    Part,
    PartStatus,
    picture_parts,
)
from memagent_batch.data.ingest.readers.page_reader import visible_text
from memagent_batch.data.ingest.readers.text import doubtful
from memagent_batch.data.ingest.readers.visible_text import VisibleText

SCRIPTED_CHARACTERS = 200
"""Characters of a page with scripts below which the scripts may write most of it."""
INNER_PAGES_UNREAD = "other pages, which it shows inside, are not read"
SCRIPTS_UNRUN = "scripts, which are not run, may write its text; save the page as PDF"

MEDIA_UNREAD = {
    "video": "a video, which is not read; add what is said in it as text",
    "audio": "a sound recording (audio), which is not read; add what is said in it as text",
    "canvas": "a drawing by scripts (canvas), which is not read; save the page as PDF",
}
NAMED_PICTURES, NAME_CHARACTERS = 5, 60
"""Pictures that a reason names, and the longest name there."""

CHARSET = re.compile(rb"<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]+)", re.I)
ENCODING_BYTES = 4 << 10
"""Bytes of a page among which it names its character set."""


class HtmlConverter(BuiltIn):
    """A page is one part: headers, footers and menus too, for nobody can know where its contract stands."""

    package, revision, modules = "lxml", 11, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields the text, a part for each picture that the page holds, and one for each kind of thing left unread."""
        page = decode_page(file.read_bytes())
        seen = visible_text(page.text)
        is_titled = seen.title in seen.text
        text = seen.text if is_titled else f"{seen.title}\n\n{seen.text}".strip()
        left_out = "\n".join([*seen.left_out, seen.title if is_titled else ""])
        doubt = "; ".join(filter(None, (page.doubt, seen.doubt))) or None
        yield from doubtful([Part(locator=WHOLE_SOURCE, text=text, left_out=left_out)], doubt)
        yield from unread_parts(seen)


def unread_parts(seen: VisibleText, *, place: str = "") -> Iterator[Part]:
    """Yields a part for each picture that a page holds, and one for each kind of thing that is not read.

    Args:
        seen: the page.
        place: stands before the locators.
    """
    for number, picture in enumerate(seen.pictures, start=1):
        yield from picture_parts(f"{place}picture {number}", picture)
    reasons = {
        "outside pictures": outside_pictures_reason(seen.outside_pictures) if seen.outside_pictures else None,
        **{kind: MEDIA_UNREAD[kind] for kind in seen.media},
        "inner pages": INNER_PAGES_UNREAD if seen.inner_pages else None,
        "scripts": SCRIPTS_UNRUN if seen.has_script and len(seen.text) < SCRIPTED_CHARACTERS else None,
    }
    for locator, reason in reasons.items():
        if reason is not None:
            yield Part(locator=f"{place}{locator}", status=PartStatus.SKIPPED, reason=reason)
    if seen.failure is not None:
        yield Part(locator=f"{place}rest of the page", status=PartStatus.FAILED, reason=seen.failure)


def outside_pictures_reason(addresses: Sequence[str]) -> str:
    """Returns what is said of pictures that a page shows and does not hold."""
    names = [*dict.fromkeys(address.rpartition("/")[2][:NAME_CHARACTERS] or address for address in addresses)]
    more = f" and {len(names) - NAMED_PICTURES} more" if len(names) > NAMED_PICTURES else ""
    shown = ", ".join(names[:NAMED_PICTURES])
    return f"pictures that it shows and does not hold ({shown}{more}) are not read; save it as PDF to have them read"


def decode_page(data: bytes, *, label: str | None = None) -> Decoded:
    """Decodes a page by its byte order mark, by a label, or as `decode_text` does without a label.

    Args:
        data: the page as bytes.
        label: the charset that a header of HTTP or MIME names. If it names none that is known, the one in the page
            counts.

    Raises:
        ConversionError: the bytes are not text.
    """
    if label is not None and (is_ascii_label(label) or find_codec(label) is None):
        label = None
    named = CHARSET.search(data[:ENCODING_BYTES]) if label is None else None
    if named is not None:
        label = named[1].decode("ascii")
        if (find_codec(label) or "").startswith("utf-16"):  # the declaration could be read, so it is wrong
            label = "utf-8"
    return decode_text(data, label=label)
