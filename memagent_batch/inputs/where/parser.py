"""The text of a filter, read from left to right."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.errors import InputError
from memagent_batch.inputs.where.conditions import And, Compare, Comparison, Condition, IsNull, Literal, Not, Or

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>"[^"]+")|(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.])"""
    r"""|(?P<word>[^\W\d][\w.]*)|(?P<sign><=|>=|<>|!=|==|=|<|>|~|\(|\)|,))"""
)

_SIGNS = {"<>": "!=", "==": "="}

_WORDS = frozenset({"and", "or", "not", "in", "is", "null", "between", "true", "false"})


def parse_where(text: str, *, option: str = "input.where") -> Condition:
    """The condition that a filter states.

    Args:
        text: The filter.
        option: What the user wrote it for, for messages.

    Raises:
        InputError: it is malformed; says where.
    """
    parser = _Parser(text, option=option)
    condition = parser.either()
    parser.require_end()
    return condition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    kind: str
    """text, quoted, number, word, sign, or end."""
    text: str
    position: int

    @property
    def word(self) -> str:
        """The word in small letters; empty where it is none."""
        return self.text.lower() if self.kind == "word" else ""


class _Parser:
    """Reads a filter from left to right: `or` binds less than `and`, `and` less than `not`."""

    def __init__(self, text: str, *, option: str) -> None:
        self._text, self._option = text, option
        self._tokens = [*_tokens(text, option=option), _Token(kind="end", text="its end", position=len(text))]
        self._next = 0

    def either(self) -> Condition:
        condition = self._both()
        while self._takes("or"):
            condition = Or(left=condition, right=self._both())
        return condition

    def require_end(self) -> None:
        if self._token.kind != "end":
            raise self._malformed(wanted="and, or, or its end")

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _both(self) -> Condition:
        condition = self._one()
        while self._takes("and"):
            condition = And(left=condition, right=self._one())
        return condition

    def _one(self) -> Condition:
        if self._takes("not"):
            return Not(of=self._one())
        if self._takes("("):
            condition = self.either()
            self._require(")")
            return condition
        return self._test()

    def _test(self) -> Condition:
        column = self._column()
        if self._takes("is"):
            is_not = self._takes("not")
            self._require("null")
            return Not(of=IsNull(column=column)) if is_not else IsNull(column=column)
        is_not = self._takes("not")
        if self._takes("in"):
            found = self._one_of(column)
        elif self._takes("between"):
            low = Compare(column=column, how=Comparison.AT_LEAST, value=self._value())
            self._require("and")
            found = And(left=low, right=Compare(column=column, how=Comparison.AT_MOST, value=self._value()))
        elif self._token.text in (*Comparison, *_SIGNS) and not is_not:
            return self._compared(column)
        else:
            raise self._malformed(wanted="=, !=, <, <=, >, >=, ~, in, between or is null")
        return Not(of=found) if is_not else found

    def _compared(self, column: str) -> Condition:
        sign = self._take().text
        how = Comparison(_SIGNS.get(sign, sign))
        if how is Comparison.MATCHES:
            self._require_expression()
        return Compare(column=column, how=how, value=self._value())

    def _require_expression(self) -> None:
        """Refuses what is not a regular expression in single quotes."""
        token = self._token
        try:
            if token.kind != "text":
                raise self._malformed(wanted="a regular expression in single quotes")
            pc.match_substring_regex(pa.scalar(""), token.text[1:-1].replace("''", "'"))
        except pa.ArrowInvalid as error:
            raise self._malformed(wanted=f"a regular expression ({' '.join(str(error).split())})") from error

    def _one_of(self, column: str) -> Condition:
        self._require("(")
        tests: list[Condition] = [Compare(column=column, how=Comparison.EQUAL, value=self._value())]
        while self._takes(","):
            tests.append(Compare(column=column, how=Comparison.EQUAL, value=self._value()))
        self._require(")")
        return reduce(lambda left, right: Or(left=left, right=right), tests)

    def _column(self) -> str:
        token = self._token
        if token.kind not in ("word", "quoted") or token.word in _WORDS:
            raise self._malformed(wanted="a column")
        return self._take().text.strip('"')

    def _value(self) -> Literal:
        token = self._token
        if token.kind == "text":
            return self._take().text[1:-1].replace("''", "'")
        if token.kind == "number":
            text = self._take().text
            return float(text) if set(".eE") & set(text) else int(text)
        if token.word in ("true", "false"):
            return self._take().word == "true"
        raise self._malformed(wanted="a text in single quotes, a number, true or false")

    def _takes(self, text: str) -> bool:
        """Takes the next token where it is this sign or word; whether it was."""
        is_it = text in (self._token.word, self._token.text if self._token.kind == "sign" else "")
        self._next += is_it
        return is_it

    def _require(self, text: str) -> None:
        if not self._takes(text):
            raise self._malformed(wanted=text)

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _malformed(self, *, wanted: str) -> InputError:
        return _malformed(self._text, self._token, wanted=wanted, option=self._option)


def _tokens(text: str, *, option: str) -> Iterator[_Token]:
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            rest = text[position:].lstrip()
            token = _Token(kind="sign", text=rest.split()[0], position=len(text) - len(rest))
            raise _malformed(text, token, wanted="a column, a value or a comparison", option=option)
        yield _Token(kind=found.lastgroup, text=found[found.lastgroup], position=found.start(found.lastgroup))
        position = found.end()


def _malformed(text: str, token: _Token, *, wanted: str, option: str) -> InputError:
    return InputError(
        f"{option}: {text!r}: {token.text!r} at character {token.position + 1} is not what can stand there; wanted: "
        f"{wanted}"
    )
