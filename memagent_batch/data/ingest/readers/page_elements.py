"""Elements and styles of HTML: where blocks begin and end, and what is struck out, raised, numbered or a picture."""

import re

EDGE, CELL_END, ROW, ROW_END, GLUE = "\v", "\f", "\x1c", "\x1d", "\x1e"
"""Stand for the beginning or end of a block, for the end of a cell, for those of a row, and for what joins a number of
a list to the block behind it, until the text is put together."""
SECTIONS = ("article", "aside", "body", "div", "fieldset", "footer", "form", "header", "main", "nav", "section")
PARAGRAPHS = ("address", "blockquote", "center", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "p", "pre", "textarea")
LISTS = ("caption", "dd", "dir", "dl", "dt", "legend", "li", "menu", "ol", "table", "ul")
OPENED = ("details", "dialog", "figcaption", "figure", "hgroup", "search", "summary", "iframe", "video", "audio")
BREAK_TAGS = {
    **dict.fromkeys((*SECTIONS, *PARAGRAPHS, *LISTS, *OPENED), (EDGE, EDGE)),
    "tr": (ROW, ROW_END),
    "br": ("\n", ""),
    "q": ('"', '"'),
    "button": (" ", " "),
    "text": (" ", " "),
    "li": (EDGE, EDGE),
}
"""What stands for an element's beginning and end."""
BLOCK_STYLE = re.compile(r"display\s*:\s*(?:block|flex|grid|list-item|table|table-row)\s*(?:;|!|$)", re.I)
CELL_STYLE = re.compile(r"display\s*:\s*(?:inline-block|inline-flex|inline-grid|table-cell)", re.I)
FONT_STYLE = re.compile(
    r"font-family\s*:\s*[\"']?([^;,\"']+)|(?<![\w-])font\s*:[^;]*?[\"']?(wingdings[ 23]*|symbol)\b", re.I
)
LIST_STYLE = re.compile(r"list-style(?:-type)?\s*:[^;]*?(none|(?:lower|upper)-(?:alpha|latin|roman))", re.I)
STRUCK_STYLE = re.compile(r"text-decoration(?:-line)?\s*:[^;]*line-through", re.I)
RAISED_STYLE = re.compile(r"vertical-align\s*:\s*(super|sub)\b", re.I)
SELECTOR = re.compile(r"([\w-]*)(?:\.([\w-]+)|#([\w-]+))?")
PICTURE_STYLE = re.compile(
    r"(?:background|background-image|content|list-style|list-style-image|border-image|mask|mask-image)\s*:[^;{}]*?"
    r"url\(\s*(?:\"([^\"]*)\"|'([^']*)'|([^)\"'\s]+))",
    re.I,
)
STRUCK_TAGS = frozenset({"del", "s", "strike"})
NUMBER_FORMATS = {"a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"} | {
    "lower-alpha": "lowerLetter",
    "lower-latin": "lowerLetter",
    "upper-alpha": "upperLetter",
    "upper-latin": "upperLetter",
    "lower-roman": "lowerRoman",
    "upper-roman": "upperRoman",
    "none": "none",
}
"""Formats of numbers of a list, as `type` or a style names them."""
