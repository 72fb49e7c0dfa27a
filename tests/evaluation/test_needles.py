import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent_batch.evaluation.needles import (
    WORDINGS,
    Haystack,
    make_needle,
    make_task,
)

SEEDS = st.integers(min_value=0, max_value=2**32)


def count_characters(text: str) -> int:
    return len(text)


@pytest.mark.parametrize("haystack", list(Haystack))
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, num_distractors=st.integers(0, 8), length=st.integers(0, 60))
def test_task_of_any_kind_holds_its_needle_once_where_it_says(
    haystack: Haystack, seed: int, num_distractors: int, length: int
) -> None:
    task = make_task(random.Random(seed), length=length, haystack=haystack, num_distractors=num_distractors)

    assert task.document.count(task.needle) == 1
    assert task.answer in task.needle
    assert len(task.distractors) == num_distractors
    assert all(distractor in task.document for distractor in task.distractors)


def test_task_with_same_seed_is_the_same_and_with_another_is_not() -> None:
    first, again, other = (make_task(random.Random(seed), length=30, num_distractors=4) for seed in (5, 5, 6))

    assert first == again
    assert first.document != other.document


@pytest.mark.parametrize("length", [2_000, 50_000])
def test_task_of_measured_length_is_at_least_as_long_and_little_longer(length: int) -> None:
    task = make_task(random.Random(1), length=length, length_of=count_characters, num_distractors=3)

    assert length <= len(task.document) < length + 4_000


def test_distractors_of_long_document_are_spread_over_the_whole() -> None:
    task = make_task(random.Random(4), length=2_000, haystack=Haystack.RUNNING, num_distractors=200)

    places = [task.document.index(distractor) / len(task.document) for distractor in task.distractors]

    assert all(any(tenth <= 10 * place < tenth + 1 for place in places) for tenth in range(10))


def test_wording_of_every_kind_fills_all_its_slots() -> None:
    rng = random.Random(9)

    needles = [make_needle(rng, wording=number) for number in range(len(WORDINGS))]

    assert all(needle.key in needle.question and needle.key in needle.sentence for needle in needles)
    assert not any("{" in needle.sentence + needle.question for needle in needles)
    assert len({needle.sentence.split(needle.key)[0] for needle in needles}) == len(WORDINGS)
