"""Scores of values, evidence and `not stated`, over tables with the schemas that runs write."""

import json
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.evaluation.closing_scores import EvidenceSpans, evidence_spans
from memagent_batch.evaluation.measures import measure
from memagent_batch.evaluation.score_table import score_table
from memagent_batch.evaluation.scoring import ALL_TASKS, score_answers
from memagent_batch.evaluation.suites.schemas import ANSWER_COLUMNS, SUITE_QUESTIONS
from memagent_batch.runs.tables import EVIDENCE
from tests.evaluation.test_scoring import answer, question

LABELS = ["open", "closed", "frozen"]
LABEL = {"answer_type": "label", "labels": LABELS, "not_stated": True, "metric": "value", "references": ["open"]}
NUMBER = {"answer_type": "number", "not_stated": True, "metric": "value", "references": ["1200"]}
ABSENT = {"references": ["not stated"], "is_absent": True, "gold_spans": []}


def value(parsed: Any, *, status: str = "ok", confidence: float | None = None, **columns: Any) -> dict[str, Any]:
    """Columns of `answers` that a value turn brings."""
    written = None if parsed is None else json.dumps(parsed)
    return {"value": written, "value_status": status, "confidence": confidence} | columns


def spans(*places: tuple[int, int]) -> list[dict[str, int]]:
    return [{"char_start": start, "char_end": end} for start, end in places]


def scored(
    questions: list[dict[str, Any]], answers: list[dict[str, Any]], evidence: EvidenceSpans | None = None
) -> pa.Table:
    return score_answers(
        pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS),
        pa.Table.from_pylist(answers, schema=ANSWER_COLUMNS),
        variant="v",
        samples=1,
        evidence=evidence or {},
    )


@pytest.mark.parametrize(
    ("asked", "given", "is_right"),
    [
        (LABEL, value("open"), True),
        (LABEL, value("closed"), False),
        (LABEL, value(None, status="not_stated"), False),
        (LABEL, value(None, status="invalid"), False),
        (LABEL | ABSENT, value(None, status="not_stated"), True),
        (LABEL | ABSENT, value("open"), False),
        (NUMBER, value(1200.0), True),
        (NUMBER, value(1200.5), False),
        (NUMBER | {"references": ["7", "1200"]}, value(1200), True),
        (LABEL, {"value": None, "value_status": None}, False),
    ],
)
def test_value_is_right_where_it_equals_a_reference_as_a_value(
    asked: dict[str, Any], given: dict[str, Any], is_right: bool
) -> None:
    other = answer(1, **value("open"))
    rows = scored([question(0, **asked), question(1, **LABEL)], [answer(0, "it is open", **given), other]).to_pylist()
    assert rows[0]["value_right"] is is_right
    assert (rows[0]["score"], rows[0]["scored_on"]) == (float(is_right), "value")


def test_value_metric_reads_the_answers_where_the_table_has_no_values() -> None:
    questions = [question(number, **NUMBER) for number in range(4)]
    answers = [answer(0, "1200.0"), answer(1, "about 1200"), answer(2, "Not stated"), answer(3, None)]
    rows = scored(questions, answers).to_pylist()
    assert [row["value_right"] for row in rows] == [True, False, False, False]
    assert [row["value_status"] for row in rows] == ["ok", "invalid", "not_stated", None]


def test_question_without_a_type_has_no_value_and_keeps_its_score() -> None:
    [row] = scored([question(0)], [answer(0)]).to_pylist()
    assert (row["score"], row["value_right"], row["value_status"]) == (1.0, None, None)
    assert measure(scored([question(0)], [answer(0)])) == []


def test_failed_reading_is_a_wrong_value_and_no_abstention() -> None:
    rows = scored(
        [question(0, **LABEL | ABSENT), question(1, **LABEL)],
        [answer(0, None, status="failed"), answer(1, **value("open"))],
    ).to_pylist()
    assert (rows[0]["value_right"], rows[0]["abstained"]) == (False, False)


def test_value_measures_count_every_reading() -> None:
    given = [value("open"), value("closed"), value(None, status="not_stated"), value(None, status="invalid")]
    table = scored(
        [question(number, **LABEL) for number in range(5)],
        [answer(number, **each) for number, each in enumerate(given)],
    )
    together, task = measure(table)
    assert (together.task, task.task) == (ALL_TASKS, "niah")
    assert together.value is not None
    assert together.value == task.value
    assert (together.value.right.n, together.value.right.share, together.value.invalid.share) == (5, 0.2, 0.2)
    assert together.value.macro_f1 == pytest.approx((2 / 6 + 0 + 0) / 3)


def test_abstention_is_right_on_absent_and_lost_on_present_answers() -> None:
    silent, told = value(None, status="not_stated", num_evidence=0), value("open", num_evidence=1)
    table = scored(
        [
            *(question(number, **LABEL | ABSENT) for number in range(3)),
            *(question(number, **LABEL) for number in (3, 4)),
        ],
        [answer(0, **silent), answer(1, **silent), answer(2, **told), answer(3, **told), answer(4, **silent)],
    )
    abstention = measure(table)[0].abstention
    assert abstention is not None
    assert abstention.right is not None
    assert abstention.lost is not None
    assert abstention.no_evidence is not None
    assert abstention.right.n == 3
    assert abstention.right.share == pytest.approx(2 / 3)
    assert (abstention.lost.n, abstention.lost.share) == (2, 0.5)
    assert abstention.no_evidence.share == pytest.approx(2 / 3)


def test_abstention_without_types_is_the_answer_in_words() -> None:
    rows = scored([question(0, **ABSENT), question(1)], [answer(0, "Not stated."), answer(1, "not stated")]).to_pylist()
    assert [row["abstained"] for row in rows] == [True, True]


def evidence_row(number: int, how: str, start: int | None, end: int | None) -> dict[str, Any]:
    key = {"run_id": "r", "document_id": f"d{number}", "question_id": f"q{number}", "sample": 0}
    hashes = {"document_hash": "h", "question_hash": "h", "reader_fingerprint": "f"}
    return key | hashes | {"how": how, "rank": 1, "char_start": start, "char_end": end, "alignment": "exact"}


def test_evidence_is_scored_by_the_chosen_sentences_alone() -> None:
    rows = [
        evidence_row(0, "chosen", 0, 20),
        evidence_row(0, "chosen", 90, 99),
        evidence_row(0, "aligned", 40, 50),
        evidence_row(1, "aligned", None, None),
    ]
    evidence = evidence_spans([pa.Table.from_pylist(rows, schema=EVIDENCE)])
    table = scored(
        [question(0, gold_spans=spans((10, 30), (40, 60))), question(1, gold_spans=spans((0, 9))), question(2)],
        [answer(0, num_evidence=2), answer(1, num_evidence=0), answer(2, num_evidence=0)],
        evidence,
    )
    first, second, unknown = table.to_pylist()
    assert (first["evidence_precision"], first["evidence_recall"], first["evidence_hit"]) == (0.5, 0.5, True)
    assert (second["evidence_f1"], second["evidence_hit"]) == (0.0, False)
    assert (unknown["evidence_f1"], unknown["num_evidence"]) == (None, 0)
    measured = measure(table)[0].evidence
    assert measured is not None
    assert (measured.n, measured.f1, measured.hit.share) == (2, 0.25, 0.5)


def test_reading_of_which_no_evidence_was_asked_is_not_measured() -> None:
    table = scored([question(0, gold_spans=spans((0, 9)))], [answer(0)])
    assert table["evidence_hit"].to_pylist() == [None]
    assert measure(table) == []


def test_calibration_is_of_values_with_a_confidence() -> None:
    questions = [question(number, **LABEL) for number in range(40)]
    answers = [
        answer(number, **value("open" if number % 4 else "closed", confidence=0.75 if number < 20 else None))
        for number in range(40)
    ]
    found = measure(scored(questions, answers))[0].calibration
    assert found is not None
    assert [(each.n, each.accuracy, each.confidence) for each in found.bins] == [(20, 0.75, 0.75)]
    assert found.error == 0


def test_score_table_shows_measures_below_the_cells_only_where_there_are_some() -> None:
    plain = score_table(scored([question(0)], [answer(0)]))
    typed = score_table(scored([question(0, **LABEL)], [answer(0, **value("open"))]))
    assert "ABSENT RIGHT" not in plain
    header, first, *_ = typed.split("\n\n")[1].split("\n")
    assert header.split()[:3] == ["VARIANT", "TASK", "VALUES"]
    assert first.split()[:5] == ["v", "all", "tasks", "1", "1.000"]
