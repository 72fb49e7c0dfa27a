"""Stories: the memory, note and answer that follow from the statements that were met."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent_batch.evaluation.needles.facts import Split
from memagent_batch.evaluation.needles.stories import NOT_STATED, Story, StoryKind, make_story

SEEDS = st.integers(min_value=0, max_value=2**32)


@pytest.mark.parametrize("kind", list(StoryKind))
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_story_is_stated_only_once_all_of_it_was_met(kind: StoryKind, seed: int) -> None:
    story = make_story(random.Random(seed), kind, split=Split.TRAINING)
    everything = range(len(story.statements))
    assert len(story.pieces) == len(story.keys) == len(story.values) == len(story.statements)
    assert story.answer(()) == NOT_STATED
    assert story.memory(()) == story.blank
    assert story.answer(everything) != NOT_STATED
    assert not set(story.rivals) & set(story.statements)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_values_of_a_key_are_all_kept_in_the_order_of_the_document(seed: int) -> None:
    story = make_story(random.Random(seed), StoryKind.MANY, split=Split.HELD_OUT)
    everything = range(len(story.statements))
    assert story.answer(everything) == ", ".join(story.values)
    assert all(value in story.memory(everything) for value in story.values)
    assert story.note((0,), (0, 1)) == story.memory((0, 1))
    assert story.note(everything, (0,)) is None


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_changed_value_replaces_the_one_before(seed: int) -> None:
    story = make_story(random.Random(seed), StoryKind.LATEST, split=Split.TRAINING)
    everything = range(len(story.statements))
    assert story.answer(everything) == story.values[-1]
    assert story.values[0] not in story.memory(everything) or story.values[0] in story.values[-1]


def linked(seed: int) -> Story:
    return make_story(random.Random(seed), StoryKind.LINKED, split=Split.TRAINING)


@pytest.mark.parametrize("seed", range(12))
def test_links_are_followed_from_the_key_that_is_asked_for(seed: int) -> None:
    story = linked(seed)
    last = len(story.statements) - 1
    assert story.kept((last,)) == ()
    assert story.note((), (last,)) is None
    assert story.answer(range(last)) == NOT_STATED
    assert story.kept((last, *range(last))) == tuple(range(last + 1))
    assert story.answer((last, *range(last))) == story.values[last]


@pytest.mark.parametrize("seed", range(12))
def test_assignments_are_answered_by_the_variables_of_the_asked_value_alone(seed: int) -> None:
    story = make_story(random.Random(seed), StoryKind.CHAIN, split=Split.TRAINING)
    answer = story.answer(range(len(story.statements))).split(", ")
    origins = {statement.split()[1]: statement.split()[-1] for statement in story.statements}
    asked = next(word for word in story.question.replace("?", " ").split() if word.isdigit())
    assert sorted(answer) == sorted(name for name in origins if _end(name, origins) == asked)


def _end(name: str, origins: dict[str, str]) -> str:
    while name in origins:
        name = origins[name]
    return name
