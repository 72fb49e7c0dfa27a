import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.apps.evaluation.report import ALL_TASKS, compare, measure, summarise
from memagent_batch.apps.evaluation.scores import ANSWER_COLUMNS, SCORES, evidence_spans, read_answers, score_answers
from memagent_batch.apps.evaluation.statistics import mean_interval, sign_test, wilson
from memagent_batch.apps.evaluation.suite import SUITE_QUESTIONS
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError
from memagent_batch.run.tables import EVIDENCE
from tests.runs.written_runs import rewrite_answers, write_answers


def question(number: int, **columns: Any) -> dict[str, Any]:
    row = {"question_id": f"q{number}", "document_id": f"d{number}", "question": "Who?", "references": ["fox"]}
    asked = {"task": "niah", "length_tokens": 1000, "depth": 0.5, "metric": "ruler_all", "is_absent": False}
    return row | asked | columns


def answer(number: int, text: str | None = "fox", **columns: Any) -> dict[str, Any]:
    costs = {"num_turns": 2, "num_prompt_tokens": 100, "num_cached_prompt_tokens": 10, "num_completion_tokens": 20}
    row = {"document_id": f"d{number}", "question_id": f"q{number}", "sample": 0, "status": "ok", "answer": text}
    row |= {"response": text}
    return row | costs | {"engine_seconds": 1.5, "num_document_tokens": 990} | columns


def scored(questions: list[dict[str, Any]], answers: list[dict[str, Any]], **settings: Any) -> pa.Table:
    tables = (
        pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS),
        pa.Table.from_pylist(answers, schema=ANSWER_COLUMNS),
    )
    return score_answers(*tables, **{"variant": "v", "samples": 1, **settings})


BOTH: dict[str, Any] = {"text": "1", "response": "The numbers are 1, 2, 3 and 4. \\boxed{1}"}


@pytest.mark.parametrize(
    ("metric", "columns", "score", "scored_on", "answered"),
    [
        ("ruler_all", BOTH, 1.0, "response", True),
        ("em", BOTH, 1.0, "answer", True),
        ("ruler_all", {"text": None, "response": "1, 2, 3, 4"}, 1.0, "response", True),
        ("ruler_all", {"text": "1, 2", "response": None}, 0.5, "answer", True),
        ("em", {"text": None, "response": "1"}, 0.0, "answer", False),
        ("ruler_all", {**BOTH, "status": "failed"}, 0.0, "response", False),
        ("memagent_sub_em", {"text": " "}, 0.0, "answer", False),
    ],
)
def test_score_answers_scores_what_the_metrics_authors_score(
    metric: str, columns: dict[str, Any], score: float, scored_on: str, answered: bool
) -> None:
    table = scored([question(0, metric=metric, references=["1", "2", "3", "4"])], [answer(0, **columns)])
    assert table.schema.equals(SCORES)
    [row] = table.to_pylist()
    assert (row["score"], row[metric], row["answered"]) == (score, score, answered)
    assert (row["variant"], row["status"], row["num_prompt_tokens"]) == ("v", columns.get("status", "ok"), 100)
    assert row["scored_on"] == scored_on or not answered


def test_score_answers_question_or_sample_without_a_row_is_missing_and_wrong() -> None:
    answers = [answer(0), answer(0, sample=1), answer(1)]
    rows = scored([question(0), question(1), question(2)], answers, samples=2).to_pylist()
    places = [(f"q{number}", sample) for number in range(3) for sample in range(2)]
    assert [(row["question_id"], row["sample"]) for row in rows] == places
    assert [(row["status"], row["score"]) for row in rows] == [("ok", 1.0)] * 3 + [("missing", 0.0)] * 3


def test_read_answers_takes_the_last_finished_run_without_what_was_not_read(tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path))
    with pytest.raises(OutputError, match="no run has finished at"):
        read_answers(output)
    for run_id, names in (("1", "abc"), ("2", "abd")):
        write_answers(output, {name: {"q": name} for name in names}, run_id=run_id, questions={"q": "Who?"})
    rewrite_answers(output, "3", lambda rows: [{**rows[0], "status": "not_read"}, *rows[1:]])
    answers = read_answers(output)
    assert answers.schema.equals(ANSWER_COLUMNS)
    assert answers["document_id"].to_pylist() == ["b", "d"]


def test_summarise_counts_every_reading_and_samples_of_a_document_together() -> None:
    answers = [answer(0), answer(1, status="failed"), answer(2, None), answer(3, "dog")]
    [cell] = summarise(scored([question(number) for number in range(5)], answers))
    assert (cell["variant"], cell["task"], cell["length_tokens"], cell["n"]) == ("v", "niah", 1000, 5)
    assert (cell["num_failed"], cell["num_unanswered"], cell["num_missing"]) == (1, 1, 1)
    assert (cell["score"], cell["low"], cell["high"]) == (0.2, wilson(1, 5).low, wilson(1, 5).high)
    assert (cell["mean_tokens"], cell["mean_engine_seconds"]) == (120.0, 1.5)
    [cell] = summarise(scored([question(0)], []))
    assert (cell["score"], cell["num_missing"], cell["mean_tokens"]) == (0.0, 1, None)
    answers = [answer(0), answer(0, "dog", sample=1), answer(1), answer(1, sample=1)]
    [cell] = summarise(scored([question(0), question(1)], answers, samples=2))
    expected = mean_interval([[1.0, 0.0], [1.0, 1.0]])
    assert (cell["n"], cell["score"], cell["low"], cell["high"]) == (4, 0.75, expected.low, expected.high)


def test_summarise_cells_are_in_order_and_lengths_may_be_unknown() -> None:
    cells = [("vt", 2000), ("niah", None), ("niah", 4000), ("niah", 1000)]
    questions = [question(number, task=task, length_tokens=length) for number, (task, length) in enumerate(cells)]
    first = scored(questions, [answer(number) for number in range(4)])
    second = first.set_column(0, SCORES.field("variant"), pa.array(["a"] * 4))
    ordered = [("niah", 1000), ("niah", 4000), ("niah", None), ("vt", 2000)]
    both = summarise(pa.concat_tables([first, second]))
    assert [(cell["variant"], cell["task"], cell["length_tokens"]) for cell in both] == [
        (variant, *cell) for variant in ("v", "a") for cell in ordered
    ]
    by_length = [(cell["task"], cell["length_tokens"]) for cell in summarise(first, by=("length_tokens",))]
    assert by_length == [(ALL_TASKS, 1000), (ALL_TASKS, 2000), (ALL_TASKS, 4000), (ALL_TASKS, None)]
    [together] = summarise(first, by=())
    assert (together["task"], together["n"], together["length_tokens"]) == (ALL_TASKS, 4, None)


LABELS = ["open", "closed", "frozen"]
LABEL = {"answer_type": "label", "labels": LABELS, "not_stated": True, "metric": "value", "references": ["open"]}
NUMBER = {"answer_type": "number", "not_stated": True, "metric": "value", "references": ["1200"]}
ABSENT = {"references": ["not stated"], "is_absent": True, "gold_spans": []}


def value(parsed: Any, *, status: str = "ok", confidence: float | None = None, **columns: Any) -> dict[str, Any]:
    written = None if parsed is None else json.dumps(parsed)
    return {"value": written, "value_status": status, "confidence": confidence} | columns


@pytest.mark.parametrize(
    ("asked", "given", "is_right"),
    [
        (LABEL, value("open"), True),
        (LABEL, value("closed"), False),
        (LABEL, value(None, status="not_stated"), False),
        (LABEL, value(None, status="invalid"), False),
        (LABEL | ABSENT, value(None, status="not_stated"), True),
        (LABEL, value(None, status="not_read"), False),
        (LABEL | ABSENT, value(None, status="not_read"), True),
        (LABEL | ABSENT, value("open"), False),
        (LABEL | ABSENT, {"status": "failed", "response": None}, False),
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
    assert rows[0]["abstained"] is (given.get("value_status") in {"not_stated", "not_read"})


def test_measure_of_values_counts_every_reading() -> None:
    given = [value("open"), value("closed"), value(None, status="not_stated"), value(None, status="invalid")]
    answers = [answer(number, **each) for number, each in enumerate(given)]
    together, task = measure(scored([question(number, **LABEL) for number in range(5)], answers))
    assert together == {**task, "task": ALL_TASKS}
    right, invalid = together["values_right"], together["values_invalid"]
    assert (right["n"], right["score"], invalid["score"]) == (5, 0.2, 0.2)


@pytest.mark.parametrize("status", ["not_stated", "not_read"])
def test_measure_abstention_is_right_on_absent_and_lost_on_present_answers(status: str) -> None:
    silent, told = value(None, status=status, num_evidence=0), value("open", num_evidence=1)
    asked = [question(number, **(LABEL | ABSENT if number < 3 else LABEL)) for number in range(5)]
    given = [answer(number, **each) for number, each in enumerate((silent, silent, told, told, silent))]
    together = measure(scored(asked, given))[0]
    assert together["absent_right"]["n"] == 3
    assert together["absent_right"]["score"] == pytest.approx(2 / 3)
    assert (together["present_lost"]["n"], together["present_lost"]["score"]) == (2, 0.5)


def test_question_without_a_type_has_no_value_and_abstains_in_words() -> None:
    rows = scored([question(0, **ABSENT), question(1)], [answer(0, "Not stated."), answer(1, "not stated")]).to_pylist()
    assert [row["abstained"] for row in rows] == [True, True]
    plain = scored([question(0)], [answer(0)])
    assert plain.select(["score", "value_right", "value_status"]).to_pylist() == [
        {"score": 1.0, "value_right": None, "value_status": None}
    ]
    assert measure(plain) == []


def test_evidence_is_scored_by_the_chosen_sentences_alone_where_it_was_asked_for() -> None:
    places = [(0, "chosen", 0, 20), (0, "chosen", 90, 99), (0, "aligned", 40, 50), (1, "aligned", None, None)]
    rows = [
        {
            "run_id": "r",
            "document_id": f"d{number}",
            "question_id": f"q{number}",
            "sample": 0,
            "rank": 1,
            "document_hash": "h",
            "question_hash": "h",
            "fingerprint": "f",
            "how": how,
            "alignment": "exact",
            "char_start": start,
            "char_end": end,
        }
        for number, how, start, end in places
    ]
    gold = [[(10, 30), (40, 60)], [(0, 9)], [], [(0, 9)]]
    spans = [[{"char_start": start, "char_end": end} for start, end in each] for each in gold]
    table = scored(
        [question(number, gold_spans=each or None) for number, each in enumerate(spans)],
        [answer(0, num_evidence=2), answer(1, num_evidence=0), answer(2, num_evidence=0), answer(3)],
        evidence=evidence_spans(pa.Table.from_pylist(rows, schema=EVIDENCE)),
    )
    first, second, *unknown = table.to_pylist()
    assert [first[f"evidence_{name}"] for name in ("precision", "recall", "f1", "hit")] == [0.5, 0.5, 0.5, True]
    assert (second["evidence_f1"], second["evidence_hit"]) == (0.0, False)
    assert [(each["evidence_f1"], each["num_evidence"]) for each in unknown] == [(None, 0), (None, None)]
    measured = measure(table)[0]
    hit = measured["evidence_hit"]
    assert (measured["evidence_f1"], hit["n"], hit["score"]) == (0.25, 2, 0.5)


def variant(name: str, right: set[int], *, documents: int = 20) -> pa.Table:
    """Scores of two tasks in turn, 20 questions on some documents."""
    ids = [f"d{number % documents}" for number in range(20)]
    questions = [question(number, task=("even", "odd")[number % 2], document_id=ids[number]) for number in range(20)]
    answers = [answer(each, "fox" if each in right else "dog", document_id=ids[each]) for each in range(20)]
    return scored(questions, answers, variant=name)


def test_compare_counts_documents_by_task_and_corrects_for_all_tasks_and_variants() -> None:
    evens = set(range(0, 20, 2))
    rows = compare(pa.concat_tables([variant("base", set()), variant("good", evens), variant("same", set())]))
    found = {(each["variant"], each["task"]): each for each in rows}
    assert list(found) == [(name, task) for name in ("good", "same") for task in (ALL_TASKS, "even", "odd")]
    even = found["good", "even"]
    assert (even["base"], even["num_better"], even["num_worse"], even["num_equal"]) == ("base", 10, 0, 0)
    assert even["p_corrected"] == 4 * sign_test(10, 0)
    assert found["good", ALL_TASKS]["p_corrected"] == 2 * sign_test(10, 0)
    assert found["same", "odd"]["p_corrected"] == 1.0
    two = [variant("base", set(), documents=2), variant("good", evens, documents=2)]  # questions of one count once
    total = compare(pa.concat_tables(two))[0]
    assert (total["num_better"], total["num_worse"], total["num_equal"]) == (1, 0, 1)
