"""Turns of reading that the tiny policy learns: real policies end with the right answer by what they teach."""

import asyncio
import random
from collections.abc import Iterator
from itertools import combinations, islice

import numpy as np
import pytest

from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.document import Document
from memagent_batch.domain.prompts import AnswerForm, PromptSet
from memagent_batch.domain.readings import Policy, QuestionTokens
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.facts import Split
from memagent_batch.evaluation.needles.stories import StoryKind, make_relatives, make_story
from memagent_batch.policies.gated import GatedPolicy
from memagent_batch.policies.overwrite import OverwritePolicy
from memagent_batch.policies.parallel import ParallelPolicy
from memagent_batch.prompts.built_in import DEFAULT_PROMPTS, GATED_PROMPTS, PARALLEL_PROMPTS
from pipelines.recipes.tiny_policy.examples import Branch, Example
from pipelines.recipes.tiny_policy.lessons.scenes import SceneMaker
from pipelines.recipes.tiny_policy.lessons.streams import Stream
from pipelines.recipes.tiny_policy.lessons.turns import GATE_WEIGHT, Lengths, TurnMaker
from tests.pipelines.recipes.tiny_policy.lessons.perfect_reader import PerfectReader

CHUNK_TOKENS = 90
READERS: dict[str, tuple[Policy, PromptSet]] = {
    "overwrite": (OverwritePolicy(chunk_tokens=CHUNK_TOKENS, memory_tokens=160, answer_tokens=100), DEFAULT_PROMPTS),
    "gated": (GatedPolicy(chunk_tokens=CHUNK_TOKENS, memory_tokens=160, answer_tokens=100), GATED_PROMPTS),
    "parallel": (
        ParallelPolicy(chunk_tokens=CHUNK_TOKENS, memory_tokens=160, answer_tokens=100, rounds=6),
        PARALLEL_PROMPTS,
    ),
}
LENGTHS = Lengths(shortest_tokens=40, longest_tokens=90, long_share=0.2)


@pytest.fixture
def maker(tiny_tokenizer: Tokenizer) -> TurnMaker:
    tokens = np.full(900, tiny_tokenizer.encode(" the")[0], np.int32)
    stream = Stream(tokens=tokens, borders=np.arange(0, 900, 10))
    return TurnMaker(tiny_tokenizer, SceneMaker(tiny_tokenizer, [(1.0, stream)]))


def chunked(statements: list[str], tokenizer: Tokenizer) -> Document:
    """A statement in each chunk, whole."""
    lines = [[*tokenizer.encode(f"{each}\n")] for each in statements]
    filler = tokenizer.encode(" the")[0]
    token_ids = [token for line in lines for token in [*line, *[filler] * (CHUNK_TOKENS - len(line))]]
    return Document(token_ids=token_ids, token_chars=range(len(token_ids)), num_chars=len(token_ids))


@pytest.mark.parametrize("reader", list(READERS))
@pytest.mark.parametrize("kind", list(StoryKind))
def test_reader_that_writes_what_is_taught_ends_with_the_right_answer(
    kind: StoryKind, reader: str, tiny_tokenizer: Tokenizer
) -> None:
    policy, prompt_set = READERS[reader]
    for seed in range(8):
        story = make_story(random.Random(seed), kind, split=Split.HELD_OUT)
        answer = asyncio.run(read(story.statements, seed, kind, policy, prompt_set, tiny_tokenizer))
        assert set(answer.split(", ")) == set(story.answer(range(len(story.statements))).split(", "))


async def read(
    statements: tuple[str, ...], seed: int, kind: StoryKind, policy: Policy, prompt_set: PromptSet, tokenizer: Tokenizer
) -> str:
    story = make_story(random.Random(seed), kind, split=Split.HELD_OUT)
    prompts = tokenizer.prompt_tokens(prompt_set, answer_form=AnswerForm.BOXED)
    perfect = PerfectReader(
        story=story, tokenizer=tokenizer, keep_word=prompts.keep_word, first_memory=prompts.first_memory.text
    )
    question = QuestionTokens(token_ids=tokenizer.encode(story.question))
    document = chunked(list(statements), tokenizer)
    outcome = await policy.read(document, question, prompts=prompts, turns=perfect)
    return extract_answer(outcome.response, extraction=Extraction.BOXED) or ""


def test_sections_hold_the_statements_of_a_story_in_its_order(tiny_tokenizer: Tokenizer) -> None:
    tokens = np.full(900, tiny_tokenizer.encode(" the")[0], np.int32)
    scenes = SceneMaker(tiny_tokenizer, [(1.0, Stream(tokens=tokens, borders=np.arange(0, 900, 10)))])
    rng = random.Random(4)
    for _ in range(60):
        scene = scenes.scene(rng, num_tokens=300, num_questions=5)
        text = tiny_tokenizer.decode(scene.chunk)
        for asked in scene.asked:
            places = [text.index(asked.story.statements[place]) for place in asked.section]
            assert places == sorted(places)


def texts_of(example: Example, branch: Branch, tokenizer: Tokenizer) -> tuple[str, str]:
    return tokenizer.decode([*example.prefix, *branch.prompt]), tokenizer.decode(list(branch.target[:-1]))


def branches(examples: Iterator[Example], *, num: int) -> Iterator[tuple[Example, Branch]]:
    return ((example, branch) for example in islice(examples, num) for branch in example.branches)


def test_section_turns_without_news_write_the_word_of_their_prompt(maker: TurnMaker, tiny_tokenizer: Tokenizer) -> None:
    words = {"gated": "keep", "parallel": "none"}
    seen = set()
    for example, branch in branches(maker.shared_sections(random.Random(1), LENGTHS, num_questions=6), num=60):
        prompt, target = texts_of(example, branch, tiny_tokenizer)
        name, change = branch.kind.split()[0], branch.kind.split()[-1]
        is_first = "<memory>\nNothing noted yet.\n</memory>" in prompt
        seen.add((name, change))
        if name == "gated":
            assert (target == "keep") == (change == "same" and not is_first)
        if name in words:
            assert branch.weights == (GATE_WEIGHT,)
        if name == "parallel" and change == "same":
            assert target == "none"
        if name == "section-first":
            assert target not in words.values()
    assert len(seen) == 6


def test_every_turn_shows_the_prompt_of_its_policy_whole(maker: TurnMaker, tiny_tokenizer: Tokenizer) -> None:
    rng = random.Random(2)
    sources = (
        maker.shared_sections(rng, LENGTHS, num_questions=3),
        maker.single_sections(rng, LENGTHS),
        maker.answers(rng, num=3),
        maker.merges(rng, num=3),
    )
    for source in sources:
        for example, branch in branches(source, num=12):
            prompt, target = texts_of(example, branch, tiny_tokenizer)
            assert prompt.startswith("user\n")
            assert prompt.endswith("assistant\n")
            assert prompt.count("<question>\n") == prompt.count("\n</question>") == 1
            assert target
            assert branch.target[-1] == tiny_tokenizer.end_token_id


def test_the_sentence_that_is_asked_for_is_marked_and_no_other(maker: TurnMaker, tiny_tokenizer: Tokenizer) -> None:
    asked_for, other = (tiny_tokenizer.encode(word)[0] for word in ("yes", "none"))
    lengths = Lengths(shortest_tokens=90, longest_tokens=200, long_share=0.5)
    num_marked = num_others = 0
    for example in islice(maker.single_sections(random.Random(4), lengths), 150):
        (branch,) = example.branches
        if branch.kind != "update single blank new":
            continue
        told: dict[int, list[str]] = {asked_for: [], other: []}
        for aside in branch.asides:
            told[aside.target].append(tiny_tokenizer.decode(branch.prompt[: aside.place + 1]))
        value = tiny_tokenizer.decode(branch.target[:-1]).split(" ")[-1]
        assert [text.endswith(f" {value}") for text in told[asked_for]] in ([True], [])  # none where the value was cut
        if value[:-1].isdigit():  # another fact may have the same status
            assert not [text for text in told[other] if text.endswith(f" {value}")]
        num_marked += len(told[asked_for])
        num_others += len(told[other])
    assert num_marked > 20
    assert num_others > 30


def test_relatives_are_easily_taken_for_one_another_and_never_the_same() -> None:
    rng = random.Random(2)
    families = [make_relatives(rng, 4, split=Split.TRAINING) for _ in range(100)]
    num_near = 0
    for family in families:
        assert len({story.topic for story in family}) == len({story.values for story in family}) == 4
        parts = [set(story.keys[0].split("-")) for story in family]
        num_near += any(one & other for one, other in combinations(parts, 2))
    assert num_near > 80
