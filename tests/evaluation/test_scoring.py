from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.domain.scoring.intervals import mean_interval, wilson
from memagent_batch.domain.scoring.scores import ScoreOn
from memagent_batch.errors import InputError
from memagent_batch.evaluation.scoring import ALL_TASKS, Grouping, score_answers, summarise
from memagent_batch.evaluation.suites.schemas import ANSWER_COLUMNS, SCORES, SUITE_QUESTIONS


def question(number: int, **columns: Any) -> dict[str, Any]:
    row = {"question_id": f"q{number}", "document_id": f"d{number}", "question": "Who?", "references": ["fox"]}
    return (
        row | {"task": "niah", "length_tokens": 1000, "depth": 0.5, "metric": "ruler_all", "is_absent": False} | columns
    )


def answer(number: int, text: str | None = "fox", **columns: Any) -> dict[str, Any]:
    costs = {"num_turns": 2, "num_prompt_tokens": 100, "num_cached_prompt_tokens": 10, "num_completion_tokens": 20}
    row = {"document_id": f"d{number}", "question_id": f"q{number}", "sample": 0, "status": "ok", "answer": text}
    row |= {"response": text}
    return row | costs | {"engine_seconds": 1.5, "num_document_tokens": 990} | columns


def scored(
    questions: list[dict[str, Any]],
    answers: list[dict[str, Any]],
    *,
    samples: int = 1,
    score_on: ScoreOn = ScoreOn.METRIC,
) -> pa.Table:
    return score_answers(
        pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS),
        pa.Table.from_pylist(answers, schema=ANSWER_COLUMNS),
        variant="v",
        samples=samples,
        score_on=score_on,
    )


def test_score_answers_right_one_has_its_row_and_costs() -> None:
    table = scored([question(0)], [answer(0, "the fox")])
    assert table.schema.equals(SCORES)
    [row] = table.to_pylist()
    assert (row["score"], row["ruler_all"], row["em"], row["sub_em"]) == (1.0, 1.0, 1.0, 1.0)
    assert (row["variant"], row["task"], row["length_tokens"], row["depth"]) == ("v", "niah", 1000, 0.5)
    assert (row["num_prompt_tokens"], row["engine_seconds"], row["num_document_tokens"]) == (100, 1.5, 990)


def test_score_answers_score_is_the_tasks_own_metric() -> None:
    rows = scored([question(0, metric="em"), question(1, metric="f1")], [answer(0, "red fox"), answer(1, "red fox")])
    assert rows["score"].to_pylist() == [0.0, pytest.approx(2 / 3)]


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (answer(0, "fox", status="failed"), "failed"),
        (answer(0, None, status="failed"), "failed"),
        (answer(0, None), "ok"),
        (answer(0, " "), "ok"),
    ],
)
def test_score_answers_failed_or_unanswered_is_wrong_in_every_metric(row: dict[str, Any], status: str) -> None:
    [found] = scored([question(0, metric="memagent_sub_em")], [row]).to_pylist()
    assert (found["score"], found["ruler_all"], found["memagent_sub_em"]) == (0.0, 0.0, 0.0)
    assert (found["status"], found["answered"], found["answer"]) == (status, False, None)


BOTH: dict[str, Any] = {"text": "1", "response": "The numbers are 1, 2, 3 and 4. \\boxed{1}"}


@pytest.mark.parametrize(
    ("score_on", "metric", "columns", "score", "scored_on", "answered"),
    [
        (ScoreOn.METRIC, "ruler_all", BOTH, 1.0, "response", True),
        (ScoreOn.METRIC, "ruler_any", BOTH, 1.0, "response", True),
        (ScoreOn.METRIC, "em", BOTH, 1.0, "answer", True),
        (ScoreOn.METRIC, "ruler_all", {"text": None, "response": "1, 2, 3, 4"}, 1.0, "response", True),
        (ScoreOn.METRIC, "ruler_all", {"text": "1, 2", "response": None}, 0.5, "answer", True),
        (ScoreOn.METRIC, "em", {"text": None, "response": "1"}, 0.0, "answer", False),
        (ScoreOn.METRIC, "ruler_all", {**BOTH, "status": "failed"}, 0.0, "response", False),
        (ScoreOn.ANSWER, "ruler_all", BOTH, 0.25, "answer", True),
        (ScoreOn.RESPONSE, "ruler_all", BOTH, 1.0, "response", True),
        (ScoreOn.RESPONSE, "em", BOTH, 0.0, "response", True),
    ],
)
def test_score_answers_scores_the_text_that_is_asked_for(
    score_on: ScoreOn, metric: str, columns: dict[str, Any], score: float, scored_on: str, answered: bool
) -> None:
    [row] = scored(
        [question(0, metric=metric, references=["1", "2", "3", "4"])], [answer(0, **columns)], score_on=score_on
    ).to_pylist()
    assert (row["score"], row["scored_on"], row["answered"]) == (score, scored_on, answered)


def test_score_answers_question_or_sample_without_a_row_is_missing_and_wrong() -> None:
    answers = [answer(0), answer(0, sample=1), answer(1)]
    rows = scored([question(0), question(1), question(2)], answers, samples=2).to_pylist()
    assert [(row["question_id"], row["sample"], row["status"], row["score"]) for row in rows] == [
        ("q0", 0, "ok", 1.0),
        ("q0", 1, "ok", 1.0),
        ("q1", 0, "ok", 1.0),
        ("q1", 1, "missing", 0.0),
        ("q2", 0, "missing", 0.0),
        ("q2", 1, "missing", 0.0),
    ]


def test_score_answers_same_question_of_another_document_is_no_answer() -> None:
    rows = scored([question(0), question(1)], [answer(0), answer(1, document_id="d0", question_id="q9")]).to_pylist()
    assert [row["status"] for row in rows] == ["ok", "missing"]


def test_score_answers_of_another_suite_are_refused_with_an_example_of_each() -> None:
    with pytest.raises(InputError, match=r"answers of another suite: 2 of 3 .*'d7'.*'d0'"):
        scored([question(0)], [answer(0), answer(7), answer(8)])


def test_score_answers_two_rows_of_one_reading_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"two rows of document_id 'd0', question_id 'q0', sample 0"):
        scored([question(0)], [answer(0), answer(0)])


def test_summarise_cell_counts_every_reading_apart() -> None:
    answers = [answer(0), answer(1, status="failed"), answer(2, None), answer(3, "dog")]
    [cell] = summarise(scored([question(number) for number in range(5)], answers))
    assert (cell.variant, cell.task, cell.length_tokens, cell.n) == ("v", "niah", 1000, 5)
    assert (cell.num_failed, cell.num_unanswered, cell.num_missing) == (1, 1, 1)
    assert (cell.score, cell.low, cell.high) == (0.2, wilson(1, 5).low, wilson(1, 5).high)
    assert (cell.mean_turns, cell.mean_prompt_tokens, cell.mean_engine_seconds) == (2.0, 100.0, 1.5)


def test_summarise_nothing_but_missing_has_no_costs() -> None:
    [cell] = summarise(scored([question(0)], []))
    assert (cell.score, cell.num_missing, cell.mean_prompt_tokens) == (0.0, 1, None)


def test_summarise_samples_of_a_question_are_of_one_document() -> None:
    answers = [answer(0), answer(0, "dog", sample=1), answer(1), answer(1, sample=1)]
    [cell] = summarise(scored([question(0), question(1)], answers, samples=2))
    expected = mean_interval([[1.0, 0.0], [1.0, 1.0]])
    assert (cell.n, cell.score, cell.low, cell.high) == (4, 0.75, expected.low, expected.high)


def test_summarise_questions_of_one_document_tell_less_than_questions_of_many() -> None:
    def width(document: Callable[[int], str]) -> float:
        questions = [question(number, document_id=document(number)) for number in range(40)]
        answers = [
            answer(number, "fox" if number % 10 < 5 else "dog", document_id=document(number)) for number in range(40)
        ]
        [cell] = summarise(scored(questions, answers))
        assert cell.score == 0.5
        return cell.high - cell.low

    assert width(lambda number: f"d{number // 5}") > 1.5 * width(lambda number: f"d{number}")


def test_summarise_cells_are_in_order_and_lengths_may_be_unknown() -> None:
    cells = [("vt", 2000), ("niah", None), ("niah", 4000), ("niah", 1000)]
    questions = [question(number, task=task, length_tokens=length) for number, (task, length) in enumerate(cells)]
    first = scored(questions, [answer(number) for number in range(4)])
    second = first.set_column(0, SCORES.field("variant"), pa.array(["a"] * 4))
    both = pa.concat_tables([first, second])
    ordered = [("niah", 1000), ("niah", 4000), ("niah", None), ("vt", 2000)]
    assert [(cell.variant, cell.task, cell.length_tokens) for cell in summarise(both)] == [
        (variant, *cell) for variant in ("v", "a") for cell in ordered
    ]
    by_length = [(cell.task, cell.length_tokens) for cell in summarise(first, grouping=Grouping.LENGTH)]
    assert by_length == [(ALL_TASKS, 1000), (ALL_TASKS, 2000), (ALL_TASKS, 4000), (ALL_TASKS, None)]
    [together] = summarise(first, grouping=Grouping.VARIANT)
    assert (together.task, together.n, together.length_tokens) == (ALL_TASKS, 4, None)
