"""Symbol fonts: what the positions of Symbol, Wingdings, Webdings and Zapf Dingbats are in Unicode."""

from collections.abc import Mapping

from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED

UNKNOWN_SYMBOL = "\N{REPLACEMENT CHARACTER}"
"""Stands for a symbol that only its font knows."""
SYMBOL_NOTE = "symbols that only their font knows are shown as U+FFFD"
CROSSED = "\N{BALLOT BOX WITH X}"
BOXES = frozenset({CHECKED, CROSSED, UNCHECKED, *"✓✔✗✘"})
"""Symbols by which forms are filled in."""
PRIVATE = range(0xE000, 0xF900)
"""Characters without a meaning in Unicode."""
PRIVATE_POSITIONS = range(0xF000, 0xF100)
"""Where Office writes the positions of a symbol font."""


def _table(*stretches: tuple[int, str]) -> dict[int, str]:
    """Returns a font's characters by position; a stretch is its first position and the characters from there on."""
    return {first + index: sign for first, signs in stretches for index, sign in enumerate(signs)}


FONTS: dict[str, Mapping[int, str]] = {
    "symbol": _table(
        (0x20, " !∀#∃%&∋()∗+,−./0123456789:;<=>?"),
        (0x40, "≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_"),
        (0x60, "‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"),
        (0xA0, "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵"),
        (0xC0, "ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓"),
        (0xE0, "◊⟨®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪"),
        (0xF1, "⟩∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭"),
    ),
    "wingdings": _table(
        (0x20, " ✏✂✁"),
        (0x28, "☎✆✉"),
        (0x36, "⌛"),
        (0x3E, "✇✍✍✌👌👍👎☜☞☝☟✋☺😐☹💣☠⚐"),
        (0x51, "✈☼💧❄✞✞✞✠✡☪☯ॐ☸♈♉♊♋♌♍♎♏♐♑♒♓&&●❍■"),
        (0x6F, f"{UNCHECKED * 4}⬧⧫◆❖⬥⌧⍓⌘❀✿❝❞▯⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿"),
        (0x9E, f"·•▪○◉◉◉◎○▪{UNCHECKED}▲✦★✶✴✹✵"),
        (0xB1, "⌖⟡⌑"),
        (0xB5, "✪✰"),
        (0xD5, "⌫⌦➢➢➢➢←→↑↓←→↑↓↖↗↙↘←→↑↓↖↗↙↘⇦⇨⇧⇩⬄⇳⬁⬀⬃⬂▭▫"),
        (0xFB, f"✗✓{CROSSED}{CHECKED}"),
    ),
    "wingdings 2": _table(
        (0x20, " "),
        (0x41, "☞☜☞"),
        (0x4F, f"✗✓{CROSSED}{CHECKED}{CROSSED}{CROSSED}⮾⮿"),
        (0x69, "⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿"),
        (0x95, f"•●●●◉◉◉◉◉◉▪■■■{UNCHECKED}{UNCHECKED}"),
        (0xA8, "▣"),
        (0xAC, "⬩⬥◆◇"),
        (0xB1, "◈"),
        (0xB8, "◊"),
    ),
    "wingdings 3": _table(
        (0x20, " ←→↑↓↖↗↙↘"),
        (0x70, "▲▼△▽◀▶◁▷◣◢◤◥◀▶▲▼"),
    ),
    "webdings": _table(
        (0x20, " "),
        (0x33, "◀▶▲▼"),
        (0x61, f"✔🚲{UNCHECKED}"),
        (0x67, "■"),
        (0x6E, "●"),
        (0x72, "✗"),
    ),
    "zapf dingbats": {code: chr(0x26E0 + code) for code in range(0x21, 0x7F)}
    | {0x20: " ", 0x25: "☎", 0x2A: "☛", 0x2B: "☞", 0x48: "★", 0x6C: "●", 0x6E: "■"}
    | _table((0x6F, UNCHECKED * 4), (0x73, "▲▼◆❖◗"))
    | _table((0xAC, "①②③④⑤⑥⑦⑧⑨⑩❶❷❸❹❺❻❼❽❾❿"), (0xD4, "➔→↔↕")),
}
ALIASES = dict.fromkeys(("zapfdingbats", "monotype sorts", "itc zapf dingbats"), "zapf dingbats")
ALIASES |= dict.fromkeys(("symbolmt", "symbol mt"), "symbol")
UNNAMED = {0xB7: "•", 0xA7: "▪", 0x6F: UNCHECKED, 0xA8: UNCHECKED, 0xD8: "➢", 0xE0: "→"} | {
    0xFB: "✗",
    0xFC: "✓",
    0xFD: CROSSED,
    0xFE: CHECKED,
}
"""What a position of a symbol font usually is where the document does not name the font: a bullet of Symbol, or a sign
of Wingdings."""


def symbol_font(name: str | None) -> Mapping[int, str] | None:
    """Returns the characters of a symbol font by position, or None for any other font."""
    lower = (name or "").strip().lower()
    return FONTS.get(ALIASES.get(lower, lower))


def to_unicode(text: str, font: str | None) -> str:
    """Writes a text in this font with the characters that the font shows."""
    table = symbol_font(font)
    if table is None and text.isascii():
        return text
    return "".join(_sign(character, table) for character in text)


def symbol_note(text: str) -> str | None:
    """Returns what to know of a text with symbols that only their font knows, or None if it has none."""
    return SYMBOL_NOTE if UNKNOWN_SYMBOL in text else None


def _sign(character: str, table: Mapping[int, str] | None) -> str:
    code = ord(character)
    if code in PRIVATE_POSITIONS:
        return (UNNAMED if table is None else table).get(code - PRIVATE_POSITIONS.start, UNKNOWN_SYMBOL)
    if code in PRIVATE:
        return UNKNOWN_SYMBOL
    if table is None or character.isspace():
        return character
    if code < 0x100:
        return table.get(code, UNKNOWN_SYMBOL)
    byte = character.encode("cp1252", "ignore")  # a letter that Windows has at this position of the font
    return table.get(byte[0], character) if byte else character
