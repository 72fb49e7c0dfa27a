"""Variants against each other, over the same documents."""

from typing import Any

import pyarrow as pa

from memagent_batch.apps.evaluation.measures import ALL_TASKS, compare
from memagent_batch.apps.evaluation.statistics import sign_test
from memagent_batch.apps.evaluation.suite import SCORES
from tests.evaluation.test_scoring import answer, question, scored


def variant(name: str, right: set[int], *, documents: int = 20) -> pa.Table:
    """Scores of two tasks in turn, 20 questions on some documents."""
    questions = [
        question(number, task=("even", "odd")[number % 2], document_id=f"d{number % documents}") for number in range(20)
    ]
    answers = [
        answer(number, "fox" if number in right else "dog", document_id=f"d{number % documents}")
        for number in range(20)
    ]
    table = scored(questions, answers)
    return table.set_column(0, SCORES.field("variant"), pa.array([name] * 20))


def by_task(scores: pa.Table) -> dict[tuple[str, str], Any]:
    return {(each["variant"], each["task"]): each for each in compare(scores)}


def test_compare_counts_documents_by_task_and_corrects_for_all_tasks_and_variants() -> None:
    evens = set(range(0, 20, 2))
    scores = pa.concat_tables([variant("base", set()), variant("good", evens), variant("same", set())])
    found = by_task(scores)
    assert list(found) == [(name, task) for name in ("good", "same") for task in (ALL_TASKS, "even", "odd")]
    even = found["good", "even"]
    assert (even["base"], even["num_better"], even["num_worse"], even["num_equal"]) == ("base", 10, 0, 0)
    assert even["p_corrected"] == 4 * sign_test(10, 0)
    assert found["good", ALL_TASKS]["p_corrected"] == 2 * sign_test(10, 0)
    assert found["same", "odd"]["p_corrected"] == 1.0


def test_compare_questions_of_one_document_are_one_observation() -> None:
    scores = pa.concat_tables([variant("base", set(), documents=2), variant("good", set(range(0, 20, 2)), documents=2)])
    total = by_task(scores)["good", ALL_TASKS]
    assert (total["num_better"], total["num_worse"], total["num_equal"]) == (1, 0, 1)
