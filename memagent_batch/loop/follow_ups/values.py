"""The answer as a typed value: what the follow-up question `value` may write, and what it wrote.

A value that does not fit its type is `invalid`. Nothing is repaired.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import lru_cache
from typing import Any

from memagent_batch.loop.follow_ups.answer_types import LABEL_MARK, NOT_STATED_ENTRY, AnswerType, ValueType
from memagent_batch.loop.follow_ups.json_schemas import json_value, misfit
from memagent_batch.loop.guides import Guide, choice_guide, json_guide, number_regex, regex_guide
from memagent_batch.types import Completion, FinishReason

NONE = "none"
"""What is written where no label applies."""
ORDERED_LABELS = 30
"""Most labels whose numbers must keep their order, so that none can be written twice; the expression grows with the
square of their number."""
MAX_UNORDERED_LABELS = 30
"""Most labels that are chosen of more than these. One more can be written, and makes the value invalid: the list may
have been longer."""
NUMBER_FORM = r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,9})?"
"""A JSON number that a double holds, without an exponent."""
DATE = "[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
"""A date as ISO 8601 writes it; that the month has the day is checked afterwards."""
SHORT_VALUE_TOKENS = 32
"""Budget of a number, date or choice, tokens: one for each character, and an end token."""
VALUE_LABEL_TOKENS = 6
"""Budget of each label of several, tokens: three digits, comma, space."""


class ValueStatus(StrEnum):
    """What became of a value."""

    OK = "ok"
    """There is a value of the type that was asked for."""
    NOT_STATED = "not_stated"
    """The document does not say."""
    NOT_READ = "not_read"
    """What was read of the document does not say, and not all of it was: its source, or what the policy showed."""
    INVALID = "invalid"
    """What was written is cut, or does not fit the type; the response is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedValue:
    """An answer as a typed value; fields but `problem` are columns of the tables."""

    status: ValueStatus
    value: str | None = None
    """The value as JSON text; None if there is none."""
    boolean: bool | None = None
    number: float | None = None
    label: str | None = None
    problem: str | None = None


UNSTATED = frozenset({ValueStatus.NOT_STATED, ValueStatus.NOT_READ})
"""Statuses of answers that rest on no sentence."""
NOTHING_STATED = TypedValue(status=ValueStatus.NOT_STATED)


def stated(status: str | None, *, coverage: float | None, unread: str | None = None) -> str | None:
    """The status of a value: "not stated" needs a model that was shown all of a source that was read to its end."""
    is_whole = not unread and (coverage is None or coverage == 1)
    return status if is_whole or status != ValueStatus.NOT_STATED else ValueStatus.NOT_READ.value


def menu(value_type: ValueType) -> dict[str, str | None]:
    """Numbers that stand for the choices of a menu, and the choices; None is "not stated".

    All numbers have as many digits, so that none begins another one: 1 to 9, else from 10, else from 100. Up to nine
    choices each is one token in every tokeniser, and there is a distribution over them. Longer numbers are one token or
    several, and have the probability of the path that was written.
    """
    match value_type.type:
        case AnswerType.TEXT:
            choices: list[str | None] = ["stated"]
        case AnswerType.BOOL:
            choices = ["yes", "no"]
        case _:
            choices = [label.strip() for label in value_type.labels]
    if value_type.not_stated:
        choices.append(None)
    first = next(first for first in (1, 10, 100) if len(choices) <= 9 * first)
    return {str(number): choice for number, choice in enumerate(choices, start=first)}


@lru_cache(maxsize=1024)
def guide_for(value_type: ValueType) -> Guide | None:
    """What the value turn may write; None where the answer as it is is the value, and there is no such turn."""
    match value_type.type:
        case AnswerType.TEXT if not value_type.not_stated:
            return None
        case AnswerType.TEXT | AnswerType.BOOL | AnswerType.LABEL:
            return choice_guide(*menu(value_type))
        case AnswerType.LABELS:
            regex = f"{NONE}|{_subset_regex(_menu_numbers(value_type))}"
            return regex_guide(_or_not_stated(regex, value_type), example=NONE)
        case AnswerType.NUMBER:
            return regex_guide(_or_not_stated(NUMBER_FORM, value_type), example="0")
        case AnswerType.DATE:
            return regex_guide(_or_not_stated(DATE, value_type), example="1000-01-01")
        case AnswerType.JSON:
            schema = value_type.sent_schema()
            return json_guide({"anyOf": [schema, {"type": "null"}]} if value_type.not_stated else schema)


def format_instructions(value_type: ValueType) -> str:
    """What the prompt of the value turn says of the form; a JSON Schema as the user wrote it, descriptions included."""
    unless = f", or {NOT_STATED_ENTRY}" if value_type.not_stated else ""
    match value_type.type:
        case AnswerType.LABELS:
            lines = [f"{number} = {label}" for number, label in _menu_numbers(value_type).items()]
            return "\n".join([f"Write the numbers of all that apply in their order, or {NONE}{unless}:", *lines])
        case AnswerType.NUMBER:
            return f"Write the number{f' in {value_type.unit}' if value_type.unit else ''}{unless}."
        case AnswerType.DATE:
            return f"Write the date as YYYY-MM-DD{unless}."
        case AnswerType.JSON:
            schema = json.dumps(json.loads(value_type.schema), ensure_ascii=False, separators=(",", ":"))
            or_null = f", or null for {NOT_STATED_ENTRY}" if value_type.not_stated else ""
            return f"Write JSON of this schema{or_null}:\n{schema}"
    lines = [f"{number} = {choice or NOT_STATED_ENTRY}" for number, choice in menu(value_type).items()]
    return "\n".join(["Write one number:", *lines])


def completion_budget(value_type: ValueType, *, json_tokens: int) -> int:
    """Budget of the value turn, tokens; that of JSON is given."""
    match value_type.type:
        case AnswerType.JSON:
            return json_tokens
        case AnswerType.LABELS:
            return SHORT_VALUE_TOKENS + VALUE_LABEL_TOKENS * min(
                len(value_type.labels), max(ORDERED_LABELS, MAX_UNORDERED_LABELS + 1)
            )
    return SHORT_VALUE_TOKENS


def parse_value(completion: Completion, value_type: ValueType, *, answer: str | None) -> TypedValue:
    """The value that a value turn wrote.

    `answer` as it is is the value of type text.
    """
    written = completion.text
    if completion.finish_reason is FinishReason.LENGTH:
        return _invalid("it was cut at the turn's budget")
    match value_type.type:
        case AnswerType.TEXT | AnswerType.BOOL | AnswerType.LABEL:
            return _parse_menu(written, value_type, answer=answer)
        case AnswerType.JSON:
            return _parse_json(written, value_type)
    if value_type.not_stated and written == NOT_STATED_ENTRY:
        return NOTHING_STATED
    match value_type.type:
        case AnswerType.LABELS:
            return _parse_labels(written, value_type)
        case AnswerType.NUMBER:
            return _parse_number(written)
    return _parse_date(written)


def answered_value(answer: str | None, value_type: ValueType) -> TypedValue | None:
    """The value of an answer that is "not stated", a choice of its type, or some of its labels, and nothing else.

    What the value turn writes does not count then: small models copy a label better than they find its number.
    """
    if answer is None:
        return None
    if value_type.not_stated and says_not_stated(answer):
        return NOTHING_STATED
    match value_type.type:
        case AnswerType.BOOL | AnswerType.LABEL:
            texts = [answer]
        case AnswerType.LABELS:
            texts = [answer, answer.replace(", ", LABEL_MARK)]
        case _:
            texts = []
    values = [written_value(text, value_type) for text in texts]
    return next((value for value in values if value.status is not ValueStatus.INVALID), None)


def written_value(text: str, value_type: ValueType) -> TypedValue:
    """A reference, or an answer without a value turn, as a value.

    It is `yes` or `no`, a label, labels as a JSON list or with `|` between them, a number, a date as YYYY-MM-DD, JSON,
    or `not stated`.
    """
    written = text.strip()
    if value_type.not_stated and says_not_stated(text):
        return NOTHING_STATED
    match value_type.type:
        case AnswerType.TEXT:
            return text_value(text)
        case AnswerType.BOOL | AnswerType.LABEL:
            return _written_choice(written, value_type)
        case AnswerType.LABELS:
            return _written_labels(written, value_type)
        case AnswerType.NUMBER:
            return _parse_number(written)
        case AnswerType.DATE:
            return _parse_date(written)
        case AnswerType.JSON:
            return _parse_json(written, value_type)


def says_not_stated(text: str) -> bool:
    """Whether a text is the statement that the document does not say, and nothing else."""
    return " ".join(text.casefold().split()).rstrip(".") == NOT_STATED_ENTRY


def text_value(answer: str | None) -> TypedValue:
    """The answer as it is, as a value."""
    if answer is None:
        return _invalid("the response holds no answer")
    return TypedValue(status=ValueStatus.OK, value=json.dumps(answer, ensure_ascii=False))


def confidence(completion: Completion, guide: Guide, *, chosen: str | None = None) -> float | None:
    """Probability of what was chosen from a menu, over the menu alone; None where nothing was chosen.

    A choice of several tokens has the product of their probabilities, each over what the menu leaves open there. It is
    given the memory, not the document: a fact that was never noted yields a sure "no".

    `chosen`: the choice, if it is not the one that was written; several tokens that were not written have none.
    """
    chosen = completion.text if chosen is None else chosen
    if completion.finish_reason is FinishReason.LENGTH or chosen not in guide.choices:
        return None
    if completion.menu_logprobs is not None:
        return min(1.0, math.exp(completion.menu_logprobs[guide.choices.index(chosen)]))
    if completion.logprobs is None or chosen != completion.text:
        return None
    return min(1.0, math.exp(math.fsum(completion.logprobs)))


def menu_number(value: TypedValue, value_type: ValueType) -> str | None:
    """The number that stands for a value in the menu of its type; None if there is none."""
    chosen = value.label if value.boolean is None else "yes" if value.boolean else "no"
    if chosen is None and value.status is not ValueStatus.NOT_STATED:
        return None
    return next((number for number, choice in menu(value_type).items() if choice == chosen), None)


def values_equal(one: TypedValue, other: TypedValue) -> bool:
    """Whether two values of one type are equal: numbers as numbers, labels as sets, texts except for case and
    spaces.
    """
    return bool(_equality_key(one) == _equality_key(other))


def vote(values: Sequence[TypedValue]) -> TypedValue:
    """The value that most samples have, among those that are not invalid; `not_stated` where two are as frequent.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("there is nothing to vote on")
    groups: dict[Any, list[TypedValue]] = {}
    for value in values:
        if value.status is not ValueStatus.INVALID:
            groups.setdefault(_equality_key(value), []).append(value)
    ranked = sorted(groups.values(), key=len, reverse=True)
    if not ranked:
        return values[0]
    is_tie = len(ranked) > 1 and len(ranked[1]) == len(ranked[0])
    return NOTHING_STATED if is_tie else ranked[0][0]


def _menu_numbers(value_type: ValueType) -> dict[str, str]:
    """Numbers that stand for the labels; several may be chosen."""
    return {str(number): label.strip() for number, label in enumerate(value_type.labels, start=1)}


def _subset_regex(numbers: Mapping[str, str]) -> str:
    """An expression for some of the numbers with commas between them."""
    names = list(numbers)
    if len(names) > ORDERED_LABELS:
        one = number_regex(len(names))
        return f"{one}(, {one}){{0,{MAX_UNORDERED_LABELS}}}"
    return "|".join(
        name + "".join(f"(, {later})?" for later in names[place:]) for place, name in enumerate(names, start=1)
    )


def _or_not_stated(regex: str, value_type: ValueType) -> str:
    return f"({regex}|{NOT_STATED_ENTRY})" if value_type.not_stated else f"({regex})"


def _invalid(problem: str) -> TypedValue:
    return TypedValue(status=ValueStatus.INVALID, problem=problem)


def _parse_menu(written: str, value_type: ValueType, *, answer: str | None) -> TypedValue:
    choices = menu(value_type)
    if written not in choices:
        return _invalid(f"{written!r} is not a number of the menu")
    choice = choices[written]
    if choice is None:
        return NOTHING_STATED
    if value_type.type is AnswerType.TEXT:
        return text_value(answer)
    if value_type.type is AnswerType.BOOL:
        return TypedValue(status=ValueStatus.OK, value=json.dumps(choice == "yes"), boolean=choice == "yes")
    return TypedValue(status=ValueStatus.OK, value=json.dumps(choice, ensure_ascii=False), label=choice)


def _parse_labels(written: str, value_type: ValueType) -> TypedValue:
    numbers = _menu_numbers(value_type)
    chosen = [] if written == NONE else written.split(", ")
    if unknown := [number for number in chosen if number not in numbers]:
        return _invalid(f"{unknown[0]!r} is not a number of a label")
    if len(set(chosen)) < len(chosen):
        return _invalid("it has a label twice")
    if len(numbers) > ORDERED_LABELS and len(chosen) > MAX_UNORDERED_LABELS:
        return _invalid(f"it has more than {MAX_UNORDERED_LABELS} labels, and may have been cut there")
    labels = [numbers[number] for number in sorted(chosen, key=int)]
    return TypedValue(status=ValueStatus.OK, value=json.dumps(labels, ensure_ascii=False))


def _written_choice(written: str, value_type: ValueType) -> TypedValue:
    aliases = {"true": "yes", "false": "no"} if value_type.type is AnswerType.BOOL else {}
    choices = {number: choice for number, choice in menu(value_type).items() if choice is not None}
    number = _number_of(aliases.get(written.casefold(), written), choices)
    return _unknown_choice(written, choices) if number is None else _parse_menu(number, value_type, answer=None)


def _written_labels(written: str, value_type: ValueType) -> TypedValue:
    try:
        names = json_value(written) if written.startswith("[") else written.split(LABEL_MARK)
    except ValueError as error:
        return _invalid(f"it is not a JSON list: {error}")
    choices, chosen = _menu_numbers(value_type), set()
    for name in names if written.casefold() != NONE else ():
        if (number := _number_of(str(name), choices)) is None:
            return _unknown_choice(str(name), choices)
        chosen.add(number)
    return _parse_labels(", ".join(sorted(chosen, key=int)) or NONE, value_type)


def _number_of(word: str, choices: Mapping[str, str]) -> str | None:
    """The number that stands for a choice of a menu, whatever its case."""
    wanted = word.strip().casefold()
    return next((number for number, choice in choices.items() if choice.casefold() == wanted), None)


def _unknown_choice(word: str, choices: Mapping[str, str]) -> TypedValue:
    return _invalid(f"{word!r} is not one of {', '.join(choices.values())}")


def _parse_number(written: str) -> TypedValue:
    if not re.fullmatch(NUMBER_FORM, written):
        return _invalid(f"{written!r} is not a number")
    return TypedValue(status=ValueStatus.OK, value=written, number=float(written))


def _parse_date(written: str) -> TypedValue:
    try:
        if not re.fullmatch(DATE, written):
            raise ValueError("it is not written as YYYY-MM-DD")
        day = date.fromisoformat(written)
    except ValueError as error:
        return _invalid(f"{written!r} is not a date: {error}")
    return TypedValue(status=ValueStatus.OK, value=json.dumps(day.isoformat()))


def _parse_json(written: str, value_type: ValueType) -> TypedValue:
    try:
        value = json_value(written)
    except ValueError as error:
        return _invalid(f"it is not JSON: {error}")
    if value is None and value_type.not_stated:
        return NOTHING_STATED
    if (problem := misfit(value, schema=value_type.sent_schema())) is not None:
        return _invalid(problem)
    return TypedValue(status=ValueStatus.OK, value=json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _equality_key(value: TypedValue) -> Any:
    """What equal values have in common."""
    if value.value is None:
        return value.status in UNSTATED or value.status, None
    return value.status, json.dumps(_normalise(json.loads(value.value)), sort_keys=True)


def _normalise(value: Any) -> Any:
    match value:
        case str():
            return " ".join(unicodedata.normalize("NFKC", value).casefold().split())
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_normalise(each) for each in value]
        case dict():
            return {name: _normalise(each) for name, each in value.items()}
    return value
