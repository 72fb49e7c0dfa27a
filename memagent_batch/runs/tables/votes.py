"""What several samples of one document and question say together."""

from collections.abc import Iterable, Sequence

from memagent_batch.domain.closing.values import TypedValue, ValueStatus, is_same
from memagent_batch.runs.tables.schemas import AnswerRow


def with_votes(answers: Sequence[AnswerRow]) -> list[AnswerRow]:
    """Rows of `answers` with their column `votes`; all samples of a document and question are among them."""
    samples: dict[tuple[str, str], list[AnswerRow]] = {}
    for row in answers:
        samples.setdefault((row["document_id"], row["question_id"]), []).append(row)
    return [{**row, "votes": _share(row, samples[row["document_id"], row["question_id"]])} for row in answers]


def values_of(rows: Iterable[AnswerRow]) -> list[TypedValue]:
    """The values of rows that have one."""
    return [value for row in rows if (value := _value(row)) is not None]


def _share(row: AnswerRow, samples: Sequence[AnswerRow]) -> float | None:
    """Share of all samples, those without a value included, that have the value of this one."""
    own = _value(row)
    if len(samples) < 2 or own is None or own.status is ValueStatus.INVALID:
        return None
    return sum(is_same(own, value) for value in values_of(samples)) / len(samples)


def _value(row: AnswerRow) -> TypedValue | None:
    if row["value_status"] is None:
        return None
    return TypedValue(
        status=ValueStatus(row["value_status"]),
        value=row["value"],
        boolean=row["value_bool"],
        number=row["value_number"],
        label=row["value_label"],
    )
