"""Placeholders of digits in format codes: `#,##0.00`, `0.00E+00` and `# ??/??`."""

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from math import floor
from typing import Protocol

from memagent_batch.data.ingest.readers.format_codes import Token, literal, literals

EXACT = Context(prec=700, rounding=ROUND_HALF_UP)
"""Enough digits for the largest and smallest numbers of a cell."""
MOST_DIGITS = 28
"""Digits of Python's ordinary decimal numbers."""
HALF = Fraction(1, 2)
POINT, COMMA, SLASH = ("symbol", "."), ("symbol", ","), ("symbol", "/")


class Pattern(Protocol):
    """Writes the digits of numbers that are not negative."""

    scale: int
    """Thousands by which a number is divided, as a power."""

    def write(self, magnitude: Decimal) -> tuple[str, Decimal]:
        """Returns the digits of a number, and the number that they stand for."""
        ...


def pattern_of(tokens: Sequence[Token]) -> Pattern:
    """Returns how a number is written by the placeholders of a section, such as `#,##0.00`."""
    if any(kind == "exponent" for kind, _ in tokens):
        return ExponentPattern(tokens)
    return FractionPattern(tokens) if SLASH in tokens else NumberPattern(tokens)


class NumberPattern:
    """Writes numbers by placeholders of digits, such as `#,##0.00,,`."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        point = tokens.index(POINT) if POINT in tokens else len(tokens)
        self._has_point = point < len(tokens)
        integer, decimals = tokens[:point], tokens[point + 1 :]
        commas = [index for index, token in enumerate(integer) if token == COMMA]
        last_digit = max((index for index, (kind, _) in enumerate(integer) if kind == "digit"), default=-1)
        self._is_grouped = any(index < last_digit for index in commas)
        trailing = [token for token in decimals if token == COMMA]
        self.scale = sum(index > last_digit for index in commas) + len(trailing)
        self._integer = [token for token in integer if token != COMMA]
        self._decimals = [token for token in decimals if token != COMMA]
        self.places = sum(kind == "digit" for kind, _ in decimals)
        code = "".join(text for _, text in self._integer if text in {"0", "#"})
        decimals_code = "".join(text for _, text in self._decimals)
        is_simple = len(code) == len(self._integer) and code.endswith("0") and not code[:-1].strip("#")
        is_simple = is_simple and decimals_code == "0" * self.places and self._has_point == (self.places > 0)
        self._format = f"{',' if self._is_grouped else ''}.{self.places}f" if is_simple else None
        """The format specification of Python that writes the same digits; None if there is none."""

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
                pieces.append(literal((kind, text)))
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
                pieces.append(literal((kind, text)))
                continue
            is_shown = position < needed or text == "0"
            pieces.append(digits[position] if is_shown else " " if text == "?" else "")
            position += 1
        return "".join(pieces)


class ExponentPattern:
    """A number between 1 and 10, or 1 and 1000, and an exponent: `0.00E+00`, `##0.0E+0`."""

    scale = 0

    def __init__(self, tokens: Sequence[Token]) -> None:
        at = next(index for index, (kind, _) in enumerate(tokens) if kind == "exponent")
        mantissa, self._has_plus = tokens[:at], "+" in tokens[at][1]
        integer = mantissa[: mantissa.index(POINT)] if POINT in mantissa else mantissa
        self._step = max(1, sum(kind == "digit" for kind, _ in integer))
        self._mantissa, self._exponent = NumberPattern(mantissa), NumberPattern(tokens[at + 1 :])

    def write(self, magnitude: Decimal) -> tuple[str, Decimal]:
        """Returns the digits of a number that is not negative, and the number that they stand for."""
        exponent = magnitude.adjusted() // self._step * self._step if magnitude else 0
        if round_to(magnitude.scaleb(-exponent, EXACT), self._mantissa.places).adjusted() >= self._step:
            exponent += self._step
        text, shown = self._mantissa.write(magnitude.scaleb(-exponent, EXACT))
        sign = "-" if exponent < 0 else "+" if self._has_plus else ""
        return f"{text}E{sign}{self._exponent.write(Decimal(abs(exponent)))[0]}", shown.scaleb(exponent, EXACT)


class FractionPattern:
    """Writes numbers as fractions: with the whole number before (`# ??/??`), or without (`?/8`)."""

    scale = 0

    def __init__(self, tokens: Sequence[Token]) -> None:
        slash = tokens.index(SLASH)
        start = slash
        while start and tokens[start - 1][0] == "digit":
            start -= 1
        self._numerator, below = list(tokens[start:slash]), tokens[slash + 1 :]
        last_digit = max((index for index, (kind, _) in enumerate(tokens[:start]) if kind == "digit"), default=-1)
        self._whole = NumberPattern(tokens[: last_digit + 1]) if last_digit >= 0 else None
        self._between = literals(tokens[last_digit + 1 : start])
        is_fixed = any(kind != "digit" for kind, _ in below)
        self._fixed = int(literals(below)) if is_fixed and literals(below).isdecimal() else 0
        self._denominator = list(below)
        self._most = max(1, 10 ** len(below) - 1)

    def write(self, magnitude: Decimal) -> tuple[str, Decimal]:
        """Returns the nearest fraction to a number that is not negative, and the number that it stands for."""
        value = Fraction(magnitude)
        near = value.limit_denominator(self._most)
        if self._fixed:
            near = Fraction(floor(value * self._fixed + HALF), self._fixed)
        whole = near.numerator // near.denominator if self._whole else 0
        rest = near - whole
        below = self._fixed or rest.denominator
        above = int(rest * below)
        shown = Decimal(near.numerator) / near.denominator
        if self._whole is None:
            return self._fraction(above, below), shown
        text = self._whole.write(Decimal(whole))[0].strip()
        if above == 0 and ("digit", "0") not in self._numerator:
            return text or "0", shown
        return f"{text}{self._between if text else ''}{self._fraction(above, below)}", shown

    def _fraction(self, above: int, below: int) -> str:
        denominator = str(below) if self._fixed else NumberPattern(self._denominator).write(Decimal(below))[0]
        return f"{NumberPattern(self._numerator).write(Decimal(above))[0].strip() or '0'}/{denominator.strip()}"


def round_to(value: Decimal, places: int) -> Decimal:
    """Rounds to a number of decimal places, halves away from zero."""
    step = Decimal((0, (1,), -places))
    if value.adjusted() + places < MOST_DIGITS:
        return value.quantize(step, rounding=ROUND_HALF_UP)
    return value.quantize(step, context=EXACT)
