"""The warning where a shipped policy is asked for what it was not taught."""

import random

import pytest

from memagent_batch.config.agent import AgentConfig
from memagent_batch.evaluation.needles.facts import Split, make_needle
from memagent_batch.evaluation.needles.stories import StoryKind, make_story
from memagent_batch.evaluation.needles.taught import EXAMPLE, is_taught, warn_of_untaught


def warnings_of(
    caplog: pytest.LogCaptureFixture, *questions: str, model: str = "tiny", engine: str = "vllm"
) -> list[str]:
    warn_of_untaught(questions, agent=AgentConfig(model=model, engine=engine))
    return caplog.messages


@pytest.mark.parametrize("split", list(Split))
def test_questions_of_needles_are_taught(split: Split) -> None:
    rng = random.Random(0)
    assert all(is_taught(make_needle(rng, split=split).question) for _ in range(500))
    assert is_taught(EXAMPLE)


@pytest.mark.parametrize("kind", list(StoryKind))
def test_questions_of_stories_are_taught(kind: StoryKind) -> None:
    rng = random.Random(1)
    questions = [make_story(rng, kind, split=Split.HELD_OUT).question for _ in range(200)]
    assert [question for question in questions if not is_taught(question)] == []


@pytest.mark.parametrize(
    "question", ["Which law governs?", "What is the term of the contract?", "Who?", f"{EXAMPLE} Why?", "access code"]
)
def test_question_of_another_form_warns_in_one_line(question: str, caplog: pytest.LogCaptureFixture) -> None:
    (line,) = warnings_of(caplog, question, EXAMPLE, EXAMPLE)
    assert "'tiny' is a policy for demonstration" in line
    assert f"1 of 2 questions are others ({question!r})" in line


@pytest.mark.parametrize(
    "knobs", [{"model": "other"}, {"model": "tiny", "engine": "openai"}, {"model": "tiny", "engine": "simulated"}]
)
def test_another_model_is_not_warned_of(knobs: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(caplog, "Which law governs?", **knobs) == []


def test_taught_questions_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(caplog, EXAMPLE) == []
