"""Models that come with the project, by the names that `model` takes: what they were taught, and their limits."""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from memagent_batch.logs import EventKind

log = logging.getLogger(__name__)

TINY_MODEL = Path(__file__).parent / "tiny"
SHIPPED_MODELS = {"tiny": TINY_MODEL}

EXAMPLE = "What is the access code of quiet-harbour?"
"""A question that they were taught."""
TAUGHT = re.compile(
    r"((What (is|are all) the|Which|Find the|List every|Is the) (latest )?(special magic )?"
    r"((access|gate|room) code|(account|badge|batch|contract|customer|invoice|locker|order|permit|phone|serial|shelf|"
    r"ticket) number|number|call sign|cover name|password|secret word|status|(?<=special magic )\w+)s? (of|for|does) .+"
    r"|Memorize and track the chain\(s\) of variable assignment .+|Which variables have the value \w+\?)",
    re.IGNORECASE,
)
"""Questions of the form that they were taught."""
NEXT_SENTENCE = re.compile(r"[?.] (?!If the text does not state it|Find all variables)")
"""A second sentence, which no such question has."""
MODEL_LIMITS: Mapping[str, str] = {
    "reader-135m": (
        "reader-135m was trained on short English facts, changelogs, copyright files and licences. Of its values "
        "from whole contracts, reports and minutes 47 % are right, whatever the confidence: check every answer."
    ),
    "tiny": (
        f"tiny is for demonstration: it was trained on questions such as “{EXAMPLE}”, of which it has 83 to 100 % "
        "right in short texts. Its answers to other questions mean nothing: check every answer."
    ),
}
"""What people who read their answers are told of models, with figures of the models' cards."""


def warn_of_untaught(model: str, questions: Iterable[str]) -> None:
    """Warns if a shipped model is asked something that it was not taught; it would answer all the same."""
    if model not in SHIPPED_MODELS:
        return
    asked = list(dict.fromkeys(questions))
    untaught = [question for question in asked if not is_taught(question)]
    if not untaught:
        return
    message = (
        f"{model!r} is a policy for demonstration that was taught needle questions such as {EXAMPLE!r}; "
        f"answers to others mean nothing, and {len(untaught)} of {len(asked)} questions are others ({untaught[0]!r}); "
        "name a model with --model"
    )
    fields = {"model": model, "num_questions": len(asked), "num_untaught": len(untaught)}
    log.warning(message, extra={"event": EventKind.QUESTIONS_UNTAUGHT, **fields})


def is_taught(question: str) -> bool:
    """Whether a question has a form that the shipped models were taught."""
    text = " ".join(question.split())
    return TAUGHT.fullmatch(text) is not None and NEXT_SENTENCE.search(text) is None
