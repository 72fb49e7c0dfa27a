"""The figures of `python -m benchmarks policies`, from scores."""

import pyarrow as pa
import pytest

from benchmarks.answers.policies import figures, table
from benchmarks.paired import sign_test
from memagent_batch.domain.scoring.intervals import wilson
from memagent_batch.evaluation.scoring import score_answers
from memagent_batch.evaluation.suites.schemas import ANSWER_COLUMNS, SUITE_QUESTIONS
from tests.evaluation.test_scoring import answer, question


def scores(policy: str, *, right: set[int], num: int = 10) -> pa.Table:
    questions = [question(number, length_tokens=8192) for number in range(num)]
    answers = [answer(number, "fox" if number in right else "dog") for number in range(num)]
    return score_answers(
        pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS),
        pa.Table.from_pylist(answers, schema=ANSWER_COLUMNS),
        variant=policy,
        samples=1,
    )


def test_figures_compare_each_policy_with_overwrite_over_the_same_questions() -> None:
    tables = [scores("overwrite", right={0, 1, 2}), scores("retrieve", right={2, 3, 4, 5, 6, 7, 8})]
    base, other = figures(pa.concat_tables(tables), window=2048)

    assert (base["policy"], base["windows"], base["n"], base["score"]) == ("overwrite", 4, 10, 0.3)
    assert (base["low"], base["high"]) == (round(wilson(3, 10).low, 4), round(wilson(3, 10).high, 4))
    assert "p" not in base
    assert (other["right_where_overwrite_is_not"], other["wrong_where_overwrite_is_right"]) == (6, 2)
    assert other["p"] == round(sign_test(6, 2), 4)


def test_table_has_a_row_for_each_task_and_length_and_a_column_for_each_policy() -> None:
    tables = [scores("overwrite", right=set()), scores("retrieve", right=set(range(10)))]
    header, _, row = table(list(figures(pa.concat_tables(tables), window=2048))).splitlines()
    assert header == "| task | windows | overwrite | retrieve |"
    assert row == "| niah | 4 | 0.00 (0.00-0.28) | 1.00 (0.72-1.00) |"


@pytest.mark.parametrize(
    ("more", "less", "chance"), [(0, 0, 1.0), (5, 5, 1.0), (5, 0, 2 / 32), (0, 5, 2 / 32), (8, 2, 2 * 56 / 1024)]
)
def test_sign_test_is_exact(more: int, less: int, chance: float) -> None:
    assert sign_test(more, less) == pytest.approx(chance)
