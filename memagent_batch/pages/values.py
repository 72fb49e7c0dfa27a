"""An answer in the few words in which a person reads it: its typed value where there is one. Pure.

Numbers have the digits that are stored and no separators, since one may be a code. Unit `1` stands for none.
"""

import json
import re
from typing import Any

from memagent_batch.domain.closing.values import ValueStatus
from memagent_batch.domain.readings import Status
from memagent_batch.log.index import Row
from memagent_batch.runs.comparison import DifferenceRow

NO_UNIT = "1"
"""The unit of a number that has none."""
NOT_STATED = "not stated"
INVALID = "invalid"
NO_ANSWER = "no answer"
OUTCOMES = ("answered", NOT_STATED, NO_ANSWER, INVALID, "failed", "not read")
"""What becomes of a reading, as `outcome_of` says it."""


def shown_value(row: Row) -> str:
    """The value of a row of `answers` as text; of a question without a type, the answer.

    A reading without an answer shows its status instead.
    """
    without_value = _without_value(row)
    if without_value is None and row.get("value_status") == ValueStatus.OK and row.get("value") is not None:
        unit = row.get("value_unit")
        return f"{_words(json.loads(row['value']))}{f' {unit}' if unit and unit != NO_UNIT else ''}"
    return without_value or (NO_ANSWER if row["answer"] is None else str(row["answer"]))


def outcome_of(row: Row) -> str:
    """What a reader filters answers by: one of `OUTCOMES`."""
    return _without_value(row) or (NO_ANSWER if row["answer"] is None else "answered")


def values_of_both(row: DifferenceRow) -> tuple[str | None, str | None] | None:
    """The values of both runs in words, the earlier first; None where they are equal, and for one that is missing."""
    before, after = ((row["value_status_before"], row["value_before"]), (row["value_status_after"], row["value_after"]))
    return None if before == after else (_value_words(*before), _value_words(*after))


def _value_words(status: str | None, value: str | None) -> str | None:
    """What a run has for a value, by its columns `value_status` and `value`; None where it has none."""
    match status:
        case ValueStatus.OK if value is not None:
            return _words(json.loads(value))
        case ValueStatus.NOT_STATED:
            return NOT_STATED
        case ValueStatus.INVALID:
            return INVALID
    return None


def _without_value(row: Row) -> str | None:
    """Why a row has neither value nor answer to show: its status, or that of its value; None where it may have one."""
    if row["status"] != Status.OK:
        return str(row["status"]).replace("_", " ")
    match row.get("value_status"):
        case ValueStatus.NOT_STATED:
            return NOT_STATED
        case ValueStatus.INVALID:
            return INVALID
    return None


def run_time(run_id: str) -> str:
    """When a run began, by its id; the id itself where it does not say."""
    found = re.match(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)", run_id)
    return "{}-{}-{} {}:{} UTC".format(*found.groups()) if found else run_id


def _float_words(value: float) -> str:
    """The shortest digits that are this number."""
    return repr(value).removesuffix(".0")


def _words(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case int():
            return str(value)
        case float():
            return _float_words(value)
        case list() if all(isinstance(each, str) for each in value):
            return ", ".join(value) or "none"
        case _:
            return json.dumps(value, ensure_ascii=False)
