"""Closing turns that the tiny policy learns: asked by the product, answered by what the documents tell."""

import random
import re

import pytest

from memagent_batch.domain.closing.answer_types import AnswerType
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.facts import Split
from memagent_batch.evaluation.needles.stories import NOT_STATED
from pipelines.recipes.tiny_policy.lessons.closings import ClosingMaker, ClosingTurn, ToldStory, Truth

UNITS = [f" Line {number} of a plain text says that nothing much happens." for number in range(300)]


@pytest.fixture(scope="module")
def readings(tiny_model: str) -> list[tuple[ToldStory, list[ClosingTurn]]]:
    tokenizer = Tokenizer(tiny_model)
    maker = ClosingMaker(tokenizer, [(1.0, UNITS)], split=Split.TRAINING)
    rng = random.Random(3)
    return [(told, maker.closed(rng, told)) for told in (maker.told(rng) for _ in range(250))]


def test_evidence_names_the_sentences_that_state_the_answer(
    readings: list[tuple[ToldStory, list[ClosingTurn]]], tiny_tokenizer: Tokenizer
) -> None:
    asked = [(told, turn) for told, turns in readings for turn in turns if turn.kind.startswith("evidence")]
    for told, turn in asked:
        lines = dict(re.findall(r"^\[(\d+)\] (.*)$", tiny_tokenizer.decode(list(turn.prompt)), re.MULTILINE))
        chosen = [] if turn.target == "none" else [lines[number] for number in turn.target.split(", ")]
        assert bool(chosen) == (told.answer != NOT_STATED and bool(told.met))
        assert all(any(each in sentence for each in told.story.statements) for sentence in chosen)
    assert len({turn.kind for _, turn in asked}) >= 6


def test_value_says_what_the_answer_says(readings: list[tuple[ToldStory, list[ClosingTurn]]]) -> None:
    kinds = set()
    for told, turns in readings:
        for turn in turns:
            if turn.kind.startswith("value"):
                kinds.add(turn.kind)
                assert turn.kind.endswith(NOT_STATED) == (told.answer == NOT_STATED)
                if turn.kind == f"value {AnswerType.NUMBER}":
                    assert turn.target == told.answer
    assert {f"value {kind}" for kind in ("text", "bool", "label", "number")} <= kinds


def test_support_covers_all_of_its_menu(readings: list[tuple[ToldStory, list[ClosingTurn]]]) -> None:
    found = {told.truth for told, turns in readings for turn in turns if turn.kind.startswith("support")}
    assert found == set(Truth)


def test_wrong_answers_teach_no_evidence(readings: list[tuple[ToldStory, list[ClosingTurn]]]) -> None:
    for told, turns in readings:
        if told.truth is not Truth.SUPPORTED:
            assert not [turn for turn in turns if turn.kind.startswith("evidence")]


def test_each_line_of_a_list_is_marked_with_its_number_or_none(
    readings: list[tuple[ToldStory, list[ClosingTurn]]], tiny_tokenizer: Tokenizer
) -> None:
    maker = ClosingMaker(tiny_tokenizer, [(1.0, UNITS)], split=Split.TRAINING)
    (none, *_) = tiny_tokenizer.encode("none")
    marked = set()
    for turn in (turn for _, turns in readings for turn in turns):
        marks = list(maker.marks(turn))
        meant = [tiny_tokenizer.encode(number)[0] for number in turn.target.split(", ")]
        numbers, choices = marks[::2], marks[1::2]
        assert all(tiny_tokenizer.decode([turn.prompt[mark.place]]).startswith("\n") for mark in choices)
        assert all(mark.token_id == none for mark in choices if not mark.found)
        assert [mark.place + 1 for mark in numbers] == [mark.place for mark in choices]
        assert not any(mark.found or mark.token_id == none for mark in numbers)
        if marks:
            marked.add(turn.kind.split()[0])
            found = [mark.token_id for mark in marks if mark.found]
            assert sorted(found) == sorted(meant if turn.target != "none" else [])
    assert marked == {"evidence", "value"}
