"""What users are told of shipped models: a warning of what they were not taught, and the figures of their cards."""

import re

import pytest

from memagent_batch.apps.evaluation.tasks import OR_NOT, Wordform, question_on
from memagent_batch.loop.models.packaged import READER
from memagent_batch.loop.models.shipped import EXAMPLE, MODEL_LIMITS, TINY_MODEL, is_taught, warn_of_untaught


def warnings_of(caplog: pytest.LogCaptureFixture, *questions: str, model: str = "tiny") -> list[str]:
    warn_of_untaught(model, questions)
    return caplog.messages


def test_questions_of_needles_are_taught() -> None:
    attributes = ("access code", "account number", "badge number", "gate code", "phone number", "serial number")
    assert all(is_taught(f"What is the {attribute} of quiet-harbour?") for attribute in attributes)
    assert all(is_taught(question_on(["quiet-harbour"], form, alone=True)) for form in Wordform)
    assert is_taught(EXAMPLE)


@pytest.mark.parametrize(
    "question",
    [
        "What are all the special magic numbers for quiet-harbour mentioned in the provided text?",
        "List every access code of quiet-harbour.",
        "What is the latest access code of quiet-harbour?",
        "Is the access code of quiet-harbour 1234567?",
        "Which variables have the value 12345?",
        f"What is the status of quiet-harbour?{OR_NOT}",
    ],
)
def test_questions_of_many_values_changes_and_chains_are_taught(question: str) -> None:
    assert is_taught(question)


@pytest.mark.parametrize(
    "question", ["Which law governs?", "What is the term of the contract?", "Who?", f"{EXAMPLE} Why?", "access code"]
)
def test_question_of_another_form_warns_in_one_line(question: str, caplog: pytest.LogCaptureFixture) -> None:
    (line,) = warnings_of(caplog, question, EXAMPLE, EXAMPLE)
    assert "'tiny' is a policy for demonstration" in line
    assert f"1 of 2 questions are others ({question!r})" in line


def test_another_model_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(caplog, "Which law governs?", model="other") == []


def test_limits_of_models_have_the_figures_of_their_cards() -> None:
    reader, tiny = ((folder / "README.md").read_text(encoding="utf-8") for folder in (READER, TINY_MODEL))
    (right,) = re.findall(r"whole contracts, reports and minutes.*?had (0\.\d+) right", reader, re.DOTALL)
    assert f"{100 * float(right):.0f} %" in MODEL_LIMITS["reader-135m"]
    shares = [
        float(share) for row in re.findall(r"^\| `\w+`.*", tiny, re.MULTILINE) for share in re.findall(r"\d\.\d\d", row)
    ]
    assert f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %" in MODEL_LIMITS["tiny"]
