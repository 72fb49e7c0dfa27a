"""RULER's prompts, which hold document and question in one text, taken apart. Pure.

The last line of each of its templates is the question: of needles `What are all the special magic ... mentioned in the
provided text?`, of all other tasks `Question: ...`. Older files have the beginning of the answer behind it.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

QUESTION_FORMS = (
    re.compile(r"(?P<question>What (?:is|are all) the special magic .+? mentioned in the provided text\?).*"),
    re.compile(r"Question: (?P<question>.+?)(?: Answer:.*| ?\[/INST\].*)?"),
)
"""The last line of a prompt: the question, then perhaps the beginning of an answer."""


class Separation(StrEnum):
    """How a question was separated from its document."""

    GIVEN = "given"
    """The record has them apart."""
    TEMPLATE = "template"
    """By the words with which one of RULER's templates begins its question."""
    LAST_PARAGRAPH = "last_paragraph"
    """By nothing but its place: it is the last paragraph, or the last line where there is one paragraph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPrompt:
    """A prompt in two."""

    document: str
    """All that stands before the question, unchanged."""
    question: str
    """The question, without the word `Question:` and without the beginning of an answer."""
    split: Separation
    """How it was found."""


def split_prompt(prompt: str, *, answer_prefix: str = "") -> SplitPrompt | None:
    """Document and question of a prompt; None where there is but one line, or nothing before the question.

    Args:
        prompt: The field `input` of a RULER record.
        answer_prefix: The field of that name, which newer files have.
    """
    prompt = prompt.rstrip()
    if answer_prefix.strip():
        prompt = prompt.removesuffix(answer_prefix.strip()).rstrip()
    line = prompt.rfind("\n")
    for form in QUESTION_FORMS:
        if found := form.fullmatch(prompt, line + 1):
            return _split_at(prompt, end=line, question=found["question"], split=Separation.TEMPLATE)
    paragraph = prompt.rfind("\n\n")
    border = line if paragraph < 0 else paragraph
    return _split_at(prompt, end=border, question=prompt[border:], split=Separation.LAST_PARAGRAPH)


def _split_at(prompt: str, *, end: int, question: str, split: Separation) -> SplitPrompt | None:
    if end < 0 or not prompt[:end].strip():
        return None
    return SplitPrompt(document=prompt[:end], question=question.strip(), split=split)
