import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent_batch.evaluation.needles.facts import WORDINGS, Split, make_needle, make_rival, make_word, words_of
from memagent_batch.evaluation.needles.prose import PARAGRAPHS
from memagent_batch.evaluation.needles.tasks import Haystack, make_task
from memagent_batch.evaluation.needles.words import ADJECTIVES, NOISE, NOUNS, SENTENCES

SEEDS = st.integers(min_value=0, max_value=2**32)


def count_characters(text: str) -> int:
    return len(text)


@pytest.mark.parametrize("haystack", list(Haystack))
@pytest.mark.parametrize("split", list(Split))
@settings(max_examples=15)
@given(seed=SEEDS, num_distractors=st.integers(0, 8), length=st.integers(0, 60))
def test_task_of_any_kind_holds_its_needle_once_where_it_says(
    haystack: Haystack, split: Split, seed: int, num_distractors: int, length: int
) -> None:
    task = make_task(
        random.Random(seed), length=length, haystack=haystack, num_distractors=num_distractors, split=split
    )

    assert task.document.count(task.needle) == 1
    assert task.document.index(task.needle) == round(task.position * len(task.document))
    assert task.answer in task.needle
    assert len(task.distractors) == num_distractors
    assert all(distractor in task.document for distractor in task.distractors)


@given(seed=SEEDS)
def test_rival_of_needle_never_answers_its_question(seed: int) -> None:
    rng = random.Random(seed)
    needle = make_needle(rng, split=Split.HELD_OUT)

    rivals = [make_rival(rng, needle, split=Split.HELD_OUT) for _ in range(20)]

    assert all((rival.key, rival.attribute) != (needle.key, needle.attribute) for rival in rivals)
    assert all(rival.answer != needle.answer for rival in rivals)
    assert all(rival.sentence != needle.sentence for rival in rivals)


def test_rivals_of_needle_share_a_part_of_its_key_often() -> None:
    rng = random.Random(7)
    needle = make_needle(rng, split=Split.TRAINING, key="green-anvil")

    keys = [make_rival(rng, needle, split=Split.TRAINING).key for _ in range(200)]

    near = [key for key in keys if key.startswith("green-") or key.endswith("-anvil")]
    assert 40 < len(near) < 200


def test_task_with_same_seed_is_the_same_and_with_another_is_not() -> None:
    first, again, other = (make_task(random.Random(seed), length=30, num_distractors=4) for seed in (5, 5, 6))

    assert first == again
    assert first.document != other.document


@pytest.mark.parametrize("length", [2_000, 50_000])
def test_task_of_measured_length_is_at_least_as_long_and_little_longer(length: int) -> None:
    task = make_task(random.Random(1), length=length, length_of=count_characters, num_distractors=3)

    assert length <= len(task.document) < length + 4_000


def test_task_ten_times_as_long_takes_about_ten_times_as_long() -> None:
    seconds = []
    for length in (200_000, 2_000_000):
        start = time.process_time()
        make_task(random.Random(2), length=length, length_of=count_characters, num_distractors=length // 4_000)
        seconds.append(time.process_time() - start)

    assert seconds[1] < 40 * seconds[0] + 0.5


@pytest.mark.parametrize(("position", "low", "high"), [(0.0, 0.0, 0.0), (0.5, 0.4, 0.6), (1.0, 0.9, 1.0)])
def test_needle_at_given_position_stands_there(position: float, low: float, high: float) -> None:
    task = make_task(random.Random(3), length=200, haystack=Haystack.NOISE, position=position)

    assert low <= task.position <= high


def test_distractors_of_long_document_are_spread_over_the_whole() -> None:
    task = make_task(random.Random(4), length=2_000, haystack=Haystack.RUNNING, num_distractors=200)

    places = [task.document.index(distractor) / len(task.document) for distractor in task.distractors]

    assert all(any(tenth <= 10 * place < tenth + 1 for place in places) for tenth in range(10))


def test_noise_haystack_repeats_the_noise_paragraph_alone() -> None:
    task = make_task(random.Random(5), length=20, haystack=Haystack.NOISE)

    assert task.document.replace(task.needle, "").split("\n").count(NOISE) >= 18
    assert task.document.count(NOISE) == 20


@pytest.mark.parametrize("words", [ADJECTIVES, NOUNS])
def test_words_of_both_splits_are_apart_and_complete(words: tuple[str, ...]) -> None:
    training, held_out = (set(words_of(words, split=split)) for split in Split)

    assert not training & held_out
    assert training | held_out == set(words)
    assert len(held_out) > 20


def test_made_up_words_of_both_splits_never_meet() -> None:
    rng = random.Random(6)

    training, held_out = ({make_word(rng, split=split) for _ in range(5_000)} for split in Split)

    assert not training & held_out


def test_held_out_running_text_never_stands_in_training_text() -> None:
    training = make_task(random.Random(8), length=3_000, haystack=Haystack.RUNNING, split=Split.TRAINING).document

    assert sum(len(paragraph) for paragraph in PARAGRAPHS) >= 60
    assert not any(sentence in training for paragraph in PARAGRAPHS for sentence in paragraph)


def test_wording_of_every_kind_fills_all_its_slots() -> None:
    rng = random.Random(9)

    needles = [make_needle(rng, split=Split.HELD_OUT, wording=number) for number in range(len(WORDINGS))]

    assert all(needle.key in needle.question and needle.key in needle.sentence for needle in needles)
    assert not any("{" in needle.sentence + needle.question for needle in needles)
    assert len({needle.sentence.split(needle.key)[0] for needle in needles}) == len(WORDINGS)


def test_grammar_of_running_text_leaves_no_slot_open() -> None:
    text = make_task(random.Random(10), length=2_000, haystack=Haystack.RUNNING, split=Split.TRAINING).document

    assert "{" not in text
    assert "}" not in text
    assert len(SENTENCES) >= 20
