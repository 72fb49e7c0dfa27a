"""Pieces of the format codes of SpreadsheetML (ECMA-376, part 1, 18.8.31), and the language that a code asks for."""

import re
from collections.abc import Iterable, Sequence

Token = tuple[str, str]
"""A piece of a format code: its kind, which is the name of a group in `TOKENS`, and its text."""
TOKENS = re.compile(
    r"""
      "(?P<quoted>[^"]*)"?
    | \\(?P<escaped>.)
    | _(?P<blank>.)
    | \*(?P<fill>.)
    | \[\$(?P<currency>[^\]]*)\]
    | \[(?P<elapsed>h+|m+|s+)\]
    | \[(?P<condition>(?:<=|>=|<>|<|>|=)\s*-?(?:\d+\.?\d*|\.\d+)(?:E[+-]?\d{1,3})?)\]
    | \[(?P<colour>[^\]]*)\]
    | (?P<general>General)
    | (?P<halves>AM/PM|A/P)
    | (?P<exponent>E[+-])
    | (?P<subsecond>(?:(?<=s)|(?<=s\]))\.0+)
    | (?P<date>y+|m+|d+|h+|s+|a{3,4})
    | (?P<calendar>e+|g+|b+)
    | (?P<digit>[0\#?])
    | (?P<symbol>[.,%/@;])
    | (?P<literal>.)
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
LITERALS = {"quoted": "literal", "escaped": "literal"}
IGNORED = frozenset({"fill", "colour"})
MOST_CHARACTERS = 255
"""Longest format code that Excel takes."""

ENGLISH, LANGUAGE_BITS = 0x09, 0x3FF
"""Number of English, and the bits of a locale's number that name its language: `[$-409]` is that of the USA."""
CALENDAR_SHIFT = 16
"""Bits of a locale's number behind which its calendar and digits stand."""
COMMON_CALENDARS = frozenset({0x0000, 0x0100})
"""The Gregorian one with Western digits."""
SYSTEM_FORMATS = {"F800": "dddd, mmmm d, yyyy", "F400": "h:mm:ss AM/PM"}
"""What English Excel shows for the long date and the time of the computer, by their marks in codes."""
SYSTEM_NAMES = {"x-sysdate": "F800", "x-systime": "F400"}
OTHER_DIGITS = re.compile(r"\[DBNum\d", re.IGNORECASE)


def sections_of(code: str) -> list[list[Token]]:
    """Returns the pieces of each section of a code, without colours and fillings."""
    code = code if len(code) <= MOST_CHARACTERS else "General"
    sections: list[list[Token]] = [[]]
    for match in TOKENS.finditer(_without_system_formats(code)):
        kind = str(match.lastgroup)
        if match[0] == ";":
            sections.append([])
        elif kind not in IGNORED:
            sections[-1].append((LITERALS.get(kind, kind), match[kind]))
    return sections


def _without_system_formats(code: str) -> str:
    """Returns a code with the format that the computer has for dates or times in place of the mark that asks for it."""
    locale = re.match(r"\[\$-([^\]]*)\]", code)
    name = locale[1].lower() if locale else ""
    return SYSTEM_FORMATS.get(SYSTEM_NAMES.get(name, name.upper()), code)


def is_translated(code: str) -> bool:
    """Whether Excel shows numbers or dates in another language than English, in other digits or by another calendar."""
    if OTHER_DIGITS.search(code):
        return True
    tokens = [token for section in sections_of(code) for token in section]
    kinds = {kind for kind, _ in tokens}
    if {"calendar", "date"} <= kinds:
        return True
    has_names = "halves" in kinds or any(
        kind == "date" and len(text) > 2 and text[0] not in "yY" for kind, text in tokens
    )
    locales = [text.partition("-")[2] for kind, text in tokens if kind == "currency"]
    return any(_is_foreign(locale, has_names=has_names) for locale in locales if locale)


def _is_foreign(locale: str, *, has_names: bool) -> bool:
    try:
        number = int(locale, 16)
    except ValueError:  # a name such as de-DE
        return has_names and not locale.lower().startswith(("en", "x-"))
    is_english = number & LANGUAGE_BITS == ENGLISH
    return number >> CALENDAR_SHIFT not in COMMON_CALENDARS or (has_names and not is_english)


def literal(token: Token) -> str:
    """Returns what a piece shows that is no placeholder."""
    kind, text = token
    if kind == "blank":
        return " "
    return text.partition("-")[0] if kind == "currency" else text


def literals(tokens: Iterable[Token]) -> str:
    """Returns what pieces show that are no placeholders."""
    return "".join(map(literal, tokens))


def digits_range(tokens: Sequence[Token]) -> tuple[int, int]:
    """Returns where the placeholders of digits begin and end, with the signs between and at the end of them."""
    places = [index for index, (kind, _) in enumerate(tokens) if kind == "digit"]
    if not places:
        return len(tokens), len(tokens)
    begin, end = places[0], places[-1] + 1
    if begin and tokens[begin - 1] == ("symbol", "."):
        begin -= 1
    while end < len(tokens) and tokens[end] in {("symbol", ","), ("symbol", ".")}:
        end += 1
    if ("symbol", "/") in tokens[begin : end + 1]:
        while end < len(tokens) and (tokens[end][1] == "/" or tokens[end][1].isdecimal()):
            end += 1  # a fixed denominator, such as 16
    return begin, end
