"""Cells that a spreadsheet program would take for a formula, and run."""

import re

_STARTS_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")
"""What makes a program take text for a formula; also in full-width forms, and behind blanks, which some cut off."""
_PLAIN_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
"""Text that is a plain number can't be a formula."""


def is_formula(text: str) -> bool:
    """Whether a spreadsheet program could take the text for a formula."""
    return _STARTS_FORMULA.match(text) is not None and _PLAIN_NUMBER.fullmatch(text) is None
