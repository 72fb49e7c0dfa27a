"""Texts of models and documents on a terminal: on one line, cut, and without what would steer it."""


def cut(text: str, width: int) -> str:
    """The text on one line, without control characters, cut at a width in characters."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"
