"""Texts of users, documents and models in Markdown pages."""

MARKUP = frozenset("\\`*_{}[]<>()#|!~&")
"""Characters that begin markup, or end a cell of a table."""


def escaped(text: str) -> str:
    """A text on one line, with everything escaped that is markup or would end a cell."""
    return "".join(f"\\{letter}" if letter in MARKUP else letter for letter in " ".join(text.split()))
