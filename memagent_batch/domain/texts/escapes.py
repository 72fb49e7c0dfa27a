"""Texts of users, documents and models where they could act: in Markdown pages, and in cells of spreadsheets."""

import re

MARKUP = frozenset("\\`*_{}[]<>()#|!~&")
"""Characters that begin markup, or end a cell of a table."""
_STARTS_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")
"""What makes a program take text for a formula; also in full-width forms, and behind blanks, which some cut off."""
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
