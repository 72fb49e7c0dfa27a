"""Texts of users, documents and models in Markdown pages."""

import re

MARKUP = frozenset("\\`*_{}[]<>()#|!~&")
"""Characters that begin markup, or end a cell of a table."""


def escaped(text: str) -> str:
    """A text on one line, with everything escaped that is markup or would end a cell."""
    return "".join(f"\\{letter}" if letter in MARKUP else letter for letter in " ".join(text.split()))


def unescaped(page: str) -> str:
    """A page whose texts were `escaped`, for a terminal."""
    return re.sub(rf"\\([{re.escape(''.join(sorted(MARKUP)))}])", r"\1", page)
