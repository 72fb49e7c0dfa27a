"""Dates, times and durations as Excel displays them in English."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from memagent_batch.data.ingest.readers.format_codes import Token

MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September"]
MONTHS += ["October", "November", "December"]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
DAY_SECONDS = 86_400
DAY_0 = {False: datetime(1899, 12, 30), True: datetime(1904, 1, 1)}
"""The day with the number 0, by whether the workbook counts days from 1904."""
LEAP_DAY = 60
"""29 February 1900 in Excel, which that year did not have: its days before have another day of the week."""
SUNDAY = 6
DURATION_DAYS = 366
"""Times of fewer days that are shown without a date are durations, not moments of the year 1900."""
SEPARATORS = frozenset(" -/.,:T")


class Moment(NamedTuple):
    """A date and time as Excel counts them."""

    year: int
    month: int
    day: int
    weekday: int
    """From 0 for Monday."""
    hour: int
    minute: int
    second: int

    @property
    def date(self) -> str:
        """As `2026-02-01`."""
        return f"{self.year:04}-{self.month:02}-{self.day:02}"


class DateSection:
    """A section of a format code that shows a date, a time or a duration."""

    def __init__(self, tokens: Sequence[tuple[str, str]], *, epoch_1904: bool) -> None:
        self._epoch_1904 = epoch_1904
        self._tokens = _tell_minutes_from_months([_as_day(token) for token in tokens])
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
        date, time, display = moment.date, _clock(seconds % DAY_SECONDS), str(self.display(value))
        if self._is_numeric:
            return f"{date} {time}" if self._has_time or seconds % DAY_SECONDS else date
        if self._has_date:
            is_complete = self._is_full_date and (self._has_time or not seconds % DAY_SECONDS)
            return display if is_complete else f"{display} ({date}{f' {time}' if seconds % DAY_SECONDS else ''})"
        if value < 1 or self._is_elapsed:
            hides_seconds = "s" not in self._units and seconds % 60
            return f"{display} ({_clock(seconds)})" if hides_seconds else display
        return f"{display} ({_clock(seconds) if value < DURATION_DAYS else f'{date} {time}'})"

    def _moment(self, value: Decimal, places: int) -> tuple[Moment, Decimal] | None:
        """Returns a date and time, and the seconds since day 0; None for a day that Excel can't show."""
        is_day_0 = value < 1 and self._has_date and not self._epoch_1904  # Excel shows 0 January 1900
        if value < 0 or is_day_0:
            return None
        try:
            seconds = (value * DAY_SECONDS).quantize(Decimal((0, (1,), -places)), rounding=ROUND_HALF_UP)
            days = int(seconds // DAY_SECONDS)
            is_early = not self._epoch_1904 and days < LEAP_DAY
            moment = DAY_0[self._epoch_1904] + timedelta(days=int(is_early), seconds=float(seconds))
        except (ArithmeticError, ValueError):
            return None
        is_leap_day = not self._epoch_1904 and days == LEAP_DAY
        weekday = moment.weekday() if self._epoch_1904 else (days + SUNDAY - 1) % 7
        time = moment.hour, moment.minute, moment.second
        return Moment(moment.year, moment.month, moment.day + is_leap_day, weekday, *time), seconds

    def _write(self, kind: str, text: str, moment: Moment, seconds: Decimal) -> str:
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

    def _write_date(self, text: str, moment: Moment) -> str:
        width, unit = len(text), text[0]
        if unit == "y":
            return f"{moment.year:04}" if width > 2 else f"{moment.year % 100:02}"
        if unit in "md" and width > 2:
            name = MONTHS[moment.month - 1] if unit == "m" else WEEKDAYS[moment.weekday]
            return name[:3] if width == 3 else name[:1] if unit == "m" and width == 5 else name
        hour = (moment.hour % 12 or 12) if self._has_halves else moment.hour
        numbers = {"m": moment.month, "d": moment.day, "h": hour, "M": moment.minute, "s": moment.second}
        return f"{numbers[unit]:0{min(width, 2)}}"


def _as_day(token: Token) -> Token:
    """Returns a piece with the usual letters for days of the week, which East Asian Excel writes as `aaaa`."""
    kind, text = token
    return (kind, "d" * len(text)) if kind == "date" and text[0] in "aA" else token


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
