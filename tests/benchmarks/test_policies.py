"""The figures of `python -m benchmarks policies`, from scores."""

import pyarrow as pa

from benchmarks.answers.policies import figures, table
from memagent_batch.domain.scoring.comparison import sign_test
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


def test_figures_compare_each_policy_with_the_first_over_the_same_documents() -> None:
    tables = [scores("overwrite", right={0, 1, 2}), scores("retrieve", right={2, 3, 4, 5, 6, 7, 8})]
    base, other, total, compared = figures(pa.concat_tables(tables), window=2048)

    assert (base["policy"], base["windows"], base["n"], base["score"]) == ("overwrite", 4, 10, 0.3)
    assert (base["low"], base["high"]) == (round(wilson(3, 10).low, 4), round(wilson(3, 10).high, 4))
    assert (other["policy"], other["score"]) == ("retrieve", 0.7)
    assert (total["task"], compared["task"]) == ("all tasks", "niah")
    assert (compared["policy"], compared["against"]) == ("retrieve", "overwrite")
    assert (compared["better"], compared["worse"], compared["p"]) == (6, 2, round(sign_test(6, 2), 4))


def test_table_has_a_row_for_each_task_and_length_and_a_column_for_each_policy() -> None:
    tables = [scores("overwrite", right=set()), scores("retrieve", right=set(range(10)))]
    header, _, row = table(list(figures(pa.concat_tables(tables), window=2048))[:2]).splitlines()
    assert header == "| task | windows | overwrite | retrieve |"
    assert row == "| niah | 4 | 0.00 (0.00-0.28) | 1.00 (0.72-1.00) |"
