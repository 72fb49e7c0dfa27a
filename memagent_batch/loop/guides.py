"""What a completion may be: the constraint under which an engine decodes a follow-up question."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Any

from memagent_batch.loop.follow_ups.json_schemas import JsonValue, engine_schema, example_value, fits

MAX_CANDIDATES = 20
"""Most log-probabilities of one token that engines give by default."""


class GuideKind(StrEnum):
    """How a guide says what may be written."""

    CHOICE = "choice"
    """One of a few texts."""
    REGEX = "regex"
    """A text that a regular expression matches as a whole."""
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A constraint on one completion. The engine decodes it greedily: what may be drawn was drawn before.

    Exactly one of the first three fields is set. Make it with `choice_guide`, `regex_guide` or `json_guide`.
    """

    choices: tuple[str, ...] = ()
    """Texts; the completion is one of them."""
    regex: str = ""
    """The expression, in the part of the syntax that xgrammar knows: groups, alternatives, classes, repeats."""
    json_schema: str = ""
    """The JSON Schema, as JSON text; engines are given it as `sent_json_schema`."""
    example: str
    """A text that is allowed, which the engine without a model writes."""

    @property
    def kind(self) -> GuideKind:
        """Which of the three it is."""
        if self.choices:
            return GuideKind.CHOICE
        return GuideKind.REGEX if self.regex else GuideKind.JSON

    def sent_json_schema(self) -> dict[str, Any]:
        """The JSON Schema in the form that engines keep to."""
        return engine_schema(json.loads(self.json_schema))

    def allows(self, text: str) -> bool:
        """Whether a completion may be this text."""
        if self.choices:
            return text in self.choices
        if self.regex:
            return re.fullmatch(self.regex, text) is not None
        return fits(text, schema=json.loads(self.json_schema))

    @property
    def constraint(self) -> JsonValue:
        """The choices, the expression or the schema, as engines take it under the name of the kind."""
        return list(self.choices) or self.regex or self.sent_json_schema()

    def identity(self) -> dict[str, JsonValue]:
        """What decides a result, as JSON values."""
        return {"kind": self.kind.value, "guide": self.constraint}


def choice_guide(*choices: str) -> Guide:
    """A guide to one of these texts."""
    return Guide(choices=choices, example=choices[0])


def regex_guide(regex: str, *, example: str) -> Guide:
    """A guide to a text that the expression matches as a whole, such as the example."""
    return Guide(regex=regex, example=example)


def json_guide(schema: Mapping[str, Any]) -> Guide:
    """A guide to a JSON value that fits the schema; the order of its properties is that in which they are written."""
    example = json.dumps(example_value(schema), ensure_ascii=False, separators=(",", ":"))
    return Guide(json_schema=json.dumps(schema, ensure_ascii=False, separators=(",", ":")), example=example)


def number_regex(largest: int) -> str:
    """An expression that matches the whole numbers from 1 to `largest`, without leading zeros.

    Raises:
        ValueError: `largest` is below 1.
    """
    if largest < 1:
        raise ValueError(f"there is no number from 1 to {largest}")
    digits = str(largest)
    parts = ["[1-9]" + "[0-9]" * (length - 1) for length in range(1, len(digits))]
    for place, digit in enumerate(digits):  # as many digits: equal to the largest up to one, which is below its
        least = 1 if place == 0 else 0
        if int(digit) > least:
            below = f"[{least}-{int(digit) - 1}]" if int(digit) - 1 > least else str(least)
            parts.append(digits[:place] + below + "[0-9]" * (len(digits) - place - 1))
    return f"({'|'.join([*parts, digits])})"


def num_candidates(guide: Guide | None, *, logprobs: bool) -> int | None:
    """Tokens beside the one that is written whose log-probability an engine is asked for; None where for none at all.

    Twice the menu, since some tokenisers have two tokens for one digit; engines give no more than `MAX_CANDIDATES`.
    """
    if guide is not None and guide.choices:
        return min(2 * len(guide.choices), MAX_CANDIDATES)
    return 0 if logprobs else None


def menu_logprobs(guide: Guide | None, found: Iterable[tuple[str, float]]) -> tuple[float, ...] | None:
    """Log-probabilities of the choices over these alone; None where one of them is not a single token.

    A choice of several characters may be written as one token or as several: what could come first says too little.
    Some of the texts that were `found`, the tokens that could have come first, stand for no choice.
    """
    shares: dict[str, float] = {}
    for text, logprob in found:
        shares[text] = _added(shares.get(text, -math.inf), logprob)
    choices = guide.choices if guide is not None else ()
    if not choices or any(len(choice) > 1 for choice in choices):
        return None
    if any(shares.get(choice, -math.inf) == -math.inf for choice in choices):
        return None
    menu = [shares[choice] for choice in choices]
    whole = reduce(_added, menu)
    return tuple(logprob - whole for logprob in menu)


def _added(one: float, other: float) -> float:
    """The logarithm of the sum of two numbers, from theirs."""
    high, low = max(one, other), min(one, other)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
