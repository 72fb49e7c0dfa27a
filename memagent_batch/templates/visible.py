"""Shows what can't be seen: text of documents and models may hold NULs, and marks that turn the reading direction."""

import re

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Control and format characters, line and paragraph separators; not tab and line break.

Nor the zero-width joiners U+200C and U+200D, which Persian, Indic scripts and emoji are spelled with.
"""


def visible(text: str) -> str:
    """The text with a visible sign for each character that has none: ⟦U+0000⟧ for NUL, ⟦U+202E⟧ for a bidi override.

    A line end of Windows (CR, LF) becomes a line break.
    """
    return UNSEEN.sub(lambda found: f"⟦U+{ord(found.group()):04X}⟧", text.replace("\r\n", "\n"))


def shorten(text: str, *, characters: int) -> str:
    """The text, cut in its middle where it is longer; a note in its place says what was left out."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters not shown … {text[-half:]}"
