"""The phases of the training: each step has turns of every kind, in lengths that grow."""

import random
from itertools import islice

import pytest

from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.facts import Split
from memagent_batch.evaluation.needles.stories import StoryKind
from pipelines.recipes.tiny_policy.examples import PaddedExamples
from pipelines.recipes.tiny_policy.lessons.closings import ClosingMaker
from pipelines.recipes.tiny_policy.lessons.scenes import SceneMaker
from pipelines.recipes.tiny_policy.lessons.streams import training_streams
from pipelines.recipes.tiny_policy.lessons.turns import TurnMaker
from pipelines.recipes.tiny_policy.schedule import Makers, phases

UNITS = [f" Line {number} of a plain text says that nothing much happens." for number in range(400)]
PROMPTS = {"update", "gated", "section-first", "parallel", "merge", "answer", "direct"}
CLOSINGS = {"value", "evidence", "support"}


@pytest.fixture(scope="module")
def steps(tiny_model: str) -> dict[str, list[PaddedExamples]]:
    tokenizer = Tokenizer(tiny_model)
    units = [(0.9, UNITS)]
    makers = Makers(
        turns=TurnMaker(tokenizer, SceneMaker(tokenizer, training_streams(tokenizer, units, seed=0))),
        closings=ClosingMaker(tokenizer, units, split=Split.TRAINING),
    )
    return {
        phase.name: [batch for batches in islice(phase.steps, 12) for batch in batches]
        for phase in phases(makers, random.Random(4), seconds=1.0)
    }


def test_first_phase_teaches_every_prompt_and_every_story(steps: dict[str, list[PaddedExamples]]) -> None:
    kinds = {kind for batch in steps["short"] for kind in batch.kinds}
    assert {kind.split()[0] for kind in kinds} == PROMPTS | CLOSINGS
    assert {kind.split()[1] for kind in kinds if kind.split()[0] == "parallel"} == set(StoryKind)


def test_chunks_grow_from_phase_to_phase(steps: dict[str, list[PaddedExamples]]) -> None:
    longest = [max(batch.prefix.shape[1] for batch in steps[name]) for name in ("short", "middle", "long")]
    assert longest == sorted(longest)
    assert longest[-1] > 1_000


def test_sections_that_are_shown_first_serve_many_questions(steps: dict[str, list[PaddedExamples]]) -> None:
    for batch in steps["long"]:
        if {kind.split()[0] for kind in batch.kinds} <= {"gated", "parallel", "section-first"}:
            assert len(batch.kinds) >= 16 * len(batch.prefix)
