"""Whole documents that the reader is trained on: what is asked is stated once, or not at all, among values like it."""

import asyncio
import random
import re
from collections.abc import Iterator
from functools import cache

import pytest

from memagent_batch.tokens.tokenizer import load_tokenizer
from memagent_batch.wiring import resolve_model
from pipelines.recipes.reader.facts import Fact, FactMaker
from pipelines.recipes.reader.papers import PAPERS, Draft, Papers
from pipelines.recipes.reader.samples import agent_config, groups, written
from pipelines.recipes.reader.texts import Story

FILLER = "The quick pump was oiled. Nobody saw the grey barn.\n"
APART = {paper["called"] for paper in PAPERS["types"] if paper.get("apart")}


@cache
def _maker(apart: bool) -> FactMaker:
    """Its files take a second to read; each use sets its seed."""
    return FactMaker(random.Random(), apart=apart, words=["Ada", "Ulm"])


def _stories(number: int, *, apart: bool = False, num_chars: int = 3_000) -> Iterator[Story]:
    papers = Papers(_maker(apart), [FILLER * 200])
    _maker(apart).rng.seed(3)
    for _ in range(number):
        yield papers.story(num_chars=num_chars, num_asked=10, num_absent=3)


def _value(fact: Fact) -> str | None:
    value = fact.value(range(len(fact.mentions)))
    return None if value is None else value.text


@pytest.mark.parametrize("paper", PAPERS["types"], ids=lambda paper: str(paper["called"]))
def test_every_clause_states_a_value_and_fills_all_slots(paper: dict[str, object]) -> None:
    _maker(True).rng.seed(1)
    draft = Draft(_maker(True), paper)
    draft.write(num_clauses=99, num_left_out=0)
    draft.wrap(70)
    assert not re.search(r"[{}]", draft.text)
    assert sum(not clause.mentions for clause in draft.clauses) in (0, len(paper.get("parties", {})))  # type: ignore[arg-type]
    for clause in draft.clauses:
        assert not [ask for ask in clause.kind.asks if re.search(r"[{}]", ask) or not ask.endswith("?")]
        for mention in clause.mentions:
            start, end = mention.value_span
            assert draft.text[mention.char_start : mention.char_end] == mention.text
            assert mention.value
            assert clause.kind.value == "bool" or draft.text[start:end] == mention.value.text


def test_clauses_of_a_type_have_nouns_and_questions_of_their_own() -> None:
    for paper in PAPERS["types"]:
        clauses = [each for section in paper["sections"].values() for each in section if isinstance(each, dict)]
        for own in ([each["noun"] for each in clauses], [ask for each in clauses for ask in each["asks"]]):
            assert len(own) == len(set(own)), paper["called"]
        assert len(clauses) >= 25


def test_halves_share_no_clause() -> None:
    halves = [
        {(fact.who, fact.kind.noun) for told in _stories(100, apart=apart) for fact in told.facts}
        for apart in (False, True)
    ]
    assert all(halves)
    assert not halves[0] & halves[1]
    assert {who for who, _ in halves[0]}.isdisjoint(f"the {called}" for called in APART)
    assert {f"the {called}" for called in APART} < {who for who, _ in halves[1]}


def test_halves_share_no_noun_question_or_sentence() -> None:
    _maker(True).rng.seed(1)
    said: dict[bool, set[str]] = {True: set(), False: set()}
    for paper in PAPERS["types"]:
        draft = Draft(_maker(True), paper)
        draft.write(num_clauses=99, num_left_out=0)
        for clause in draft.clauses:
            if clause.kind.noun not in paper.get("parties", {}):
                said[clause.is_apart] |= {clause.kind.noun, *clause.kind.asks, *clause.kind.says, *clause.kind.denies}
    assert len(said[True]) > 600
    assert said[True] & said[False] == set()


def test_absent_clause_stands_nowhere_and_values_like_it_do() -> None:
    absent = [(told, fact) for told in _stories(60) for fact in told.facts if not fact.mentions]
    assert len(absent) > 150
    assert sum(bool(fact.rivals) for _, fact in absent) > 120
    for told, fact in absent:
        text = " ".join(told.text.split())
        for wording in (*fact.kind.says, *fact.kind.denies):
            parts = [re.escape(part) for part in re.split(r"\{\w+\}", wording.removesuffix("."))]
            assert not re.search(rf"(?i)\b{'.{1,30}?'.join(parts)}(\.|;)", text), wording


def test_a_later_change_is_the_truth_and_rivals_are_of_the_same_sort() -> None:
    facts = [(told, fact) for told in _stories(80, num_chars=6_000) for fact in told.facts]
    changed = [fact for _, fact in facts if len(fact.mentions) > 1]
    assert changed
    for fact in changed:
        first, last = (mention.value for mention in fact.mentions)
        assert first
        assert last
        assert first.text != last.text == _value(fact)
        assert (first.unit, bool(first.typed)) == (last.unit, bool(last.typed))
        assert fact.mentions[0].char_start < fact.mentions[1].char_start
    for told, fact in facts:
        assert not {mention.char_start for mention in fact.mentions} & {rival.char_start for rival in fact.rivals}
        for rival in fact.rivals:
            assert told.text[rival.char_start : rival.char_end] == rival.text


@pytest.mark.parametrize("kind", ["gated", "overwrite", "heads", "parallel"])
def test_oracle_keeps_the_value_when_later_clauses_have_values_of_the_same_sort(kind: str) -> None:
    tokenizer, rng = load_tokenizer(resolve_model("tiny")), random.Random(5)
    config = agent_config("tiny", kind, None, chunk_tokens=300)
    right = tempting = asked = 0
    for told in _stories(3):
        for fact in told.facts:
            turns = asyncio.run(written(told, fact, config, rng=rng))
            answers = [tokenizer.decode(turn.completion) for turn in turns if turn.kind == "answer"]
            asked += bool(answers)
            right += answers == [f"\\boxed{{{_value(fact) or 'not stated'}}}"]
            tempting += sum(turn.is_tempting for turn in turns)
            assert not [turn for turn in turns if turn.is_tempting and turn.says_news]
    assert right >= asked - 1  # a sentence may be cut where neither part says enough
    assert tempting > asked


def test_turns_that_tempt_are_mostly_learnt() -> None:
    config, rng = agent_config("tiny", "gated", None, chunk_tokens=300), random.Random(6)
    told = next(_stories(1))
    learnt = [turn for group in groups(told, config, rng=rng) for turn in group]
    every = [turn for fact in told.facts for turn in asyncio.run(written(told, fact, config, rng=rng))]
    tempting = [sum(turn.is_tempting for turn in turns) for turns in (learnt, every)]
    assert tempting[0] > 0.75 * tempting[1] > 0
