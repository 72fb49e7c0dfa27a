"""The samples that the reader is trained on: what is stated, where it stands, and what a perfect agent writes."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from memagent_batch.domain.follow_ups.answer_types import AnswerType, ValueType
from memagent_batch.tokens.tokenizer import load_tokenizer
from memagent_batch.wiring import resolve_model
from pipelines.recipes.reader.facts import Fact, FactMaker, Kind, Mention, Value
from pipelines.recipes.reader.oracle import Written
from pipelines.recipes.reader.samples import make_way, written
from pipelines.recipes.reader.texts import Story, story

FILLER = "The quick pump was oiled. Nobody saw the grey barn. A list of parts follows below.\n"
RENT = Kind(noun="rent", value="money", of=["site"], says=["{who} costs {value}."], asks=["What does {who} cost?"])
RENT_TYPE = ValueType(type=AnswerType.NUMBER, unit="EUR")
WAYS = [("gated", None), ("heads", None), ("overwrite", "default"), ("overwrite", "section-first"), ("parallel", None)]


class Steady(random.Random):
    """Draws no mistakes: every share that is asked for is missed."""

    def random(self) -> float:
        return 0.999


def _story(*said: tuple[str, str, Value | None], aliased: Sequence[int] = ()) -> Story:
    """A document with these mentions in the order given, between filler; each is text, name, value."""
    text, mentions = FILLER * 8, []
    for number, (sentence, name, value) in enumerate(said):
        mentions.append(Mention(text=sentence, name=name, value=value, aliased=number in aliased, char_start=len(text)))
        text += sentence + " " + FILLER * 8
    fact = Fact(
        kind=RENT,
        who="Zwork Mill",
        mentions=tuple(mentions),
        question="What does Zwork Mill cost?",
        value_type=RENT_TYPE,
    )
    return Story(text=text, facts=(fact,))


def _euros(number: str) -> Value:
    return Value(text=f"{number} euros", typed=number, unit="EUR")


def _turns(told: Story, kind: str, prompt_set: str | None, *, heads: int = 4) -> list[tuple[str, str]]:
    """Kind and text of the turns of its one question, as they should be."""
    way = make_way("tiny", kind, prompt_set, chunk_tokens=300, heads=heads)
    turns: list[Written] = asyncio.run(written(told, told.facts[0], way, rng=Steady()))
    tokenizer = load_tokenizer(resolve_model("tiny"))
    return [(turn.kind, tokenizer.decode(turn.completion)) for turn in turns]


def test_halves_share_no_kind_no_wording_and_no_name() -> None:
    halves = [FactMaker(random.Random(7), apart=apart) for apart in (False, True)]
    nouns = [{kind.noun for kind in maker.kinds} for maker in halves]
    assert not nouns[0] & nouns[1]
    names = [{maker.entity("place") for _ in range(2000)} for maker in halves]
    assert not names[0] & names[1]
    assert len(names[0]) > 1500
    assert len(nouns[0]) >= 40


def test_story_places_every_mention_and_keeps_their_order() -> None:
    rng = random.Random(3)
    for _ in range(30):
        told = story(
            FactMaker(rng, apart=False), [FILLER * 60], num_chars=3000, num_facts=9, num_asked=6, num_absent=2, rng=rng
        )
        for fact in told.facts:
            places = [mention.char_start for mention in fact.mentions]
            assert places == sorted(places)
            for mention in fact.mentions:
                assert told.text[mention.char_start : mention.char_end] == mention.text
                start, end = mention.value_span
                if mention.value is not None and fact.kind.value != "bool":
                    assert told.text[start:end] == mention.value.text
        assert [len(fact.mentions) for fact in told.facts].count(0) == 2


@pytest.mark.parametrize(("kind", "prompt_set"), WAYS)
def test_oracle_notes_the_fact_and_answers_with_its_value(kind: str, prompt_set: str | None) -> None:
    turns = _turns(_story(("Zwork Mill costs 430 euros.", "Zwork Mill", _euros("430"))), kind, prompt_set)
    assert ("answer", "\\boxed{430 euros}") in turns
    assert ("value", "430") in turns
    texts = [text for turn, text in turns if turn in ("update", "read", "merge")]
    assert "Zwork Mill costs 430 euros." in texts
    assert set(texts) <= {"Zwork Mill costs 430 euros.", "keep", "none", "Nothing noted yet."}
    assert [text for turn, text in turns if turn == "support"] == ["1"]


@pytest.mark.parametrize(("kind", "prompt_set"), WAYS)
def test_oracle_says_not_stated_of_an_absent_fact(kind: str, prompt_set: str | None) -> None:
    turns = _turns(_story(), kind, prompt_set)
    assert ("answer", "\\boxed{not stated}") in turns
    assert ("value", "not stated") in turns
    assert not [text for turn, text in turns if turn == "merge"]


@pytest.mark.parametrize(("kind", "prompt_set"), WAYS)
def test_oracle_answers_with_the_correction(kind: str, prompt_set: str | None) -> None:
    first = ("Zwork Mill costs 430 euros.", "Zwork Mill", _euros("430"))
    later = ("Correction: the rent of Zwork Mill is 510 euros.", "Zwork Mill", _euros("510"))
    turns = _turns(_story(first, later), kind, prompt_set)
    assert ("answer", "\\boxed{510 euros}") in turns
    texts = [text for turn, text in turns if turn in ("update", "read", "merge")]
    memory = [first[0], later[0]]
    assert memory == [text for text in texts if text != "keep"] if kind == "heads" else "\n".join(memory) in texts


def test_oracle_repeats_in_a_new_note_what_goes_with_the_oldest() -> None:
    said = [(f"The rent of Zwork Mill is {rent} euros.", "Zwork Mill", _euros(rent)) for rent in ("430", "510", "620")]
    turns = _turns(_story(*said), "heads", None, heads=2)
    one, two, three = (sentence for sentence, _, _ in said)
    assert [text for turn, text in turns if turn == "update" and text != "keep"] == [one, two, f"{one}\n{three}"]
    assert ("answer", "\\boxed{620 euros}") in turns


def test_oracle_needs_the_other_name_before_it_notes_what_is_said_under_it() -> None:
    named = ("Zwork Mill is called Q4 below.", "Zwork Mill", None)
    said = ("Q4 costs 430 euros.", "Q4", _euros("430"))
    assert ("answer", "\\boxed{430 euros}") in _turns(_story(named, said, aliased=[1]), "gated", None)
    assert ("answer", "\\boxed{not stated}") in _turns(_story(said, aliased=[0]), "gated", None)
