"""Numbers and dates as Excel displays them: formats of SpreadsheetML (ECMA-376, part 1, 18.8.31), in English."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite

from memagent_batch.data.ingest.readers.date_formats import DateSection
from memagent_batch.data.ingest.readers.format_codes import Token, digits_range, literal, literals, sections_of
from memagent_batch.data.ingest.readers.number_patterns import EXACT, MOST_DIGITS, pattern_of

BUILT_IN = (
    {"0": "General", "1": "0", "2": "0.00", "3": "#,##0", "4": "#,##0.00", "9": "0%", "10": "0.00%", "49": "@"}
    | dict.fromkeys(["5", "6", "37", "38", "41", "42"], "#,##0_);(#,##0)")
    | dict.fromkeys(["7", "8", "39", "40", "43", "44"], "#,##0.00_);(#,##0.00)")
    | {"11": "0.00E+00", "12": "# ?/?", "13": "# ??/??", "48": "##0.0E+0"}
    | {"14": "mm-dd-yy", "15": "d-mmm-yy", "16": "d-mmm", "17": "mmm-yy", "22": "m/d/yy h:mm"}
    | {"18": "h:mm AM/PM", "19": "h:mm:ss AM/PM", "20": "h:mm", "21": "h:mm:ss"}
    | {"45": "mm:ss", "46": "[h]:mm:ss", "47": "mm:ss.0"}
    | dict.fromkeys(["27", "28", "29", "30", "31", "36", "50", "51", "52", "53", "54", "57", "58"], "yyyy-mm-dd")
    | dict.fromkeys(["32", "33", "34", "35", "55", "56"], "h:mm:ss")
)
"""Format codes that workbooks name by number only. The currency of 5 to 8, 42 and 44 is the one of the computer."""

EXACT_DIGITS = 12
"""Numbers of more significant digits are results of a computation, whose last digits are noise."""
NOISE = Decimal("1e-12")
"""Share of a number in which results of a computation differ from what they should be."""
READABLE_DIGITS = 4
"""A computed number that is displayed with so many significant digits needs no more of them."""
CURRENCIES = "$€£¥₹₽₩₪₺₴₫฿¢"
MINUS_SIGNS = "-−–"
COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq} | {
    "<>": operator.ne
}


class NumberFormat:
    """A format code of up to four sections, such as `#,##0.00 "EUR";[Red]-0;"none";@`."""

    def __init__(self, code: str, *, epoch_1904: bool = False) -> None:
        sections = sections_of(code)
        last = sections[-1]
        texts = sections[3:4] or ([last] if ("symbol", "@") in last else [])
        self._text = texts[0] if texts else None
        numbers = [tokens for tokens in sections[:3] if tokens is not self._text]
        self._numbers = [Section(tokens, epoch_1904=epoch_1904) for tokens in numbers or [[("general", "General")]]]
        self.has_hidden = False
        """Whether a value was described that Excel does not show: it shows nothing, or `####`."""

    def display(self, value: Decimal) -> str | None:
        """Returns what Excel shows, without leading and trailing blanks; None where it can't show the number."""
        section, has_minus = self._select(value)
        display = section.display(value)
        return None if display is None else _signed(display[0], has_minus).strip()

    def describe(self, value: Decimal) -> str:
        """Returns what Excel shows, and the stored value in brackets where the display alone could mislead.

        That is where the display is scaled, rounded, hides a minus sign, or shows words in place of the number. Dates
        that are shown in digits only become `2026-02-01`.
        """
        section, has_minus = self._select(value)
        if section.dates is not None:
            return section.dates.describe(value) or self._hidden(plain(value))
        display = section.display(value)
        text = "" if display is None else _signed(display[0], has_minus).strip()
        if display is None or not text:
            return self._hidden(plain(value))
        hides_minus = value < 0 and not any(sign in text for sign in MINUS_SIGNS)
        is_word = not any(map(str.isdecimal, text))
        if hides_minus or is_word or section.scale or _loses_digits(value, display[1]):
            return f"{text} ({section.stored(value)})"
        return text

    def describe_text(self, text: str) -> str:
        """Returns a text as Excel shows it; in brackets if the format shows something else in its place."""
        if self._text is None or not text:
            return text
        display = "".join(text if token == ("symbol", "@") else literal(token) for token in self._text).strip()
        if not display:
            return self._hidden(text)
        return display if text.strip() in display else f"{display} ({text})"

    def _hidden(self, text: str) -> str:
        self.has_hidden = True
        return text

    def _select(self, value: Decimal) -> tuple["Section", bool]:
        """Returns the section for a number, and whether a minus sign is put before what it shows."""
        first, *others = self._numbers
        if first.matches(value, default=value > 0 or not others or (value == 0 and len(others) == 1)):
            return first, value < 0 and not first.is_for_negatives
        if not others:
            return GENERAL, value < 0
        second, *rest = others
        if rest and not second.matches(value, default=value < 0):
            return rest[0], value < 0 and not (first.leaves_negatives or second.leaves_negatives)
        if second.condition is not None:
            return second, value < 0 and not second.is_for_negatives
        is_for_negatives = rest or first.condition is None or first.leaves_negatives
        return second, value < 0 and not is_for_negatives


class Section:
    """The part of a format code that applies to numbers of one sign, or to those that meet its condition."""

    def __init__(self, tokens: Sequence[Token], *, epoch_1904: bool = False) -> None:
        conditions = [text for kind, text in tokens if kind == "condition"]
        self.condition = Condition.parse(conditions[0]) if conditions else None
        tokens = [token for token in tokens if token[0] != "condition"]
        kinds = {kind for kind, _ in tokens}
        is_date = bool(kinds & {"date", "elapsed"}) and "digit" not in kinds
        self.dates = DateSection(tokens, epoch_1904=epoch_1904) if is_date else None
        self._percents = tokens.count(("symbol", "%"))
        currencies = [literal(token) for token in tokens if token[0] == "currency" or token[1] in [*CURRENCIES]]
        self._currency = next(filter(None, currencies), "")
        begin, end = digits_range(tokens)
        before, core, after = tokens[:begin], tokens[begin:end], tokens[end:]
        self._prefix, self._suffix = literals(before), literals(after)
        self._number = pattern_of(core) if core else None
        general = next((index for index, (kind, _) in enumerate(tokens) if kind == "general"), None)
        self._general: tuple[str, str] | None = None
        """What stands around a number with all its digits."""
        if general is not None:
            self._general = literals(tokens[:general]), literals(tokens[general + 1 :])
        self.scale = 0 if self._number is None else self._number.scale
        self.is_for_negatives = self.condition is not None and self.condition.is_for_negatives
        """Whether its condition holds for no positive number. Excel then leaves the minus sign to the section."""
        self.leaves_negatives = self.condition is not None and self.condition.leaves_negatives
        """Whether its condition holds for all positive numbers, so that the next section gets none."""

    def matches(self, value: Decimal, *, default: bool) -> bool:
        """Whether the section applies to a number; by default if it has no condition."""
        return default if self.condition is None else self.condition.holds(value)

    def display(self, value: Decimal) -> tuple[str, Decimal | None] | None:
        """Returns what the section shows of a number without its sign, and the number that a reader takes from it.

        That number is None if there is none; all is None where Excel shows `####`.
        """
        if self.dates is not None:
            text = self.dates.display(value)
            return None if text is None else (text, value)
        magnitude = abs(value) * 100**self._percents if self._percents else abs(value)
        if self._number is not None:
            middle, shown = self._number.write(magnitude)
            shown = shown / 100**self._percents if self._percents else shown
            return f"{self._prefix}{middle}{self._suffix}", shown.copy_sign(value)
        if self._general is not None:
            before, after = self._general
            return f"{before}{plain(magnitude)}{after}", value
        return self._prefix, None

    def stored(self, value: Decimal) -> str:
        """Returns a number as it is stored, in percent or with a currency if the section shows one."""
        text = plain(value * 100**self._percents) + "%" * self._percents
        return f"{text} {self._currency}".strip()


@dataclass(frozen=True, slots=True)
class Condition:
    """What a number must be for a section: `>=100`."""

    sign: str
    limit: Decimal

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Parses a comparison."""
        sign = text.rstrip("0123456789.-+eE \t")
        return cls(sign, Decimal(text.removeprefix(sign).strip()))

    def holds(self, value: Decimal) -> bool:
        """Whether a number meets it."""
        return bool(COMPARISONS[self.sign](value, self.limit))

    @property
    def is_for_negatives(self) -> bool:
        """Whether no positive number meets it."""
        return self.sign in {"<", "<=", "="} and (self.limit < 0 or (self.limit == 0 and self.sign != "="))

    @property
    def leaves_negatives(self) -> bool:
        """Whether every positive number meets it."""
        return self.sign in {">", ">="} and self.limit <= 0


def _signed(text: str, has_minus: bool) -> str:
    return f"-{text.lstrip()}" if has_minus else text


def _loses_digits(value: Decimal, shown: Decimal | None) -> bool:
    """Whether a display leaves out digits of a number that a reader would miss."""
    if shown is None:
        return True
    if value == shown or abs(value - shown) <= abs(value) * NOISE:
        return False
    is_exact = len(value.normalize().as_tuple().digits) <= EXACT_DIGITS
    return is_exact or len(shown.as_tuple().digits) < READABLE_DIGITS


def parse_number(text: str) -> Decimal:
    """Parses a number of a cell. Excel shows 15 significant digits; integers are kept as they are.

    Raises:
        ValueError: it is no number, or an endless one.
    """
    if text.lstrip("-").isdecimal() and len(text) <= MOST_DIGITS:
        return Decimal(text)
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text!r} is no number of a cell")
    return Decimal(f"{number:.15g}")


def general(text: str) -> str:
    """Returns a stored number with all its digits, without an exponent.

    Raises:
        ValueError: it is no number, or an endless one.
    """
    if text.isdecimal():
        return text.lstrip("0") or "0"
    short = f"{float(text):.15g}"
    is_plain = short.lstrip("-").replace(".", "", 1).isdecimal() and short != "-0"
    return short if is_plain else plain(parse_number(text))


def plain(value: Decimal) -> str:
    """Writes a number without an exponent, unless it would be longer than 21 digits."""
    value = value.normalize(EXACT)
    if value and not -10 <= value.adjusted() <= 20:
        return f"{value:E}"
    return f"{value:f}" if value else "0"


GENERAL = Section([("general", "General")])
