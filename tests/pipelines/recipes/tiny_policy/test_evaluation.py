"""The evaluation of tiny policies: a reader that does all right gets full marks, in every setting."""

import asyncio
import random
from collections.abc import Collection

import pytest

from memagent_batch.domain.closing.plan import CLOSING_SLOTS
from memagent_batch.domain.guides import GuideKind
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.stories import StoryKind
from pipelines.recipes.tiny_policy.documents import HeldOutDocument, Text, make_document
from pipelines.recipes.tiny_policy.evaluation import Evaluator, Figures, Setting, figures
from pipelines.recipes.tiny_policy.lessons.closings import Teacher, ToldStory, Truth
from tests.pipelines.recipes.tiny_policy.lessons.perfect_reader import PerfectReader

KEEP_WORDS = {"overwrite": "", "gated": "keep", "parallel": "none"}


class PerfectEngine:
    """Answers every turn of some documents as their stories call for."""

    def __init__(self, documents: list[HeldOutDocument], *, tokenizer: Tokenizer, policy: str) -> None:
        self._tokenizer = tokenizer
        self._readers = {}
        for document in documents:
            story = document.story
            reader = PerfectReader(
                story=story,
                tokenizer=tokenizer,
                keep_word=KEEP_WORDS[policy],
                first_memory="Nothing noted yet.",
            )
            told = ToldStory(
                story=story,
                met=document.met,
                text=document.text,
                answer=story.answer(document.met),
                value_type=None,
                truth=Truth.SUPPORTED,
            )
            self._readers[story.question] = (reader, Teacher(told=told, tokenizer=tokenizer, rng=random.Random(0)))

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def require_guides(self, kinds: Collection[GuideKind]) -> None:
        pass

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        text = self._tokenizer.decode(list(prompt.token_ids))
        reader, teacher = self._readers[text.partition("<question>\n")[2].partition("\n</question>")[0]]
        return await (teacher(prompt) if prompt.kind in CLOSING_SLOTS else reader(prompt))


def setting(policy: str, kind: StoryKind, text: Text, *, is_told: bool = True) -> Setting:
    return Setting(policy=policy, text=text, kind=kind, num_chunks=2, num_rivals=3, is_told=is_told, num_documents=3)


def evaluated(asked: Setting, tokenizer: Tokenizer) -> Figures:
    documents = [
        make_document(
            random.Random(f"1 {number}"),
            text=asked.text,
            kind=asked.kind,
            num_tokens=2 * 960 - 64,
            length_of=lambda text: len(tokenizer.encode(text)),
            num_rivals=3,
            is_told=asked.is_told,
        )
        for number in range(asked.num_documents)
    ]
    engine = PerfectEngine(documents, tokenizer=tokenizer, policy=asked.policy)
    evaluator = Evaluator(tokenizer.model, engine=engine)
    return figures(asyncio.run(evaluator.ended(asked, seed=1)), seconds=0.0)


@pytest.mark.parametrize("policy", list(KEEP_WORDS))
@pytest.mark.parametrize("kind", [StoryKind.SINGLE, StoryKind.MANY, StoryKind.LATEST, StoryKind.CHAIN])
def test_evaluation_of_a_perfect_reader_finds_all_right(
    kind: StoryKind, policy: str, tiny_tokenizer: Tokenizer
) -> None:
    found = evaluated(setting(policy, kind, Text.NOISE), tiny_tokenizer)
    assert (found.right, found.evidence_hit, found.supported) == (1.0, 1.0, 1.0)
    assert 0.0 < found.closing_share < 1.0


@pytest.mark.parametrize("text", list(Text))
def test_evaluation_in_every_text_counts_an_absent_answer_as_right_where_it_is_not_stated(
    text: Text, tiny_tokenizer: Tokenizer
) -> None:
    found = evaluated(setting("overwrite", StoryKind.SINGLE, text, is_told=False), tiny_tokenizer)
    assert (found.right, found.evidence_none, found.evidence_hit) == (1.0, 1.0, None)
