"""Checks that a value can come from its answer: a number has the answer's unit, a date the answer's parts.

A value turn writes what its guide allows, even if the answer has nothing of that kind: it makes 5 GBP of "five years",
and a day in the year 1522 of clause "15.2". Such a value is `invalid`. Units are known by their English names, symbols
and ISO codes, months by their names in some languages, and in the others by their place in the date.
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

GROUNDS = 1
"""Raised with each change of what is invalid: values are then checked again, and no turn is asked for that."""
CURRENCY_CODES = (
    "AED ARS AUD BGN BRL CAD CHF CLP CNY COP CZK DKK EGP EUR GBP HKD HUF IDR ILS INR ISK JPY KES KRW MXN MYR NGN NOK "
    "NZD PEN PHP PKR PLN RON RUB SAR SEK SGD THB TRY TWD UAH USD VND ZAR"
)
CURRENCIES = frozenset(CURRENCY_CODES.split())
_SYMBOLS = {
    "US$": "USD",
    "CA$": "CAD",
    "C$": "CAD",
    "AU$": "AUD",
    "A$": "AUD",
    "NZ$": "NZD",
    "HK$": "HKD",
    "S$": "SGD",
    "NT$": "TWD",
    "R$": "BRL",
    "$": "ARS AUD CAD CLP COP HKD MXN NZD SGD TWD USD",
    "€": "EUR",
    "£": "EGP GBP",
    "¥": "CNY JPY",
    "₹": "INR",
    "₽": "RUB",
    "₩": "KRW",
    "₪": "ILS",
    "%": "percent",
}
"""Symbols, longer ones first, and the units that each may stand for."""
_WORDS = {
    "dollars?": "AUD CAD HKD NZD SGD TWD USD",
    "pounds?": "EGP GBP lb",
    "euros?": "EUR",
    "yen": "JPY",
    "yuan|renminbi|rmb": "CNY",
    "rupees?": "INR PKR",
    "francs?": "CHF",
    "kr|kron(?:a|or|e|er)": "DKK ISK NOK SEK",
    "pesos?": "ARS CLP COP MXN PHP",
    "zloty|zł": "PLN",
    "rou?bles?": "RUB",
    "lbs?": "lb",
    "per ?cent|pct": "percent",
    "years?|yrs?": "year",
    "months?": "month",
    "weeks?|wks?": "week",
    "days?": "day",
    "hours?|hrs?": "hour",
    "minutes?|mins?": "minute",
    "seconds|secs?": "second",
}
"""Words, and the units that each may stand for."""
_MONTHS_IN = {"year": 12, "month": 1}
_SECONDS_IN = {"week": 604_800, "day": 86_400, "hour": 3600, "minute": 60, "second": 1}
"""Units of time that are converted into each other without a doubt."""
_SMALL_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = dict(zip(_SMALL_NUMBERS.split(), range(20), strict=True)) | dict(
    zip(_TENS.split(), range(20, 100, 10), strict=True)
)
_SCALES = {"hundred": 100, "thousand": 1000, "k": 1000, "million": 10**6, "m": 10**6, "bn": 10**9, "billion": 10**9}
_DIGITS = r"\d+(?:[.,'’\u00a0\u202f ]\d{3})*(?:[.,]\d+)?"
_NUMBER_WORD = "|".join([*_SMALL, "hundred", "thousand", "million", "billion"])
_IN_WORDS = rf"(?:\b(?:{_NUMBER_WORD})\b(?:[\s-]+(?:and\s+)?(?:{_NUMBER_WORD})\b)*)"
_CODE = rf"(?-i:{'|'.join(sorted(CURRENCIES))})"
_MONEY = rf"{'|'.join(re.escape(symbol) for symbol in _SYMBOLS if symbol != '%')}|\b{_CODE}"
_AFTER = rf"(?:{'|'.join(map(re.escape, _SYMBOLS))})(?!\s?\d)|(?:{'|'.join(_WORDS)}|{_CODE})\b"
_QUALIFIERS = "business|calendar|working|clear|full|whole|complete|consecutive|more|further|additional|lease|contract"
_MENTION = re.compile(
    rf"(?P<before>(?:{_MONEY}))?\s*(?P<number>{_DIGITS}|{_IN_WORDS})"
    rf"(?P<scale>\s*(?:hundred|thousand|million|billion|bn|[km])\b)?(?:\s*\((?:{_DIGITS}|{_IN_WORDS})\))?"
    rf"(?:[\s-]+(?:{_QUALIFIERS})\b)*[\s-]*(?P<after>{_AFTER})?",
    re.IGNORECASE,
)
"""A number as people write it, with a unit before or behind it."""
_NAMED = re.compile(rf"(?<!\w)(?:{'|'.join(_WORDS)}|{_CODE})(?!\w)|{'|'.join(map(re.escape, _SYMBOLS))}", re.IGNORECASE)
_WORD_UNITS = [(re.compile(form, re.IGNORECASE), frozenset(units.split())) for form, units in _WORDS.items()]

_MONTHS = (
    *("jan gen ene", "feb fev fév", "mar mär maa", "apr abr avr", "may mai mag maj mei", "jun juin giu"),
    *("jul juil lug", "aug aoû aou ago", "sep set", "oct okt ott out", "nov", "dec dez dic déc"),
)
"""What the names of each month begin with, in English, German, French, Spanish, Italian, Portuguese and Dutch."""
_ORDINAL_WORDS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third twenty-fourth "
    "twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first"
)
_ORDINALS = _ORDINAL_WORDS.split()
_NOT_A_MONTH = frozenset({"and", "from", "the", "until"})
_NEAR_CHARS = 40
"""How far from its year, characters, the day and the month of a date stand at most."""
_SHORT_YEARS = range(1930, 2070)
"""Years that people write with two digits."""
_BUDDHIST = 543
"""How many years the calendar of Thailand is ahead."""
_ERAS = {"令和": 2018, "平成": 1988, "昭和": 1925, "民國": 1911, "民国": 1911}
"""Eras that years are counted in, each with the year before its first."""
CLAUSE_NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,3}){1,4}\.?")
"""What the number of a clause looks like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mention:
    """A number of an answer."""

    text: str
    numbers: frozenset[float]
    """What it may stand for: "4,850" is 4850, or 4.85 in other countries."""
    units: frozenset[str]
    """What its unit may stand for; empty if no known unit stands beside it."""


def has_grounds(value_type: ValueType) -> bool:
    """Whether values of a type are checked against their answers."""
    return value_type.type is AnswerType.DATE or bool(value_type.unit)


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
    if value.status is ValueStatus.OK and value.value is not None and has_grounds(value_type):
        if value_type.type is AnswerType.DATE:
            problem = date_misfit(date.fromisoformat(json.loads(value.value)), answer=answer, context=context)
        elif value.number is not None:
            problem = unit_misfit(value.number, unit=value_type.unit, answer=answer)
            if problem is None and CLAUSE_NUMBER.fullmatch(answer.strip()):
                problem = clause_misfit(answer, texts=read_texts())
    return value if problem is None else TypedValue(status=ValueStatus.INVALID, problem=problem)


def unit_misfit(number: float, *, unit: str, answer: str) -> str | None:
    """Why a number in a unit can't come from the answer; None if it can.

    An answer without a unit is not judged, nor is a unit that is not known. A time in another unit is converted if that
    is sure: 24 months are 2 years, but 3 months have no certain number of days.
    """
    asked, number = _units_named(unit), abs(number)
    if not asked:
        return None
    mentions = list(_mentions(answer))
    fitting = [each for each in mentions if each.units & asked]
    others = [each for each in mentions if each.units and not each.units & asked]
    if any(_is_among(number, each.numbers) for each in mentions if each in fitting or not each.units):
        return None
    if any(_is_converted(number, asked, each) for each in others):
        return None
    against = [each for each in others if _is_among(number, each.numbers)] or ([] if fitting else others)
    return f"the answer has {against[0].text!r}, which is not in {unit}" if against else None


def date_misfit(day: date, *, answer: str, context: str) -> str | None:
    """Why a date can't come from the answer; None if it can: day, month and year stand there.

    `context`, the notes that the answer rests on, may have what the answer leaves out: the year of a day and a month,
    or the whole date of an answer such as "the Effective Date".
    """
    if _has_date(answer, day):
        return None
    numbers = {int(each) for each in re.findall(r"\d+", answer)}
    is_quantity = any(each.units for each in _mentions(answer))
    if not is_quantity and numbers <= {day.year, day.month, day.day} and _has_date(context, day):
        return None
    has_year = re.search(rf"(?<!\d){day.year}(?!\d)", context)
    if has_year and numbers == {day.day} and _names_month(answer, day.month):
        return None
    return f"{answer[:100]!r} does not have the day, month and year of {day.isoformat()}"


def clause_misfit(answer: str, *, texts: Sequence[str]) -> str | None:
    """Why an answer is not a number in a unit: in the texts it stands for clauses alone."""
    number = answer.strip().rstrip(".")
    whole = rf"(?<![\d.,]){re.escape(number)}(?![\d,]|\.\d)"
    head = rf"(?:^|\n)[ \t]*{whole}\.?\s+\W{{0,3}}[A-Z]"
    reference = rf"(?:\b(?:clause|section|article|paragraph)s?|§)\s*{whole}"
    num_places = sum(len(re.findall(whole, text)) for text in texts)
    num_clauses = sum(len(re.findall(rf"{head}|(?i:{reference})", text)) for text in texts)
    return f"{number!r} is the number of a clause" if 0 < num_places == num_clauses else None


def _mentions(answer: str) -> Iterator[_Mention]:
    for found in _MENTION.finditer(_plain(answer)):
        named = found["after"] or found["before"]
        yield _Mention(
            text=found[0].strip(),
            numbers=_numbers_of(found["number"], scale=(found["scale"] or "").strip().lower()),
            units=_unit_of(named) if named else frozenset(),
        )


def _units_named(unit: str) -> frozenset[str]:
    """What the words of a question's unit may stand for, such as those of `USD per month`."""
    if unit.strip().upper() in CURRENCIES:
        return frozenset({unit.strip().upper()})
    return frozenset().union(*(_unit_of(found[0]) for found in _NAMED.finditer(unit)))


def _unit_of(name: str) -> frozenset[str]:
    if name in CURRENCIES:
        return frozenset({name})
    if (units := _SYMBOLS.get(name.upper())) is not None:
        return frozenset(units.split())
    return next((units for form, units in _WORD_UNITS if form.fullmatch(name)), frozenset())


def _numbers_of(written: str, *, scale: str) -> frozenset[float]:
    if not written[0].isdigit():
        plain = {float(_number_in_words(written))}
    else:
        digits = re.sub(r"['’\s]", "", written)
        as_english, as_german = digits.replace(",", ""), digits.replace(".", "").replace(",", ".")
        plain = {float(each) for each in (as_english, as_german) if re.fullmatch(r"\d+(\.\d+)?", each)}
    return frozenset(plain | {each * _SCALES[scale] for each in plain if scale})


def _number_in_words(words: str) -> int:
    total = part = 0
    for word in re.findall(r"[a-z]+", words.lower()):
        if word in _SMALL:
            part += _SMALL[word]
        elif word == "hundred":
            part = max(part, 1) * 100
        elif word in _SCALES:
            total, part = total + max(part, 1) * _SCALES[word], 0
    return total + part


def _is_among(number: float, numbers: frozenset[float]) -> bool:
    return any(math.isclose(number, each, rel_tol=1e-9) for each in numbers)


def _is_converted(number: float, asked: frozenset[str], mention: _Mention) -> bool:
    """Whether a number in an asked unit of time is exactly as long as what the answer says in another one."""
    for lengths in (_MONTHS_IN, _SECONDS_IN):
        there = {each * lengths[unit] for unit in mention.units & lengths.keys() for each in mention.numbers}
        if any(_is_among(number * lengths[unit], frozenset(there)) for unit in asked & lengths.keys()):
            return True
    return False


def _plain(text: str) -> str:
    """A text with its compatible characters and digits of any script as the usual ones."""
    text = unicodedata.normalize("NFKC", text)
    return "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in text)


def _has_date(text: str, day: date) -> bool:
    """Whether day, month and year of a date stand near each other, in any order and language."""
    text = _plain(text)
    if re.search(rf"(?<!\d){day:%Y%m%d}(?!\d)", text):
        return True
    years = [str(day.year), str(day.year + _BUDDHIST), *(f"{era}{day.year - zero}" for era, zero in _ERAS.items())]
    years += [f"{day.year % 100:02}"] if day.year in _SHORT_YEARS else []
    for found in re.finditer(rf"(?<!\d)(?:{'|'.join(years)})(?!\d)", text):
        near = text[max(0, found.start() - _NEAR_CHARS) : found.start()] + " | "
        near += text[found.end() : found.end() + _NEAR_CHARS]
        if _has_day_and_month(near, day) or _has_unknown_month(text, day, year=found[0]):
            return True
    return False


def _has_day_and_month(near: str, day: date) -> bool:
    numbers = [int(each) for each in re.findall(r"\d+", near)]
    if day.day in numbers:
        numbers.remove(day.day)
    elif not re.search(rf"(?<![\w-]){_ORDINALS[day.day - 1]}\b", near, re.IGNORECASE):
        return False
    return day.month in numbers or _names_month(near, day.month)


def _names_month(text: str, month: int) -> bool:
    stems = tuple(_MONTHS[month - 1].split())
    return any(word.startswith(stems) for word in re.findall(r"[^\W\d_]{3,}", text.casefold()))


def _has_unknown_month(text: str, day: date, *, year: str) -> bool:
    """Whether a word that is not one of the months above stands between day and year, as most languages write it."""
    number, word, small = rf"(?<!\d)0?{day.day}(?!\d)", r"(\S{3,}?)", r"(?:\S{1,2}\s+)?"
    forms = rf"{number}\S{{0,3}}\s+{small}{word},?\s+{small}{year}(?!\d)", rf"(?<!\d){year}\S?\s+{word}\s+{number}"
    words = [found[1].casefold() for form in forms for found in re.finditer(form, text)]
    known = {word for word in words if any(_names_month(word, month) for month in range(1, 13))}
    others = [word for word in words if word not in known | _NOT_A_MONTH and not _unit_of(word)]
    return any(not re.search(r"\d", word) for word in others)
