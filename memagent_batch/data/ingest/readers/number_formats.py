"""Numbers and dates as Excel displays them: formats of SpreadsheetML (ECMA-376, part 1, 18.8.31), in English."""

import operator
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from math import isfinite

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

EXACT = Context(prec=700, rounding=ROUND_HALF_UP)
"""Enough digits for the largest and smallest numbers of a cell."""
MOST_DIGITS = 28
"""Digits of Python's ordinary decimal numbers."""
EXACT_DIGITS = 12
"""Numbers of more significant digits are results of a computation, whose last digits are noise."""
NOISE = Decimal("1e-12")
"""Share of a number in which results of a computation differ from what they should be."""
READABLE_DIGITS = 4
"""A computed number that is displayed with so many significant digits needs no more of them."""
CURRENCIES = "$€£¥₹₽₩₪₺₴₫฿¢"
MOST_CHARACTERS = 255
"""Of a format code in Excel."""
MINUS_SIGNS = "-−–"
COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq} | {
    "<>": operator.ne
}

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
    | (?P<date>y+|m+|d+|h+|s+)
    | (?P<calendar>e+|g+|b+)
    | (?P<digit>[0\#?])
    | (?P<symbol>[.,%/@;])
    | (?P<literal>.)
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
LITERALS = {"quoted": "literal", "escaped": "literal"}
IGNORED = frozenset({"fill", "colour"})

MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September"]
MONTHS += ["October", "November", "December"]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
DAY_SECONDS = 86_400
DAY_0 = {False: datetime(1899, 12, 30), True: datetime(1904, 1, 1)}
"""By whether the workbook counts days from 1904."""
LEAP_DAY = 60
"""29 February 1900 in Excel, which that year did not have."""
DURATION_DAYS = 366
"""Times of fewer days that are shown without a date are durations, not moments of the year 1900."""
SEPARATORS = frozenset(" -/.,:T")


class NumberFormat:
    """A format code of up to four sections, such as `#,##0.00 "EUR";[Red]-0;"none";@`."""

    def __init__(self, code: str, *, epoch_1904: bool = False) -> None:
        code = code if len(code) <= MOST_CHARACTERS else "General"
        sections: list[list[Token]] = [[]]
        for match in TOKENS.finditer(code):
            kind = str(match.lastgroup)
            if match[0] == ";":
                sections.append([])
            elif kind not in IGNORED:
                sections[-1].append((LITERALS.get(kind, kind), match[kind]))
        last = sections[-1]
        texts = sections[3:4] or ([last] if ("symbol", "@") in last else [])
        self._text = texts[0] if texts else None
        numbers = [tokens for tokens in sections[:3] if tokens is not self._text]
        self._numbers = [Section(tokens, epoch_1904=epoch_1904) for tokens in numbers or [[("general", "General")]]]

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
            return section.dates.describe(value) or plain(value)
        display = section.display(value)
        if display is None:
            return plain(value)
        text = _signed(display[0], has_minus).strip()
        if not text:
            return plain(value)
        hides_minus = value < 0 and not any(sign in text for sign in MINUS_SIGNS)
        is_word = not any(map(str.isdecimal, text))
        if hides_minus or is_word or section.scale or _loses_digits(value, display[1]):
            return f"{text} ({section.stored(value)})"
        return text

    def describe_text(self, text: str) -> str:
        """Returns a text as Excel shows it; in brackets if the format shows something else in its place."""
        if self._text is None or not text:
            return text
        display = "".join(text if token == ("symbol", "@") else _literal(token) for token in self._text).strip()
        if not display:
            return text
        return display if text.strip() in display else f"{display} ({text})"

    def _select(self, value: Decimal) -> tuple["Section", bool]:
        """Returns the section for a number, and whether a minus sign is put before what it shows."""
        first, *others = self._numbers
        if first.matches(value, default=value > 0 or not others or (value == 0 and len(others) == 1)):
            return first, value < 0 and not (first.condition and first.shows_minus)
        if not others:
            return GENERAL, value < 0
        second = others[0]
        if len(others) > 1 and not second.matches(value, default=value < 0):
            return others[1], value < 0 and not others[1].shows_minus
        is_negative_section = first.condition is None and second.condition is None
        return second, value < 0 and not is_negative_section and not second.shows_minus


class Section:
    """The part of a format code that applies to numbers of one sign, or to those that meet its condition."""

    def __init__(self, tokens: Sequence[Token], *, epoch_1904: bool = False) -> None:
        conditions = [text for kind, text in tokens if kind == "condition"]
        self.condition = _condition(conditions[0]) if conditions else None
        tokens = [token for token in tokens if token[0] != "condition"]
        kinds = {kind for kind, _ in tokens}
        is_date = bool(kinds & {"date", "elapsed"}) and "digit" not in kinds
        self.dates = DateSection(tokens, epoch_1904=epoch_1904) if is_date else None
        self._percents = tokens.count(("symbol", "%"))
        currencies = [_literal(token) for token in tokens if token[0] == "currency" or token[1] in [*CURRENCIES]]
        self._currency = next(filter(None, currencies), "")
        begin, end = _digits_range(tokens)
        before, core, after = tokens[:begin], tokens[begin:end], tokens[end:]
        self._prefix, self._suffix = _text(before), _text(after)
        is_plain = any(kind == "exponent" or text == "/" for kind, text in core)
        self._number = NumberPattern(core) if core and not is_plain else None
        general = next((index for index, (kind, _) in enumerate(tokens) if kind == "general"), None)
        self._general = (self._prefix, self._suffix) if is_plain else None
        """What stands around a number with all its digits: also in place of a fraction or an exponent."""
        if general is not None:
            self._general = _text(tokens[:general]), _text(tokens[general + 1 :])
        self.scale = 0 if self._number is None else self._number.scale
        has_sign = any(sign in self._prefix for sign in MINUS_SIGNS)
        self.shows_minus = has_sign or conditions[:1] in (["<0"], ["<=0"])
        """Whether the section itself tells that a number is negative, by a minus sign or by being for such only."""

    def matches(self, value: Decimal, *, default: bool) -> bool:
        """Whether the section applies to a number; by default if it has no condition."""
        return default if self.condition is None else self.condition(value)

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


class NumberPattern:
    """Placeholders of digits, such as `#,##0.00,,`."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        point = tokens.index(("symbol", ".")) if ("symbol", ".") in tokens else len(tokens)
        self._has_point = point < len(tokens)
        integer, decimals = tokens[:point], tokens[point + 1 :]
        commas = [index for index, token in enumerate(integer) if token == ("symbol", ",")]
        last_digit = max((index for index, (kind, _) in enumerate(integer) if kind == "digit"), default=-1)
        self._is_grouped = any(index < last_digit for index in commas)
        trailing = [token for token in decimals if token == ("symbol", ",")]
        self.scale = sum(index > last_digit for index in commas) + len(trailing)
        self._integer = [token for token in integer if token != ("symbol", ",")]
        self._decimals = [token for token in decimals if token != ("symbol", ",")]
        self.places = sum(kind == "digit" for kind, _ in decimals)
        code = "".join(text for _, text in self._integer if text in {"0", "#"})
        decimals_code = "".join(text for _, text in self._decimals)
        is_simple = len(code) == len(self._integer) and code.endswith("0") and not code[:-1].strip("#")
        is_simple = is_simple and decimals_code == "0" * self.places and self._has_point == (self.places > 0)
        self._format = f"{',' if self._is_grouped else ''}.{self.places}f" if is_simple else None
        """What Python formats in the same way."""

    def write(self, magnitude: Decimal) -> tuple[str, Decimal]:
        """Returns the digits of a number that is not negative, and the number that they stand for."""
        rounded = round_to(magnitude / 1000**self.scale if self.scale else magnitude, self.places)
        if self._format is not None:
            return format(rounded, self._format), rounded * 1000**self.scale if self.scale else rounded
        whole, _, part = f"{rounded:f}".partition(".")
        point = "." if self._has_point else ""
        text = f"{self._write_integer(whole.lstrip('0'))}{point}{self._write_decimals(part)}"
        return text, rounded * 1000**self.scale

    def _write_integer(self, digits: str) -> str:
        """Fills the placeholders from the right; the leftmost one takes all digits that are left."""
        pieces, left, count = list[str](), [*digits], 0
        firsts = [index for index, (kind, _) in enumerate(self._integer) if kind == "digit"]
        for index in range(len(self._integer) - 1, -1, -1):
            kind, text = self._integer[index]
            if kind != "digit":
                pieces.append(_literal((kind, text)))
                continue
            for digit in self._digits_of(text, left, is_first=index == firsts[0]):
                if self._is_grouped and digit.isdecimal() and count and count % 3 == 0:
                    pieces.append(",")
                pieces.append(digit)
                count += 1
        return "".join(reversed(pieces)) if firsts else "".join(digits)

    @staticmethod
    def _digits_of(placeholder: str, left: list[str], *, is_first: bool) -> list[str]:
        """Takes the digits of one placeholder from the end of those that are left."""
        if not left:
            return [{"0": "0", "?": " "}.get(placeholder, "")]
        taken = left[::-1] if is_first else [left[-1]]
        del left[len(left) - len(taken) :]
        return taken

    def _write_decimals(self, digits: str) -> str:
        needed = len(digits.rstrip("0"))
        pieces, position = list[str](), 0
        for kind, text in self._decimals:
            if kind != "digit":
                pieces.append(_literal((kind, text)))
                continue
            is_shown = position < needed or text == "0"
            pieces.append(digits[position] if is_shown else " " if text == "?" else "")
            position += 1
        return "".join(pieces)


class DateSection:
    """A section of a format code that shows a date, a time or a duration."""

    def __init__(self, tokens: Sequence[tuple[str, str]], *, epoch_1904: bool) -> None:
        self._epoch_1904 = epoch_1904
        self._tokens = _tell_minutes_from_months(tokens)
        dates = {text for kind, text in self._tokens if kind == "date"}
        self._units = {text[0] for kind, text in self._tokens if kind in {"date", "elapsed"}}
        self._is_elapsed = any(kind == "elapsed" for kind, _ in self._tokens)
        self._places = max((len(text) - 1 for kind, text in self._tokens if kind == "subsecond"), default=0)
        self._has_halves = any(kind == "halves" for kind, _ in self._tokens)
        self._has_date, self._has_time = bool({*"ymd"} & self._units), bool({*"hMs"} & self._units)
        self._is_full_date = "yyyy" in dates and {"d", "dd"} & dates and {"mmm", "mmmm"} & dates
        self._is_numeric = any(kind == "calendar" for kind, _ in self._tokens) or (
            {*"ymd"} <= self._units
            and not {"mmm", "mmmm", "mmmmm", "ddd", "dddd"} & dates
            and SEPARATORS.issuperset("".join(text for kind, text in self._tokens if kind in {"literal", "symbol"}))
        )
        """Whether it shows year, month and day in digits, or in a calendar that is not written here."""

    def display(self, value: Decimal) -> str | None:
        """Returns what Excel shows; None where it shows `####`."""
        moment = self._moment(value, self._places)
        return None if moment is None else "".join(self._write(*token, *moment) for token in self._tokens).strip()

    def describe(self, value: Decimal) -> str | None:
        """Returns a date in digits as `2026-02-01`; else what Excel shows, with what it leaves out in brackets."""
        found = self._moment(value, 3 if self._places else 0)
        if found is None:
            return None
        moment, seconds = found
        date, time, display = f"{moment:%Y-%m-%d}", _clock(seconds % DAY_SECONDS), str(self.display(value))
        if self._is_numeric:
            return f"{date} {time}" if self._has_time or seconds % DAY_SECONDS else date
        if self._has_date:
            is_complete = self._is_full_date and (self._has_time or not seconds % DAY_SECONDS)
            return display if is_complete else f"{display} ({date}{f' {time}' if seconds % DAY_SECONDS else ''})"
        if value < 1 or self._is_elapsed:
            hides_seconds = "s" not in self._units and seconds % 60
            return f"{display} ({_clock(seconds)})" if hides_seconds else display
        return f"{display} ({_clock(seconds) if value < DURATION_DAYS else f'{date} {time}'})"

    def _moment(self, value: Decimal, places: int) -> tuple[datetime, Decimal] | None:
        """Returns a date and time, and the seconds since day 0; None for a day that Excel can't show."""
        is_day_0 = value < 1 and self._has_date and not self._epoch_1904  # Excel shows 0 January 1900
        if value < 0 or is_day_0:
            return None
        try:
            seconds = (value * DAY_SECONDS).quantize(Decimal((0, (1,), -places)), rounding=ROUND_HALF_UP)
            extra_days = int(not self._epoch_1904 and seconds < LEAP_DAY * DAY_SECONDS)
            return DAY_0[self._epoch_1904] + timedelta(days=extra_days, seconds=float(seconds)), seconds
        except (ArithmeticError, ValueError):
            return None

    def _write(self, kind: str, text: str, moment: datetime, seconds: Decimal) -> str:
        if kind == "elapsed":
            return f"{int(seconds) // {'h': 3600, 'M': 60, 's': 1}[text[0]]:0{len(text)}}"
        if kind == "halves":
            half = "AM" if moment.hour < 12 else "PM"
            return half if len(text) > 3 else half[0]
        if kind == "subsecond":
            return f"{seconds % 1:.{self._places}f}"[1:]
        if kind == "date":
            return self._write_date(text, moment)
        if kind == "currency":
            return text.partition("-")[0]
        return " " if kind == "blank" else text

    def _write_date(self, text: str, moment: datetime) -> str:
        width, unit = len(text), text[0]
        if unit == "y":
            return f"{moment.year:04}" if width > 2 else f"{moment.year % 100:02}"
        if unit in "md" and width > 2:
            name = MONTHS[moment.month - 1] if unit == "m" else WEEKDAYS[moment.weekday()]
            return name[:3] if width == 3 else name[:1] if unit == "m" and width == 5 else name
        hour = (moment.hour % 12 or 12) if self._has_halves else moment.hour
        numbers = {"m": moment.month, "d": moment.day, "h": hour, "M": moment.minute, "s": moment.second}
        return f"{numbers[unit]:0{min(width, 2)}}"


def _tell_minutes_from_months(tokens: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the tokens in small letters, minutes as `M`: what follows hours or precedes seconds."""
    lowered = [(kind, text.lower() if kind in {"date", "elapsed"} else text) for kind, text in tokens]
    units = [index for index, (kind, _) in enumerate(lowered) if kind in {"date", "elapsed"}]
    for before, index, after in zip([None, *units], units, [*units[1:], None], strict=False):
        kind, text = lowered[index]
        is_after_hours = before is not None and lowered[before][1].startswith("h")
        is_before_seconds = after is not None and lowered[after][1].startswith("s")
        if text.startswith("m") and (kind == "elapsed" or (len(text) < 3 and (is_after_hours or is_before_seconds))):
            lowered[index] = kind, text.upper()
    return lowered


def _clock(seconds: Decimal) -> str:
    whole, rest = int(seconds), seconds % 60
    text = f"{whole // 3600:02}:{whole // 60 % 60:02}"
    return text if not rest else f"{text}:{rest:02.0f}" if rest == int(rest) else f"{text}:{rest:06.3f}"


def _digits_range(tokens: Sequence[Token]) -> tuple[int, int]:
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


def _condition(text: str) -> Callable[[Decimal], bool]:
    sign = text.rstrip("0123456789.-+eE \t")
    limit = Decimal(text.removeprefix(sign).strip())
    return lambda value: COMPARISONS[sign](value, limit)


def _literal(token: Token) -> str:
    """Returns what a token shows that is no placeholder."""
    kind, text = token
    if kind == "blank":
        return " "
    return text.partition("-")[0] if kind == "currency" else text


def _text(tokens: Sequence[Token]) -> str:
    return "".join(map(_literal, tokens))


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


def round_to(value: Decimal, places: int) -> Decimal:
    """Rounds to a number of decimal places, halves away from zero."""
    step = Decimal((0, (1,), -places))
    if value.adjusted() + places < MOST_DIGITS:
        return value.quantize(step, rounding=ROUND_HALF_UP)
    return value.quantize(step, context=EXACT)


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
