"""What the shipped policies were taught to answer, and the warning where they are asked for something else."""

import logging
import re
from collections.abc import Iterable
from functools import cache

from memagent_batch.config.agent import AgentConfig
from memagent_batch.evaluation.needles.facts import MAGIC_ASKED, WAYS_TO_ASK
from memagent_batch.evaluation.needles.words import NUMBER_ATTRIBUTES, WORD_ATTRIBUTES
from memagent_batch.evaluation.tasks.wordings import ASKED_LATEST, OR_NOT, STATUS_ATTRIBUTE
from memagent_batch.logs import EventKind
from memagent_batch.plugins import engine_settings
from memagent_batch.wiring import SHIPPED_MODELS

log = logging.getLogger(__name__)

EXAMPLE = "What is the access code of quiet-harbour?"
"""A question of a taught form."""

MANY_ASKED = (
    "What are all the special magic {attribute}s for {key} mentioned in the provided text?",
    "What are all the {attribute}s of {key}?",
    "List every {attribute} of {key}.",
)
"""Questions for all values of a key. The first is RULER's, for its own wordings."""

TRUE_ASKED = "Is the {attribute} of {key} {value}?"
"""A question for yes or no."""

CHAIN_ASKED = (
    "Memorize and track the chain(s) of variable assignment hidden in the text. "
    "Find all variables that are assigned the value {value} in the text above.",
    "Which variables have the value {value}?",
)
"""Questions for a chain of assignments. The first is RULER's."""


def warn_of_untaught(questions: Iterable[str], *, agent: AgentConfig) -> None:
    """Warns where a shipped policy is asked for what it was not taught; it would answer all the same."""
    if not engine_settings(agent).has_weights or agent.model not in SHIPPED_MODELS:
        return
    asked = list(dict.fromkeys(questions))
    untaught = [question for question in asked if not is_taught(question)]
    if not untaught:
        return
    message = (
        f"{agent.model!r} is a policy for demonstration that was taught needle questions such as {EXAMPLE!r}; "
        f"answers to others mean nothing, and {len(untaught)} of {len(asked)} questions are others ({untaught[0]!r}); "
        "name a model with --model"
    )
    fields = {"model": agent.model, "num_questions": len(asked), "num_untaught": len(untaught)}
    log.warning(message, extra={"event": EventKind.QUESTIONS_UNTAUGHT, **fields})


def is_taught(question: str) -> bool:
    """Whether a question has a form that the shipped policies were taught."""
    return _taught().fullmatch(" ".join(question.split())) is not None


@cache
def _taught() -> re.Pattern[str]:
    attributes = "|".join(map(re.escape, (*NUMBER_ATTRIBUTES, *WORD_ATTRIBUTES, STATUS_ATTRIBUTE)))
    forms = [*WAYS_TO_ASK, *MANY_ASKED[1:], ASKED_LATEST, TRUE_ASKED]
    patterns = [_pattern(form, attribute=f"(special magic )?({attributes}|number)") for form in forms]
    patterns += [_pattern(form, attribute=r"\w+") for form in (*MAGIC_ASKED, MANY_ASKED[0], *CHAIN_ASKED)]
    return re.compile(f"({'|'.join(patterns)})({re.escape(OR_NOT)})?", re.IGNORECASE)


def _pattern(form: str, *, attribute: str) -> str:
    """An expression for the questions of a form."""
    escaped = re.escape(form).replace(r"\{attribute\}", attribute).replace(r"\{key\}", "[^?]+")
    return escaped.replace(r"\{value\}", r"\w+")
