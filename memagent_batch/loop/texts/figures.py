"""Numbers and dates that a text states, in the notations and words of common languages.

Where a notation can be read in two ways, such as 1.500 or 03/04/2024, both readings are kept.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import product

_MONTHS = (
    "january januar janvier enero gennaio janeiro januari stycznia января ledna tammikuuta janner",
    "february februar fevrier febrero febbraio fevereiro februari lutego февраля unora helmikuuta",
    "march marz mars marzo marco maart mrt marca marts марта brezna maaliskuuta mrz",
    "april avril abril aprile kwietnia апреля dubna huhtikuuta",
    "may mai mayo maggio maio mei maja мая kvetna toukokuuta",
    "june juni juin junio giugno junho czerwca июня cervna kesakuuta",
    "july juli juillet julio luglio julho lipca июля cervence heinakuuta",
    "august aout agosto augustus sierpnia augusti августа srpna elokuuta",
    "september septembre septiembre settembre setembro wrzesnia сентября zari syyskuuta",
    "october oktober octobre octubre ottobre outubro pazdziernika октября rijna lokakuuta",
    "november novembre noviembre novembro listopada ноября marraskuuta",
    "december dezember decembre diciembre dicembre dezembro grudnia декабря prosince joulukuuta",
)
"""Names of the months in some languages, in lower case and without accents. Three letters or more may stand for one."""
_MONTHS_BY_WORD: dict[str, set[int]] = {}
for _month, _names in enumerate(_MONTHS, start=1):
    for _name in _names.split():
        for _length in range(3, len(_name) + 1):
            _MONTHS_BY_WORD.setdefault(_name[:_length], set()).add(_month)
_ORDINAL_WORDS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third twenty-fourth "
    "twenty-fifth twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first"
)
_ORDINALS = {word: number for number, word in enumerate(_ORDINAL_WORDS.split(), start=1)}
_ORDINAL = re.compile(rf"\b(?:{'|'.join(sorted(_ORDINALS, key=len, reverse=True))})\b")
_WORD = r"(?P<month>[^\W\d_]{3,})"
_GAP = r"[\s,./-]+(?:(?:of|de|del|the year)\s+)*"
_DATES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<!\d)(?P<year>\d{4})\s?[-/.年년]\s?(?P<month>\d{1,2})\s?[-/.月월]\s?(?P<day>\d{1,2})(?!\d)",
        r"(?<!\d)(?P<year>[12]\d{3})(?P<month>0[1-9]|1[0-2])(?P<day>[0-3]\d)(?!\d)",
        r"(?<![\d.,])(?P<day>\d{1,2})\s?(?P<mark>[-./])\s?(?P<month>\d{1,2})\s?(?P=mark)\s?(?P<year>\d{4}|\d\d)(?![.,]?\d)",
        rf"(?<!\d)(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|re|[eoa])?\.?(?:[\s./-]|(?:day|of|de|den|das)\s)*{_WORD}"
        rf"(?:{_GAP}(?P<year>\d{{4}}(?!\d))|[\s./-]*['./-](?P<short>\d\d)(?!\d))?",
        rf"(?<!\d)(?P<year>\d{{4}})[\s,./-]+{_WORD}[\s,./-]+(?P<day>\d{{1,2}})(?!\d)",
        rf"(?<![^\W\d_]){_WORD}\.?[\s-]+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:{_GAP}(?P<year>\d{{4}})(?!\d))?",
    )
)
_FIRST_DAY = re.compile(
    r"(?<!\d)(\d{1,2})(?:st|nd|rd|th|er)?\.?\s*(?:[-–]|to|and|until|bis|und|au|et|al|y|e|a|t/m)\s*$"
)
"""The first day of a span whose month stands behind its last day."""

_CURRENCIES = "AED AUD BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF INR JPY KRW MXN NOK NZD PLN RUB SAR SEK SGD TRY USD ZAR"
_UNITS = {
    "us$": "USD",
    "$ dollar dollars": "AUD CAD HKD MXN NZD SGD USD",
    "€ euro euros": "EUR",
    "£ pound pounds": "GBP",
    "¥ yen yuan": "CNY JPY",
    "franken sfr": "CHF",
    "₹ rs rupees": "INR",
    "zł": "PLN",
    "% percent prozent procent pct": "percent",
    "‰ promille": "permille",
    "bp bps basispunkte": "bp",
    "year years jahr jahre jahren an ans annee annees ano anos anno anni jaar lat": "year",
    "month months monat monate monaten mois mes meses mese mesi maand maanden miesiecy": "month",
    "week weeks woche wochen semaine semaines semana semanas settimana settimane weken": "week",
    "day days tag tage tagen jour jours dia dias giorno giorni dag dagen dni": "day",
    "hour hours stunde stunden heure heures hora horas ora ore uur": "hour",
}
"""Names, and the units that they may stand for."""
_UNIT_NAMES = {name: frozenset(units.split()) for names, units in _UNITS.items() for name in names.split()}
_UNIT_NAMES |= {code.lower(): frozenset({code}) for code in _CURRENCIES.split()}
_MONEY = frozenset(_CURRENCIES.split())
_SIZES = ({"year": 12, "month": 1}, {"week": 168, "day": 24, "hour": 1}, {"percent": 100, "permille": 10, "bp": 1})
"""Units that are converted into each other without a doubt, with their sizes."""
_PHRASES = {
    r"p(?:er|our|or) c(?:en|ie)nto?": "percent",
    r"basis points?": "bp",
    r"mil (?:millones|milhoes)": "milliarden",
    r"and an? half": "and 0.5",
    r"half an?": "0.5",
}
"""Names of several words, and what stands for them."""

_SCALE_WORDS: dict[tuple[float, ...], str] = {
    (1e2,): "hundred",
    (1e3,): "k t thousand thousands tsd thsd tausend mille mil mila duizend tys тыс 千",
    (1e4,): "万 萬",
    (1e5,): "lakh",
    (
        1e6,
    ): "m mn mm mio mln mill million millions millionen millones millon milioni milione milhao milhoes miljoen млн",
    (1e7,): "crore",
    (1e8,): "億 亿",
    (1e9,): "b bn mrd mld milliarde milliarden milliard milliards miliardi miljard млрд",
    (1e9, 1e12): "billion billions billionen",
}
_SCALES = {word: factors for factors, words in _SCALE_WORDS.items() for word in words.split()}
"""Words and letters behind a number, and what they may multiply it by."""
_COUNTS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
    "eins zwei drei vier funf sechs sieben acht neun zehn elf zwolf dreizehn vierzehn funfzehn sechzehn",
    "un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
    "uno dos tres cuatro cinco seis siete ocho nueve diez 11 doce trece catorce quince dieciseis",
    "uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici",
    "um dois tres quatro cinco seis sete oito nove dez 11 doze treze catorze quinze dezesseis",
    "een twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien vijftien zestien",
)
"""Words for 1, 2, 3 and so on; "once" is seldom a number."""
_TENS = (
    "twenty thirty forty fifty sixty seventy eighty ninety",
    "zwanzig dreissig vierzig funfzig sechzig siebzig achtzig neunzig",
    "vingt trente quarante cinquante soixante",
    "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
    "venti trenta quaranta cinquanta sessanta settanta ottanta novanta",
    "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa",
    "twintig dertig veertig vijftig zestig zeventig tachtig negentig",
)
_GERMAN_ONES = [(number, word[:3] if word == "eins" else word) for number, word in enumerate(_COUNTS[1].split()[:9], 1)]
_NUMBERS: dict[str, float] = {
    "zero": 0,
    "null": 0,
    **dict.fromkeys(("cent", "cien", "cento", "hundert", "honderd"), 100),
    **{word: number for words in _COUNTS for number, word in enumerate(words.split(), start=1)},
    **{word: 10 * number for words in _TENS for number, word in enumerate(words.split(), start=2)},
    **{
        f"{word}und{ten}": 10 * tens + one for tens, ten in enumerate(_TENS[1].split(), 2) for one, word in _GERMAN_ONES
    },
    **{f"{word}hundert": 100 * one for one, word in _GERMAN_ONES},
    **{f"{word}tausend": 1000 * one for one, word in _GERMAN_ONES},
}
"""Words for numbers, in lower case and without accents."""


KEPT_TEXTS = 8
"""Texts whose figures are kept, since all values of a JSON answer are looked for in the same few."""


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_DIGITS = r"(?:\d{1,3}(?:[ ']\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*|(?<![\w.,])[.,]\d+)"
_WORDS = rf"(?<!\w)(?:{_alternatives(_NUMBERS)})(?!\w)"
_SCALE = rf"(?:[千万萬億亿]|(?:{_alternatives(_SCALES)})(?![^\W\d_])\.?)"
_UNIT = rf"(?:{_alternatives(_UNIT_NAMES)})(?![^\W\d_])"
_CURRENCY = rf"(?:{_alternatives(name for name, units in _UNIT_NAMES.items() if units <= _MONEY)})"
_NUMBER = re.compile(
    rf"(?:(?<![^\W\d_])(?P<large>[tkm])?(?P<before>{_CURRENCY})\.?\s*(?P<in>{_SCALE}\s+)?)?(?P<minus>(?<![\w)])-)?"
    rf"(?P<number>(?<!\d)(?<!\d[.,])(?:{_DIGITS}|{_WORDS})"
    rf"(?:[\s-]*{_SCALE}(?:\s+and\s+{_WORDS})?|[\s-]+{_WORDS}|\s+and\s+0\.5)*)"
    r"(?:\s*\(\s*\d+\s*\))?"
    rf"(?:[\s-]+(?:business|calendar|working|clear|full|whole|complete|consecutive|more|further|additional)\b)*"
    rf"[\s-]*(?P<after>(?!{_CURRENCY}\s?\d)(?P<larger>[tkm](?={_CURRENCY}))?(?:{_UNIT}))?"
)
"""A number as people write it, with a unit before or behind it."""
_ATOM = re.compile(rf"{_DIGITS}|{_WORDS}|{_SCALE}")
_LETTERS = frozenset("kmbt")
"""Scales that may as well be a unit, or the letter of a list, unless money is spoken of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A day as a text names it."""

    day: int
    month: int
    year: int | None = None
    """None where the text names no year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number as a text names it."""

    values: frozenset[float]
    """What it may be, its scale included: 1,500 is 1500 or 1.5, and 2k is 2000."""
    unscaled: frozenset[float] = frozenset()
    """The values if the letter behind it is a unit and no scale: 2 for "2 m", which may be metres or millions."""
    units: frozenset[str] = frozenset()
    """What its unit may be; empty where no known unit stands beside it."""
    is_scaled: bool = False
    is_negative: bool = False


def states_number(text: str, value: float, *, unit: str = "", scales_apart: bool = False) -> bool:
    """Whether a text states a number in a unit, in any notation.

    A number beside another unit is another number, unless one is converted into the other without a doubt: 2 years are
    24 months. `scales_apart`: whether a scale anywhere in the text, such as "in thousands", may belong to each number.
    """
    asked, factors = _units_and_factors(unit)
    if scales_apart:
        factors |= {factor / scale for factor in factors for scale in _scales(_fold(text), has_letters=False)}
    return any(_is_number(number, value, asked=asked, factors=factors) for number in numbers_in(text))


def states_date(text: str, value: date) -> bool:
    """Whether a text states a date, in any notation."""
    return Day(day=value.day, month=value.month, year=value.year) in days_in(text)


@lru_cache(maxsize=KEPT_TEXTS)
def numbers_in(text: str) -> tuple[Number, ...]:
    """The numbers of a text, in digits or in words; day and year of its dates have the unit `date`."""
    plain, numbers = _fold(text), list[Number]()
    for start, end, days in [*_find_dates(plain)]:
        plain = f"{plain[:start]}{'|' * (end - start)}{plain[end:]}"
        values = frozenset(float(each) for day in days for each in (day.day, day.year) if each is not None)
        numbers.append(Number(values=values, units=frozenset({"date"})))
    return (*numbers, *map(_parse_number, _NUMBER.finditer(_replace_phrases(plain))))


@lru_cache(maxsize=KEPT_TEXTS)
def days_in(text: str) -> tuple[Day, ...]:
    """The days that a text names, in its order. One without a year has that of the next one that has a year."""
    plain = _ORDINAL.sub(lambda match: str(_ORDINALS[match[0]]), _fold(text))
    days: list[Day] = []
    year: int | None = None
    for _, _, named in sorted(_find_dates(plain), key=lambda span: span[0], reverse=True):
        year = next((day.year for day in named if day.year is not None), year)
        days = [*(day if day.year else Day(day=day.day, month=day.month, year=year) for day in named), *days]
    return tuple(days)


def _fold(text: str) -> str:
    """A text in lower case without accents and footnote marks, with digits of any script and fractions as decimals."""
    text = re.sub("[⁰¹²³⁴-⁹]", " ", text)
    text = re.sub(
        "(\\d{0,9})\\s?([¼-¾⅐-⅞])", lambda match: str(int(match[1] or 0) + unicodedata.numeric(match[2])), text
    )
    text = unicodedata.normalize("NFKC", text).translate(
        {0x2019: "'", 0x2212: "-", 0x2010: "-", 0x2011: "-", 0x131: "i"}
    )
    text = "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in text.casefold())
    plain = "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))
    return unicodedata.normalize("NFC", plain)


def _find_dates(plain: str) -> Iterator[tuple[int, int, list[Day]]]:
    """Spans that name a day, and what each may be."""
    for pattern in _DATES:
        taken = plain
        for match in pattern.finditer(plain):
            if not (days := list(_parse_days(match))):
                continue
            taken = f"{taken[: match.start()]}{'|' * len(match[0])}{taken[match.end() :]}"
            if earlier := _FIRST_DAY.search(plain[max(0, match.start() - 30) : match.start()]):
                days = [*(Day(day=int(earlier[1]), month=each.month, year=each.year) for each in days), *days]
            yield match.start(), match.end(), days
        plain = taken


def _parse_days(match: "re.Match[str]") -> Iterator[Day]:
    parts = match.groupdict()
    day, year = int(parts["day"]), parts["year"] or parts.get("short")
    whole_year = None if year is None else int(year) + (0 if len(year) == 4 else 2000 if int(year) < 70 else 1900)
    if not parts["month"].isdigit():
        readings = [(day, month) for month in sorted(_MONTHS_BY_WORD.get(parts["month"], ()))]
    else:
        other = int(parts["month"])
        readings = [(day, other), (other, day)] if parts.get("mark") else [(day, other)]
    for day, month in dict.fromkeys(readings):
        if 1 <= day <= 31 and 1 <= month <= 12:
            yield Day(day=day, month=month, year=whole_year)


def _parse_number(match: "re.Match[str]") -> Number:
    """The number of a match of `_NUMBER`."""
    units = _UNIT_NAMES.get((match["after"] or "")[len(match["larger"] or "") :] or match["before"] or "", frozenset())
    atoms = [_parse_atom(each[0]) for each in _ATOM.finditer(match["number"])]
    around = [_SCALES[each.strip().rstrip(".")] for each in (match["large"], match["larger"], match["in"]) if each]
    letter = re.search(r"[^\W\d_]+$", match["number"])
    is_unsure = bool(letter and letter[0] in _LETTERS) and not units & _MONEY
    return Number(
        values=frozenset(_possible_totals([*atoms, *((True, each) for each in around)])),
        unscaled=frozenset(_possible_totals(atoms[:-1])) if is_unsure else frozenset(),
        units=units,
        is_scaled=bool(around) or any(is_scale for is_scale, _ in atoms),
        is_negative=match["minus"] is not None,
    )


def _parse_atom(written: str) -> tuple[bool, tuple[float, ...]]:
    """Whether a part of a number multiplies what stands before it, and what it may be."""
    if written[0].isdigit() or written[1:2].isdigit():
        return False, _read_digits(written)
    word = written.rstrip(".")
    return (True, _SCALES[word]) if word in _SCALES else (False, (_NUMBERS[word],))


def _possible_totals(atoms: list[tuple[bool, tuple[float, ...]]]) -> Iterator[float]:
    for chosen in product(*(values for _, values in atoms[:8])):
        total = current = 0.0
        for (is_scale, _), value in zip(atoms, chosen, strict=False):
            if not is_scale:
                current += value
            elif value == 100:
                current = (current or 1) * value
            elif current or not total:
                total, current = total + (current or 1) * value, 0.0
            else:
                total *= value
        yield total + current


def _read_digits(written: str) -> tuple[float, ...]:
    """What digits with marks between them may be."""
    digits = re.sub("[ ']", "", written)
    marks = re.findall("[.,]", digits)
    if not marks:
        return (float(digits),)
    *groups, last = re.split("[.,]", digits)
    whole, decimal = float("".join([*groups, last])), float(f"{''.join(groups) or '0'}.{last}")
    is_grouped = len(last) == 3 and all(len(group) in (2, 3) for group in groups[1:]) and groups[0].lstrip("0") != ""
    if len(marks) == 1:
        return (whole, decimal) if is_grouped and len(groups[0]) <= 3 else (decimal,)
    if len(set(marks)) == 1:
        return (whole,) if is_grouped else tuple(float(part) for part in (*groups, last) if part)
    return (decimal,) if marks.count(marks[-1]) == 1 else (whole,)


def _replace_phrases(plain: str) -> str:
    for phrase, name in _PHRASES.items():
        plain = re.sub(rf"\b{phrase}\b", name, plain)
    return plain


def _units_and_factors(unit: str) -> tuple[frozenset[str], set[float]]:
    """The units that a question names, and what a value in them is multiplied by: 1000 for TEUR."""
    plain = _replace_phrases(_fold(unit))
    names = re.findall(rf"(?<![^\W\d_])[tkm]?({_UNIT})", plain)
    units = frozenset[str]().union(*(_UNIT_NAMES[name] for name in names))
    return units, _scales(plain, has_letters=bool(units & _MONEY)) or {1.0}


def _scales(plain: str, *, has_letters: bool) -> set[float]:
    """What the scales in a text stand for; `has_letters`: whether a letter alone is one."""
    names = re.findall(rf"(?<![^\W\d_])(?:[tkm](?={_CURRENCY})|{_SCALE})", plain)
    return {
        scale
        for name in names
        if has_letters or len(name) > 1 or re.search(rf"(?<![^\W\d_]){name}{_CURRENCY}", plain)
        for scale in _SCALES[name.rstrip(".")]
    }


def _is_number(number: Number, value: float, *, asked: frozenset[str], factors: set[float]) -> bool:
    """Whether a number is a value in the asked units, whose scale is one of the factors."""
    ratios, is_other = set(factors), bool(asked and number.units and not asked & number.units)
    if is_other:
        pairs = [(sizes, one, other) for sizes in _SIZES for one in asked for other in number.units]
        ratios = {sizes[one] / sizes[other] for sizes, one, other in pairs if one in sizes and other in sizes}
    elif not number.is_scaled and not number.units:
        ratios.add(1.0)
    if not asked and "percent" in number.units:
        ratios.add(100.0)
    stated = number.values | (frozenset() if asked & _MONEY else number.unscaled)
    is_possible = value <= 0 or not number.is_negative
    return is_possible and any(math.isclose(abs(value) * ratio, each) for ratio in ratios for each in stated)
