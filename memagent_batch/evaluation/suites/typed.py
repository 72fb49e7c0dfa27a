"""The references of typed questions as values, and the places of right sentences as a column."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

from memagent_batch.domain.closing.answer_types import NOT_STATED_ENTRY, AnswerType, ValueType
from memagent_batch.domain.closing.json_schemas import misfit
from memagent_batch.domain.closing.values import NONE, NOTHING_STATED, TypedValue, ValueStatus, text_value
from memagent_batch.evaluation.suites.schemas import GoldSpanRow
from memagent_batch.inputs.questions import LABEL_MARK

_YES, _NO = frozenset({"yes", "true"}), frozenset({"no", "false"})
_SIGNED_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def span_rows(spans: Sequence[tuple[int, int]] | None) -> list[GoldSpanRow] | None:
    """Places in a document as a column of a question."""
    return None if spans is None else [GoldSpanRow(char_start=start, char_end=end) for start, end in spans]


def says_not_stated(text: str) -> bool:
    """Whether a text is the statement that the document does not say, and nothing else."""
    return " ".join(text.casefold().split()).rstrip(".") == NOT_STATED_ENTRY


def written_value(text: str, value_type: ValueType) -> TypedValue:
    """A reference, or an answer as text, as a value of the type.

    Args:
        text: `yes` or `no`, a label, labels as a JSON list or with `|` between them, a number, a date as YYYY-MM-DD,
            JSON, or `not stated`.
        value_type: the type that the question asks for.

    Raises:
        ValueError: it is no such value.
    """
    if value_type.not_stated and says_not_stated(text):
        return NOTHING_STATED
    if value_type.type is AnswerType.TEXT:
        return text_value(text)
    return TypedValue(
        status=ValueStatus.OK,
        value=json.dumps(_VALUE_READERS[value_type.type](text.strip(), value_type), ensure_ascii=False),
    )


def _bool_value(text: str, _: ValueType) -> bool:
    if text.casefold() not in _YES | _NO:
        raise ValueError(f"{text!r} is neither yes nor no")
    return text.casefold() in _YES


def _label_value(text: str, value_type: ValueType) -> str:
    labels = {label.strip().casefold(): label.strip() for label in value_type.labels}
    if text.casefold() not in labels:
        raise ValueError(f"{text!r} is none of the labels {', '.join(labels.values())}")
    return labels[text.casefold()]


def _labels_value(text: str, value_type: ValueType) -> list[str]:
    names = json.loads(text) if text.startswith("[") else [] if text == NONE else text.split(LABEL_MARK)
    chosen = {_label_value(str(name).strip(), value_type) for name in names}
    return [label.strip() for label in value_type.labels if label.strip() in chosen]


def _number_value(text: str, _: ValueType) -> int | float:
    if not _SIGNED_NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is no number; write digits, with a full stop before decimals")
    return float(text) if not text.lstrip("+-").isdigit() else int(text)


def _date_value(text: str, _: ValueType) -> str:
    return date.fromisoformat(text).isoformat()


def _json_value(text: str, value_type: ValueType) -> Any:
    value = json.loads(text)
    if (problem := misfit(value, schema=value_type.sent_schema())) is not None:
        raise ValueError(problem)
    return value


_VALUE_READERS: dict[AnswerType, Callable[[str, ValueType], Any]] = {
    AnswerType.BOOL: _bool_value,
    AnswerType.LABEL: _label_value,
    AnswerType.LABELS: _labels_value,
    AnswerType.NUMBER: _number_value,
    AnswerType.DATE: _date_value,
    AnswerType.JSON: _json_value,
}
