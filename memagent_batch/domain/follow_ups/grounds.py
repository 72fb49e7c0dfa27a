"""Checks that a value can come from its answer: a number has the answer's unit, a date its year, month and day.

A value turn writes what its guide allows, even if the answer has nothing of that kind: it makes 5 GBP of "five years",
and a day in the year 1522 of clause "15.2". Such a value is `invalid`. Units are those of contracts in English.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from memagent_batch.domain.follow_ups.answer_types import AnswerType, ValueType
from memagent_batch.domain.follow_ups.values import TypedValue, ValueStatus

GROUNDS = 4
"""Raised with each change of what is invalid: values are then checked again, and no turn is asked for that."""
_CURRENCIES = "AED AUD BRL CAD CHF CNY DKK EUR GBP HKD INR JPY MXN NOK NZD PLN SAR SEK SGD USD ZAR"
_NAMES = {
    "USD": "us$",
    "AUD CAD HKD MXN NZD SGD USD": "$|dollar|dollars",
    "EUR": "€|euro|euros",
    "GBP": "£|pound|pounds",
    "CNY JPY": "¥",
    "percent": "%|percent|per cent",
    "year": "year|years",
    "month": "month|months",
    "week": "week|weeks",
    "day": "day|days",
    "hour": "hour|hours",
}
"""Units, and the names that may stand for each of them."""
_UNITS = {name: frozenset(units.split()) for units, names in _NAMES.items() for name in names.split("|")}
_UNITS |= {code.lower(): frozenset({code}) for code in _CURRENCIES.split()}
_LENGTHS = ({"year": 12, "month": 1}, {"week": 168, "day": 24, "hour": 1})
"""Units of time that are converted into each other without a doubt."""
_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)
_NUMBERS = dict(zip(_WORDS.split(), [*range(20), *range(20, 100, 10)], strict=True))
_SCALES = {"hundred": 100, "thousand": 1000, "k": 1000, "million": 10**6, "m": 10**6, "bn": 10**9, "billion": 10**9}
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third twenty-fourth "
    "twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first"
)
_MONTH_NAMES = "January February March April May June July August September October November December"
_MONTHS = [rf"{name[:3]}(?:{name[3:]}|t)?" for name in _MONTH_NAMES.split()]
"""The English names, whole or short; with a capital, as `may` is a verb too."""
_NAME = rf"(?<![^\W\d_])(?:{'|'.join(map(re.escape, _UNITS))})(?![^\W\d_])"
_MONEY = rf"(?<![^\W\d_])(?:{'|'.join(re.escape(name) for name in _UNITS if _UNITS[name] <= set(_CURRENCIES.split()))})"
_WORD = "|".join(_NUMBERS)
_NUMBER = rf"(?:\d+(?:[.,'’ ]\d{{3}})*(?:[.,]\d+)?|\b(?:{_WORD})(?:[\s-](?:{_WORD}))?\b)"
_QUALIFIERS = "business|calendar|working|clear|full|whole|complete|consecutive|more|further|additional|lease|contract"
_MENTION = re.compile(
    rf"(?:(?P<before>{_MONEY})\s*)?(?P<number>{_NUMBER})(?P<scales>(?:\s*(?:{'|'.join(_SCALES)})\b)*)"
    rf"(?:\s*\({_NUMBER}\))?(?:[\s-]+(?:{_QUALIFIERS})\b)*[\s-]*(?P<after>(?!{_MONEY}\s?\d){_NAME})?",
    re.IGNORECASE,
)
"""A number as people write it, with a unit before or behind it."""
_MONTH = "|".join(_MONTHS)
_DATE = re.compile(
    rf"\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:(?:day\s+)?of\s+)?(?:{_MONTH})\b(?:,?\s+\d{{4}})?"
    rf"|\b(?:{_MONTH})\s+\d{{1,4}}(?:st|nd|rd|th)?\b(?:,?\s+\d{{4}})?"
    r"|\b\d{4}-\d\d-\d\d\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
)
_NEAR_CHARS = 40
"""How far from its year, characters, the day of a date stands at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mention:
    """A number of an answer."""

    text: str
    number: float
    units: frozenset[str]
    """What its unit may stand for; empty if no known unit stands beside it."""


def grounded(
    value: TypedValue, value_type: ValueType, *, answer: str, context: str, read_texts: Callable[[], Sequence[str]]
) -> TypedValue:
    """The value, or `invalid` with the reason, if the answer has nothing of its kind.

    Args:
        value: what the value turn wrote.
        value_type: the type that the question asks for.
        answer: the answer in few words.
        context: the response and the memory that the answer rests on.
        read_texts: the parts of the document that the memory comes from; they are asked for only if needed.
    """
    problem: str | None = None
    if value_type.type is AnswerType.DATE and value.value is not None:
        problem = date_misfit(date.fromisoformat(json.loads(value.value)), answer=answer, context=context)
    elif value_type.unit and value.number is not None:
        problem = unit_misfit(value.number, unit=value_type.unit, answer=answer)
        if problem is None and re.fullmatch(r"\d{1,3}(\.\d{1,3}){1,4}\.?", answer.strip()):
            problem = clause_misfit(answer, texts=read_texts())
    return value if problem is None else TypedValue(status=ValueStatus.INVALID, problem=problem)


def unit_misfit(number: float, *, unit: str, answer: str) -> str | None:
    """Why a number in a unit can't come from the answer; None if it can.

    An answer without a unit is not judged, unless it is a date, nor is a unit that is not known. A time in another unit
    is converted if that is sure: 24 months are 2 years, but 3 months have no certain number of days.
    """
    asked = frozenset[str]().union(*(_UNITS[name.lower()] for name in re.findall(f"(?i){_NAME}", unit)))
    rest, num_dates = _DATE.subn(" ", _plain(answer))
    if asked and num_dates == 1 and not has_number(rest):
        return f"the answer {answer[:100]!r} is a date, and not in {unit}"
    mentions = list(_mentions(answer))
    same = [each for each in mentions if math.isclose(each.number, abs(number))]
    others = [each for each in mentions if each.units and not each.units & asked]
    is_same = any(each not in others for each in same) or any(_is_converted(number, asked, each) for each in others)
    if is_same or not asked:
        return None
    has_unit = any(each.units & asked for each in mentions)
    against = [each for each in others if each in same or not has_unit]
    return f"the answer has {against[0].text!r}, which is not in {unit}" if against else None


def date_misfit(day: date, *, answer: str, context: str) -> str | None:
    """Why a date can't come from the answer; None if it can: year and day stand there, near each other.

    `context`, the notes that the answer rests on, may have what the answer leaves out: the year of a day and a month,
    or the whole date of an answer such as "the Effective Date". Words of another script without such a year are not
    judged: they may have numerals or a calendar of their own.
    """
    answer, context = _plain(answer), _plain(context)
    is_foreign = re.search(r"[^\W\d_\u0000-\u024f]", answer) and not re.search(r"1\d{3}|20\d{2}", answer)
    if is_foreign or _has_date(answer, day):
        return None
    numbers = {float(each) for each in re.findall(r"\d+", answer)}  # a model may repeat a digit without end
    is_month = day.month in (_months_named(answer) or {day.month})
    if is_month and not any(each.units for each in _mentions(answer)):
        has_rest = numbers == {day.day} and re.search(rf"(?<!\d){day.year}(?!\d)", context)
        if has_rest or (numbers <= {day.year, day.month, day.day} and _has_date(context, day)):
            return None
    return f"{answer[:100]!r} does not have the year, month and day of {day.isoformat()}"


def clause_misfit(answer: str, *, texts: Sequence[str]) -> str | None:
    """Why an answer is not a number in a unit: in the texts it stands for clauses alone."""
    number = answer.strip().rstrip(".")
    whole = rf"(?<![\d.,]){re.escape(number)}(?![\d,]|\.\d)"
    head = rf"(?:^|\n)[ \t]*{whole}\.?\s+\W{{0,3}}[A-Z]"
    reference = rf"(?:\b(?:clause|section|article|paragraph)s?|§)\s*{whole}"
    num_places = sum(len(re.findall(whole, text)) for text in texts)
    num_clauses = sum(len(re.findall(rf"{head}|(?i:{reference})", text)) for text in texts)
    return f"{number!r} is the number of a clause" if 0 < num_places == num_clauses else None


def has_number(text: str) -> bool:
    """Whether a text has a number, in digits or in English words."""
    return next(_mentions(text), None) is not None


def says_number(text: str, answer: str) -> bool:
    """Whether a text has all numbers of an answer, however they are written."""
    said = [each.number for each in _mentions(text)] + [float(digits) for digits in re.findall(r"\d+", text)]
    return all(any(math.isclose(each.number, number) for number in said) for each in _mentions(answer))


def says_date(text: str, day: date) -> bool:
    """Whether a text has a date, however it is written."""
    return _has_date(_plain(text), day)


def _mentions(answer: str) -> Iterator[_Mention]:
    for found in _MENTION.finditer(_plain(answer)):
        written, unit = found["number"].lower(), found["after"] or found["before"]
        if written[0].isdigit():
            number = float(re.sub(r"[.,'’ ](?=\d{3}(?!\d))", "", written).replace(",", "."))
        else:
            number = float(sum(_NUMBERS[word] for word in re.split(r"[\s-]", written)))
        number = math.prod((_SCALES[each] for each in found["scales"].lower().split()), start=number)
        yield _Mention(text=found[0].strip(), number=number, units=_UNITS[unit.lower()] if unit else frozenset())


def _is_converted(number: float, asked: frozenset[str], mention: _Mention) -> bool:
    """Whether a number in an asked unit of time is exactly as long as what the answer says in another one."""
    return any(
        math.isclose(number * lengths[unit], mention.number * lengths[other])
        for lengths in _LENGTHS
        for unit in asked & lengths.keys()
        for other in mention.units & lengths.keys()
    )


def _plain(text: str) -> str:
    """A text with compatible characters, digits of any script, and Turkish letters that `re` takes for i, as usual."""
    text = unicodedata.normalize("NFKC", text).replace("\u0130", "I").replace("\u0131", "i")
    return "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in text)


def _has_date(text: str, day: date) -> bool:
    """Whether year and day of a date stand near each other, without the English name of another month alone.

    Years from 1930 to 2069 may have two digits.
    """
    years = f"{day.year}|{day.year % 100:02}" if 1930 <= day.year < 2070 else f"{day.year}"
    is_day = re.compile(rf"(?<!\d)0?{day.day}(?!\d)|(?<![\w-]){_ORDINALS.split()[day.day - 1]}\b", re.IGNORECASE)
    for found in re.finditer(rf"(?<!\d)(?:{years})(?!\d)", text):
        near = f"{text[: found.start()][-_NEAR_CHARS:]} | {text[found.end() :][:_NEAR_CHARS]}"
        if is_day.search(near) and day.month in (_months_named(near) or {day.month}):
            return True
    return f"{day:%Y%m%d}" in text


def _months_named(text: str) -> set[int]:
    """Months whose English names stand in a text."""
    return {number for number, name in enumerate(_MONTHS, start=1) if re.search(rf"\b{name}\b", text)}
