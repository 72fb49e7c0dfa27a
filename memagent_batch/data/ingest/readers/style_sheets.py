"""Style sheets of a page: what their rules say of an element, as far as that changes its words or where they end.

Sources: CSS Syntax 3 (rules), Selectors 4, CSS Cascade 5.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

Style = Mapping[str, str]
"""Values of properties, in small letters but for texts in quotation marks."""

PROPERTIES = frozenset({"display", "float", "position", "top", "font-size", "font-family", "vertical-align", "content"})
PROPERTIES |= {"text-decoration", "list-style-type", "counter-reset", "counter-increment", "counter-set", "visibility"}
SAME_AS = {"text-decoration-line": "text-decoration", "list-style": "list-style-type", "font": "font-family"}
DECISIVE = PROPERTIES - {"position", "top", "font-size", "visibility"}
"""Properties without which a rule changes no word; a shift up or down is one too."""
SIGN = re.compile(
    r"\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|url\(\s*+[^\"'\s()]++\s*+\)|\\.|[{};]|/\*.*?(?:\*/|\Z)|<!--|-->",
    re.S,
)
"""Where a rule or declaration begins or ends, and what may only look like it."""
IGNORED = re.compile(r"(\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')|/\*.*?(?:\*/|\Z)|<!--|-->", re.S)
IMPORTANT = re.compile(r"\s*!\s*important\s*$", re.I)
NAME = r"(?:[\w-]|[^\x00-\x7f]|\\[0-9a-fA-F]{1,6}\s?|\\[^\n])+"
PIECE = re.compile(
    rf"(?P<combinator>\s*[>+~]\s*|\s+)|(?:\*|{NAME})?\|(?!=)|\*|(?P<tag>{NAME})|#(?P<id>{NAME})|\.(?P<class>{NAME})"
    rf"|\[\s*(?P<attribute>{NAME})\s*(?:(?P<how>[~|^$*]?=)\s*(?P<value>\"[^\"]*\"|'[^']*'|{NAME})\s*[iIsS]?\s*)?\]"
    r"|(?P<colons>::?)(?P<pseudo>[\w-]+)(?:\((?P<inside>[^()]*(?:\([^()]*\)[^()]*)*)\))?"
)
"""A piece of a selector."""
BRACKETS = re.compile(r"[,()\[\]]")
ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(\n)|(.))", re.S)
GENERATED = frozenset({"before", "after", "marker"})
"""Parts of an element in which a rule may write."""
CONTENT = re.compile(
    r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([\w-]+|/)(?:\(((?:[^()\"']|\"[^\"]*\"|'[^']*'|\([^()]*\))*)\))?", re.S
)
"""A piece of what `content` writes: a text, or a word or function."""
ALWAYS = frozenset({"link", "any-link", "enabled", "defined", "read-only", "scope"})
STRUCTURAL = frozenset({"first-child", "last-child", "only-child", "root"})
UNKNOWN = re.compile(r"nth-|(?:first|last|only)-of-type|empty|not|is|where|has|lang|dir|matches|any")
"""States that depend on more than the element itself; the others depend on what a visitor does."""
SHOWN_ELSEWHERE = re.compile(
    r"(?<!not )\b(?:print|speech|aural|embossed|braille|tty)\b(?!.*\b(?:screen|all)\b)|max-width", re.I
)
"""Conditions of rules for print, or for small screens."""
GROUPS = ("@media", "@supports", "@layer", "@container", "@scope", "@document", "@-moz-document", "@starting-style")
IMPORT = re.compile(r"@import\s+(?:url\()?\s*[\"']?([^\"')\s;]+)[\"']?\s*\)?([^;]*)", re.I)
MOST_SELECTORS, LONG_SELECTOR = 30, 300
"""Selectors of a rule inside another one that are read, and the longest one around it in characters."""


def parse_declarations(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Parses `name: value; ...`; returns the values of `PROPERTIES` by name, without `!important` and with it."""
    pieces, start = list[str](), 0
    for sign in SIGN.finditer(text):
        if sign[0] == ";":
            pieces.append(text[start : sign.start()])
            start = sign.end()
    return _values([*pieces, text[start:]])


def _values(declarations: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    ordinary, important = dict[str, str](), dict[str, str]()
    for declaration in declarations:
        name, _, value = IGNORED.sub(lambda sign: sign[1] or " ", declaration).partition(":")
        name = name.strip().lower()
        name = SAME_AS.get(name, name)
        is_text = name == "content" or name.startswith("--")
        if (name in PROPERTIES or is_text) and not (name == "display" and value.lstrip().startswith("-")):
            values = important if IMPORTANT.search(value) else ordinary
            value = IMPORTANT.sub("", value).strip()
            values[name] = value if is_text else value.lower()
    return ordinary, important


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compound:
    """Conditions on one element."""

    tag: str = ""
    names: frozenset[str] = frozenset()
    """Its classes with a full stop before them, and its id with a `#`."""
    attributes: tuple[tuple[str, str, str], ...] = ()
    states: tuple[str, ...] = ()

    def fits(self, element: Any) -> bool:
        if self.tag and self.tag != element.tag:
            return False
        if self.names and not self.names <= _names(element.get("class") or "", element.get("id") or ""):
            return False
        return all(_has(element, *each) for each in self.attributes) and all(
            _is_state(element, state) for state in self.states
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """What a style sheet says of the elements that a selector names."""

    selector: str
    parts: tuple[_Compound, ...]
    is_child: tuple[bool, ...]
    """Of each part but the last, whether the next one is a child of it, and not only inside."""
    is_certain: bool
    """Whether all of the selector is understood; otherwise it may name fewer elements."""
    pseudo: str
    """`before`, `after` or `marker` if it is about what is written there; otherwise empty."""
    ordinary: Style
    important: Style
    rank: tuple[tuple[int, int, int], int]

    @property
    def name_around(self) -> str:
        """The name of an element that must be around, the next one with a class or id if there is one; or nothing."""
        around = self.parts[-2::-1]
        names = (name for part in around for name in sorted(part.names))
        return next(names, None) or next((part.tag for part in around if part.tag), "")

    def fits_around(self, element: Any) -> bool:
        """Returns whether the elements around one that the last part fits are as the selector says."""
        pending, element = {len(self.parts) - 2} - {-1}, element.getparent()
        if not pending:
            return True
        while element is not None and pending:
            fitting = {place for place in pending if self.parts[place].fits(element)}
            if 0 in fitting:
                return True
            pending = {place - 1 for place in fitting} | {place for place in pending if not self.is_child[place]}
            element = element.getparent()
        return False


class StyleSheets:
    """The rules of all style sheets of a page, found by the tag, classes and id of an element."""

    def __init__(self, sheets: Sequence[str]) -> None:
        self._rules: dict[str, dict[str, list[Rule]]] = {}
        """Rules by a name of their elements, then by one of an element around it."""
        self.texts: dict[str, set[str]] = {}
        """Values of variables."""
        number = 0
        for selectors, declarations in (rule for sheet in sheets for rule in parse_rules(sheet)):
            ordinary, important = _values(declarations)
            for name, value in (ordinary | important).items():
                if name.startswith("--"):
                    self.texts.setdefault(name, set()).add(value)
            names = {*ordinary, *important}
            if not names & DECISIVE and not {"top", "position"} <= names:
                continue
            for selector in selectors:
                number += 1
                rule = _parse_selector(selector, ordinary, important, number)
                if rule is not None:
                    last = rule.parts[-1]
                    key = next(iter(sorted(last.names)), last.tag)
                    self._rules.setdefault(key, {}).setdefault(rule.name_around, []).append(rule)
        self._merged: dict[tuple[int, ...], Style] = {}

    def names(self, element: Any, around: frozenset[str]) -> frozenset[str]:
        """Returns the tags, classes and ids of an element and of those around it, whose names are given."""
        if not self._rules:
            return around
        own = _names(element.get("class") or "", element.get("id") or "", element.tag)
        return around if own <= around else around | own

    def rules(self, element: Any, around: frozenset[str]) -> list[Rule]:
        """Returns the rules about an element, those that win last.

        Args:
            element: the element.
            around: the names of the elements around it.
        """
        if not self._rules:
            return []
        own = _names(element.get("class") or "", element.get("id") or "", element.tag, "")
        rules = [
            rule
            for candidates in (self._rules[name] for name in own & self._rules.keys())
            for name in candidates.keys() & around
            for rule in candidates[name]
            if rule.parts[-1].fits(element) and rule.fits_around(element)
        ]
        return sorted(rules, key=lambda rule: rule.rank) if len(rules) > 1 else rules

    def merge(self, rules: Sequence[Rule], inline: str = "") -> Style:
        """Returns the values that win.

        Args:
            rules: rules about an element, those that win last.
            inline: the declarations of its attribute `style`.
        """
        key = tuple(rule.rank[1] for rule in rules)
        if not inline and key in self._merged:
            return self._merged[key]
        ordinary, important = parse_declarations(inline) if inline else ({}, {})
        style = dict[str, str]()
        for rule in rules:
            style |= rule.ordinary
        style |= ordinary
        for rule in rules:
            style |= rule.important
        style |= important
        if not inline:
            self._merged[key] = style
        return style


def parse_rules(sheet: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yields the selectors and declarations of the rules that count on a large screen."""
    groups: list[tuple[list[str] | None, list[str]]] = [([], [])]
    """Blocks that have not ended: the selectors of each (None if its rules are ignored), and its declarations."""
    start = 0
    for sign in SIGN.finditer(sheet):
        if sign[0] not in ("{", "}", ";"):
            continue
        text, start = sheet[start : sign.start()], sign.end()
        selectors, declarations = groups[-1]
        if sign[0] == "{":
            groups.append((_opened(text, selectors), []))
            continue
        declarations.append(text)
        if sign[0] == "}" and len(groups) > 1:
            groups.pop()
            if selectors:
                yield selectors, declarations
    while len(groups) > 1:  # the end of the sheet is missing
        selectors, declarations = groups.pop()
        if selectors:
            yield selectors, [*declarations, sheet[start:]]


def _opened(text: str, around: list[str] | None) -> list[str] | None:
    """Returns the selectors of a block that begins; none for a group of rules, None if nothing in it counts."""
    prelude = IGNORED.sub(lambda sign: sign[1] or " ", text).strip()
    if (
        around is None
        or len("".join(around[:1])) > LONG_SELECTOR
        or (prelude.startswith("@") and not prelude.lower().startswith(GROUPS))
    ):
        return None
    if prelude.startswith("@"):
        return None if is_shown_elsewhere(prelude) else around
    selectors = [*_split_selectors(prelude)]
    if not around:
        return selectors
    return [
        selector.replace("&", outer) if "&" in selector else f"{outer} {selector}"
        for outer in around[:MOST_SELECTORS]
        for selector in selectors[:MOST_SELECTORS]
    ]


def _split_selectors(prelude: str) -> Iterator[str]:
    """Yields the selectors of a rule, which commas outside of brackets part."""
    start = depth = 0
    for sign in BRACKETS.finditer(prelude):
        if sign[0] == "," and depth == 0:
            yield prelude[start : sign.start()].strip()
            start = sign.end()
        elif sign[0] != ",":
            depth += 1 if sign[0] in "([" else -1
    yield prelude[start:].strip()


def is_shown_elsewhere(condition: str) -> bool:
    """Returns whether rules with this condition are only for print or for small screens."""
    return SHOWN_ELSEWHERE.search(condition) is not None


def imported_sheets(sheet: str) -> Iterator[str]:
    """Yields the addresses of the style sheets that one imports."""
    for found in IMPORT.finditer(IGNORED.sub(lambda sign: sign[1] or " ", sheet)) if "@import" in sheet else ():
        if not is_shown_elsewhere(found[2]):
            yield found[1]


def unescape(text: str) -> str:
    """Returns a name or text without its escapes."""

    def character(escape: re.Match[str]) -> str:
        code = int(escape[1], 16) if escape[1] else 0
        return (
            (chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "") if escape[1] else escape[3] or ""
        )

    return ESCAPE.sub(character, text) if "\\" in text else text


def _parse_selector(selector: str, ordinary: Style, important: Style, number: int) -> Rule | None:
    """Returns a rule; None if it is about no element as it is first shown."""
    parsed = _SelectorParser()
    place = 0
    while place < len(selector):
        piece = PIECE.match(selector, place)
        if piece is None or not parsed.add(piece):
            return None
        place = piece.end()
    parts = parsed.finish()
    names = [name for part in parts for name in part.names]
    weights = (
        sum(name[0] == "#" for name in names),
        sum(name[0] == "." for name in names) + sum(len(part.attributes) + len(part.states) for part in parts),
        sum(bool(part.tag) for part in parts),
    )
    return Rule(
        selector=selector,
        parts=parts,
        is_child=tuple(parsed.is_child),
        is_certain=parsed.is_certain,
        pseudo=parsed.pseudo,
        ordinary=ordinary,
        important=important,
        rank=(weights, number),
    )


class _SelectorParser:
    """Takes a selector piece by piece."""

    def __init__(self) -> None:
        self.parts: list[_Compound] = []
        self.is_child: list[bool] = []
        self.is_certain, self.pseudo = True, ""
        self._clear()

    def _clear(self) -> None:
        self._tag, self._names = "", set[str]()
        self._attributes, self._states = list[tuple[str, str, str]](), list[str]()

    def finish(self) -> tuple[_Compound, ...]:
        """Returns the conditions on the element, after those on the ones around it."""
        self._end_part()
        return tuple(self.parts)

    def _end_part(self) -> None:
        self.parts.append(
            _Compound(
                tag=self._tag,
                names=frozenset(self._names),
                attributes=tuple(self._attributes),
                states=tuple(self._states),
            )
        )
        self._clear()

    def add(self, piece: re.Match[str]) -> bool:
        """Takes a piece; returns whether the selector can name an element as it is first shown."""
        match piece.lastgroup:
            case "combinator":
                self._combine(piece["combinator"].strip())
            case "tag":
                self._tag = unescape(piece["tag"]).lower()
            case "id":
                self._names.add(f"#{unescape(piece['id'])}")
            case "class":
                self._names.add(f".{unescape(piece['class'])}")
            case "attribute" | "value":
                value = unescape((piece["value"] or "").strip("\"'"))
                self._attributes.append((unescape(piece["attribute"]).lower(), piece["how"] or "", value))
            case "pseudo" | "inside":
                return self._add_state(piece["pseudo"].lower(), piece["colons"], piece["inside"])
        return True

    def _combine(self, combinator: str) -> None:
        if combinator in ("", ">"):
            self._end_part()
            self.is_child.append(combinator == ">")
        else:  # what stands before the element is not looked at
            self.is_certain = False
            self._clear()

    def _add_state(self, name: str, colons: str, inside: str | None) -> bool:
        if name in GENERATED:
            self.pseudo = name
        elif colons == "::" or name.startswith("-"):
            return False
        elif name in STRUCTURAL:
            self._states.append(name)
        elif inside is not None and name == "not" and re.fullmatch(r"\s*:[a-z-]+\s*", inside):
            return inside.strip()[1:] not in ALWAYS  # such as :not(:hover)
        elif UNKNOWN.match(name):
            self.is_certain = False
        else:
            return name in ALWAYS
        return True


@lru_cache(maxsize=4096)
def _names(classes: str, identifier: str, *more: str) -> frozenset[str]:
    return frozenset([*(f".{name}" for name in classes.split()), *([f"#{identifier}"] if identifier else []), *more])


def _has(element: Any, name: str, how: str, wanted: str) -> bool:
    value = element.get(name)
    if value is None or not how:
        return value is not None
    match how:
        case "=":
            return bool(value == wanted)
        case "~=":
            return wanted in value.split()
        case "|=":
            return bool(value == wanted or value.startswith(f"{wanted}-"))
        case "^=":
            return bool(wanted and value.startswith(wanted))
        case "$=":
            return bool(wanted and value.endswith(wanted))
    return bool(wanted and wanted in value)


def _is_state(element: Any, state: str) -> bool:
    if state == "root":
        return element.getparent() is None
    is_first, is_last = element.getprevious() is None, element.getnext() is None
    return {"first-child": is_first, "last-child": is_last}.get(state, is_first and is_last)


@cache
def content_pieces(content: str) -> tuple[tuple[str, str], ...]:
    """Splits a value of `content` into texts, functions with what is in their brackets, and words."""
    return tuple(
        ("text", unescape(piece[1] or piece[2] or "")) if piece[3] is None else (piece[3].lower(), piece[4] or "")
        for piece in CONTENT.finditer(content)
    )
