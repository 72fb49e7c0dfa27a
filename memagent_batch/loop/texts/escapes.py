"""Texts of users, documents and models where they could act: in Markdown, in cells of spreadsheets, or unseen."""

import re

MARKUP = frozenset("\\`*_{}[]<>()#|!~&")
"""Characters that begin markup, or end a cell of a table."""
FORMULA_SIGNS = "=+-@＝＋－＠"
"""What makes a program take text for a formula; also in full-width forms."""
_STARTS_FORMULA = re.compile(rf"[\s\ufeff]*[{re.escape(FORMULA_SIGNS)}]|[\t\r\n]")
"""The beginning of a formula: also behind blanks, which some programs cut off."""
_PLAIN_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
"""Text that is a plain number can't be a formula."""


def escaped(text: str) -> str:
    """A text on one line, with everything escaped that is markup or would end a cell."""
    return "".join(f"\\{letter}" if letter in MARKUP else letter for letter in " ".join(text.split()))


def unescaped(page: str) -> str:
    """A page whose texts were `escaped`, for a terminal."""
    return re.sub(rf"\\([{re.escape(''.join(sorted(MARKUP)))}])", r"\1", page)


def is_formula(text: str) -> bool:
    """Whether a spreadsheet program could take the text for a formula."""
    return _STARTS_FORMULA.match(text) is not None and _PLAIN_NUMBER.fullmatch(text) is None


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
