"""Checks an answer's value against the answer and its evidence. What does not follow from them needs a look.

No value is changed or refused for that: notations differ, and a person decides.
"""

import json
import re
from collections.abc import Sequence
from datetime import date
from enum import StrEnum

from memagent_batch.loop.completions import is_refusal
from memagent_batch.loop.follow_ups.answer_types import AnswerType, ValueType
from memagent_batch.loop.follow_ups.json_schemas import FORMAT_CHECKER
from memagent_batch.loop.follow_ups.values import DATE, UNSTATED, TypedValue, ValueStatus
from memagent_batch.loop.texts.figures import Day, days_in, numbers_in, states_date, states_number


class Doubt(StrEnum):
    """Why a person should look at an answer or its value."""

    REFUSED = "the model refused to answer"
    ANSWER = "the value does not follow from the answer"
    EVIDENCE = "the evidence does not have the value"


SHORT_ANSWER_WORDS = 25
"""Longest answer, words, that a phrase such as "is not stated" is taken to speak for as a whole."""
_YES = "yes|ja|oui|sí|si|sì|sim|tak|да|true|correct|はい|是"
_NO = "no|nein|non|nej|nei|não|nee|nie|нет|false|incorrect|いいえ|否"
_FIRST_WORD = re.compile(rf"\W*(?:(?P<yes>{_YES})|(?P<no>{_NO}))\s*(?:[^\w\s'’]|$)", re.IGNORECASE)
_NOT = (
    r"(?:\b(?:not?|none|never|nothing|neither|without|cannot|\w+n['’]t|nicht|kein\w*|nichts|ohne|pas|aucune?|rien|sans|ne"
    r"|n['’]\w+|non|ning[uú]n\w*|nada|sin|nessun\w*|niente|senza|não|nenhum\w*|sem|geen|niets?|zonder|nie|brak|inte|ikke"
    r"|ingen|нет|не)\b|[未没無不]|なし|ない|없)"
)
_UNKNOWN = (
    r"(?:\b(?:n/a|un(?:known|specified|disclosed|clear)|unbekannt|unklar|inconnue?|desconocid[oa]|sconosciut[oa]|onbekend)\b"
    r"|n\.a\.)"
)
_STATED = (
    "stat|mention|specif|provided|found|find|availab|disclos|indicat|given|known|say|contain|includ|information|detail"
    "|angeb|angegeb|angabe|genannt|erwähn|enthalt|aufgeführt|bekannt|indiqu|précis|spécif|connu|menciona|consta|figura"
    "|menzion|indica|informad|vermeld|genoemd|aangegeven|提及|说明|記載|记载"
)
_NEGATION = re.compile(f"{_NOT}|{_UNKNOWN}", re.IGNORECASE)
_ABSENCE = re.compile(rf"{_NOT}(?:\W*\b\w+){{0,3}}?\W*(?:{_STATED})|{_UNKNOWN}", re.IGNORECASE)
"""Says that the document does not state what was asked."""


def find_doubt(
    value: TypedValue,
    value_type: ValueType,
    *,
    answer: str,
    has_answer: bool = True,
    notes: str = "",
    sentences: Sequence[str] | None = None,
) -> Doubt | None:
    """Says why a value needs a look, or None if nothing speaks against it.

    Args:
        value: the value as it was written.
        value_type: the type that the question asks for.
        answer: the answer that it was made of, or the whole response if no answer was found in it.
        has_answer: whether one was found. If not, only a JSON value, which is made of the response, may stand.
        notes: what else a JSON value may be made of: the whole response, and the memory.
        sentences: the sentences that the answer rests on; None if they were not asked for, or could not be fetched.
    """
    if is_refusal(answer):
        return Doubt.REFUSED
    if value.status is ValueStatus.INVALID:
        return None
    evidence = None if sentences is None else "\n".join(sentences)
    if value.status in UNSTATED:
        return Doubt.ANSWER if _states_something(answer, value_type) else None
    if value_type.type is AnswerType.JSON:
        is_said = _states_leaves("\n".join([answer, notes, evidence or ""]), json.loads(value.value or "null"))
        return None if is_said and not _says_absent(answer) else Doubt.ANSWER
    if not has_answer or not _follows_from(value, value_type, answer=answer, evidence=evidence):
        return Doubt.ANSWER
    is_there = evidence is None or _states_value(evidence, value, value_type, scales_apart=True)
    return None if is_there else Doubt.EVIDENCE


def _follows_from(value: TypedValue, value_type: ValueType, *, answer: str, evidence: str | None) -> bool:
    """Whether a value follows from the answer; of one that can't be compared, whether they do not contradict."""
    match value_type.type:
        case AnswerType.BOOL:
            word = _FIRST_WORD.match(answer)
            if word is not None:
                return (word["yes"] is not None) == value.boolean
            return not (value.boolean and _says_absent(answer))
        case AnswerType.LABEL | AnswerType.LABELS:
            return _agrees_with_labels(value, value_type, answer=answer)
        case AnswerType.DATE:
            if _states_value(answer, value, value_type):
                return True
            day = _date(value)  # the answer may name the day alone, and the evidence its year
            is_partial = Day(day=day.day, month=day.month) in days_in(answer)
            return is_partial and evidence is not None and states_date(evidence, day)
        case AnswerType.NUMBER:
            return _states_value(answer, value, value_type)
    return not _says_absent(answer)


def _states_value(text: str, value: TypedValue, value_type: ValueType, *, scales_apart: bool = False) -> bool:
    """Whether a text has a number or a date; a value of another type is not sought."""
    match value_type.type:
        case AnswerType.NUMBER if value.number is not None:
            return states_number(text, value.number, unit=value_type.unit, scales_apart=scales_apart)
        case AnswerType.DATE if value.value is not None:
            return states_date(text, _date(value))
    return True


def _states_leaves(text: str, value: object) -> bool:
    """Whether a text has all numbers and dates of a JSON value."""
    match value:
        case dict():
            return all(_states_leaves(text, each) for each in value.values())
        case list():
            return all(_states_leaves(text, each) for each in value)
        case int() | float() if not isinstance(value, bool):
            return states_number(text, value, scales_apart=True)
        case str() if re.fullmatch(DATE, value):
            return not FORMAT_CHECKER.conforms(value, "date") or states_date(text, date.fromisoformat(value))
    return True


def _date(value: TypedValue) -> date:
    return date.fromisoformat(json.loads(value.value or ""))


def _agrees_with_labels(value: TypedValue, value_type: ValueType, *, answer: str) -> bool:
    """Whether the answer names no other labels than the value; one that names none is not compared.

    It names whole words; a label inside a longer one that it names does not count.
    """
    chosen = {value.label} if value_type.type is AnswerType.LABEL else set(json.loads(value.value or "[]"))
    named, rest = set(), answer.casefold()
    for label in sorted(value_type.labels, key=len, reverse=True):
        rest, count = re.subn(rf"(?<!\w){re.escape(label.strip().casefold())}(?!\w)", "|", rest)
        if count:
            named.add(label.strip())
    if value_type.type is AnswerType.LABEL and named:
        return bool(named & chosen)
    if named:
        return named == chosen
    return not (chosen and _says_absent(answer))


def _says_absent(answer: str) -> bool:
    """Whether a short answer says that the document does not state what was asked."""
    return len(answer.split()) <= SHORT_ANSWER_WORDS and _ABSENCE.search(answer) is not None


def _states_something(answer: str, value_type: ValueType) -> bool:
    """Whether an answer states what was asked, so that "not stated" is not its value.

    One with a negation may say that nothing is stated, unless a number or date of the kind stands before it.
    """
    negation = _NEGATION.search(answer)
    if negation is None:
        return re.search(r"\w", answer) is not None
    before = answer[: negation.start()]
    if value_type.type is AnswerType.NUMBER:
        return bool(numbers_in(before))
    return value_type.type is AnswerType.DATE and bool(days_in(before))
