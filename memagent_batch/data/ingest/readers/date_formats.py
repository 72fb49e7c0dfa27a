"""Dates and times as Excel displays them, with English names, from the days since 1900 or 1904."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal

MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September"]
MONTHS += ["October", "November", "December"]
WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
DAY_SECONDS = 86_400
LAST_DAY = 2_958_465
"""31 December 9999; later days, and days before the first one, are shown as `####`."""
EPOCH_1904_DAYS = 1_462
"""Day 0 of workbooks whose days are counted from 1904, in days since 1900."""
DURATION_DAYS = 366
"""Times of fewer days that are shown without a date are durations, not moments of the year 1900."""
SEPARATORS = frozenset(" -/.,:T")


@dataclass(frozen=True, slots=True)
class Moment:
    """A date and time."""

    year: int
    month: int
    day: int
    weekday: int
    seconds: Decimal | int
    """Since the beginning of the day."""
    total_seconds: Decimal | int
    """Since day 0."""

    def iso(self, *, has_time: bool) -> str:
        """Returns the date as `2026-02-01`, and the time as `18:00` or `18:00:05`."""
        text = f"{self.year:04}-{self.month:02}-{self.day:02}"
        return f"{text} {_clock(self.seconds)}" if has_time or self.seconds else text


class DateSection:
    """A section of a format code that shows a date, a time or a duration."""

    def __init__(self, tokens: Sequence[tuple[str, str]], *, epoch_1904: bool) -> None:
        self._epoch_1904 = epoch_1904
        self._tokens = _minutes_told_from_months(tokens)
        self._units = "".join(dict.fromkeys(text[0] for kind, text in self._tokens if kind in {"date", "elapsed"}))
        self._is_elapsed = any(kind == "elapsed" for kind, _ in self._tokens)
        self._places = max((len(text) - 1 for kind, text in self._tokens if kind == "subsecond"), default=0)
        self._has_halves = any(kind == "halves" for kind, _ in self._tokens)
        self._has_date = not {"y", "m", "d"}.isdisjoint(self._units)
        self._has_time = not {"h", "M", "s"}.isdisjoint(self._units)
        dates = {text for kind, text in self._tokens if kind == "date"}
        self._is_full_date = "yyyy" in dates and {"d", "dd"} & dates and {"mmm", "mmmm"} & dates
        self._is_numeric = any(kind == "calendar" for kind, _ in self._tokens) or (
            {"y", "m", "d"} <= {*self._units}
            and not {"mmm", "mmmm", "mmmmm", "ddd", "dddd"} & dates
            and SEPARATORS.issuperset("".join(text for kind, text in self._tokens if kind in {"literal", "symbol"}))
        )
        """Whether it shows year, month and day in digits, or in a calendar that is not written here."""

    def display(self, value: Decimal) -> str | None:
        """Returns what Excel shows; None where it shows `####`."""
        moment = self._moment(value, self._places)
        if moment is None:
            return None
        return "".join(self._write(kind, text, moment) for kind, text in self._tokens).strip()

    def describe(self, value: Decimal) -> str | None:
        """Returns a date in digits as `2026-02-01`; else what Excel shows, with what it leaves out in brackets."""
        moment = self._moment(value, 3 if self._places else 0)
        if moment is None:
            return None
        if self._is_numeric:
            return moment.iso(has_time=self._has_time)
        display = str(self.display(value))
        if not self._has_date:
            return self._describe_time(value, moment, display)
        is_complete = self._is_full_date and (self._has_time or not moment.seconds)
        return display if is_complete else f"{display} ({moment.iso(has_time=False)})"

    def _describe_time(self, value: Decimal, moment: Moment, display: str) -> str:
        hides_seconds = "s" not in self._units and bool(moment.seconds % 60)
        if value < 1 or self._is_elapsed:
            return f"{display} ({_clock(moment.total_seconds)})" if hides_seconds else display
        is_duration = value < DURATION_DAYS
        return f"{display} ({_clock(moment.total_seconds) if is_duration else moment.iso(has_time=True)})"

    def _moment(self, value: Decimal, places: int) -> Moment | None:
        if not 0 <= value < LAST_DAY + 1:
            return None
        exact = value * DAY_SECONDS
        total: Decimal | int = int(exact.to_integral_value(ROUND_HALF_UP))
        if places:
            total = exact.quantize(Decimal((0, (1,), -places)), rounding=ROUND_HALF_UP)
        days, seconds = int(total // DAY_SECONDS), total % DAY_SECONDS
        days += EPOCH_1904_DAYS if self._epoch_1904 else 0
        if days > LAST_DAY:
            return None
        year, month, day = _calendar_day(days)
        return Moment(year, month, day, (days - 1) % 7, seconds, total)

    def _write(self, kind: str, text: str, moment: Moment) -> str:
        if kind == "elapsed":
            unit = {"h": 3600, "M": 60, "s": 1}[text[0]]
            return f"{int(moment.total_seconds) // unit:0{len(text)}}"
        if kind == "halves":
            half = "AM" if moment.seconds < DAY_SECONDS // 2 else "PM"
            return half if len(text) > 3 else half[0]
        if kind == "subsecond":
            return f"{moment.seconds % 1:.{self._places}f}"[1:]
        if kind == "date":
            return self._write_date(text, moment)
        if kind == "currency":
            return text.partition("-")[0]
        return " " if kind == "blank" else text

    def _write_date(self, text: str, moment: Moment) -> str:
        width, hour = len(text), int(moment.seconds) // 3600
        if self._has_halves:
            hour = hour % 12 or 12
        if text[0] == "y":
            return f"{moment.year:04}" if width > 2 else f"{moment.year % 100:02}"
        if text[0] in "md" and width > 2:
            name = MONTHS[moment.month - 1] if text[0] == "m" else WEEKDAYS[moment.weekday]
            return name[:3] if width == 3 else name[:1] if text[0] == "m" and width == 5 else name
        numbers = {"m": moment.month, "d": moment.day, "h": hour}
        numbers |= {"M": int(moment.seconds) // 60 % 60, "s": int(moment.seconds) % 60}
        return f"{numbers[text[0]]:0{min(width, 2)}}"


def _minutes_told_from_months(tokens: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the tokens in small letters, minutes as `M`: what follows hours or precedes seconds."""
    lowered = [(kind, text.lower() if kind in {"date", "elapsed"} else text) for kind, text in tokens]
    units = [index for index, (kind, _) in enumerate(lowered) if kind in {"date", "elapsed"}]
    for position, index in enumerate(units):
        kind, text = lowered[index]
        before = lowered[units[position - 1]][1] if position else ""
        after = lowered[units[position + 1]][1] if position + 1 < len(units) else ""
        is_minutes = kind == "elapsed" or (len(text) < 3 and (before.startswith("h") or after.startswith("s")))
        if text.startswith("m") and is_minutes:
            lowered[index] = kind, text.upper()
    return lowered


def _calendar_day(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days: day 60 is 29 February 1900 in Excel, which that year did not have."""
    if days in {0, 60}:
        return (1900, 1, 0) if days == 0 else (1900, 2, 29)
    day = date(1899, 12, 31 if days < 60 else 30) + timedelta(days=days)
    return day.year, day.month, day.day


def _clock(seconds: Decimal | int) -> str:
    whole = int(seconds)
    text = f"{whole // 3600:02}:{whole // 60 % 60:02}"
    rest = seconds % 60
    return text if not rest else f"{text}:{rest:02}" if rest == int(rest) else f"{text}:{rest:06.3f}"
