r"""Takes the answer out of a response. Last step of a reading.

Forms as in the published agent (MemAgent, arXiv 2507.02259): `\boxed{...}`, and a sentence with "the answer is".
"""

import re

from memagent_batch.config.agent import Extraction
from memagent_batch.loop.thoughts import after_thoughts

BOX = "\\boxed{"
SENTENCE = re.compile(r"\bthe answer is\b[ \t*]*(?P<colon>:?)", re.IGNORECASE)

EMPHASIS = " \t\r*"
"""White space and Markdown's stars, which surround an answer and are not part of it."""


def extract_answer(response: str, *, extraction: Extraction) -> str | None:
    """The answer in a response; None where the response does not hold one in that form. Thoughts hold none."""
    text = after_thoughts(response) or ""
    match extraction:
        case Extraction.BOXED:
            return _boxed(text)
        case Extraction.SENTENCE:
            return _answer_sentence(text)
        case Extraction.AUTO:
            boxed = _boxed(text)
            return _answer_sentence(text) if boxed is None else boxed
        case Extraction.RAW:
            return text.strip() or None


def closed_text(text: str, start: int) -> str | None:
    """The text from `start` to the brace that closes one opened before it; None where none does."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return None


def _boxed(response: str) -> str | None:
    """Content of the last box whose braces close."""
    start = response.rfind(BOX)
    while start >= 0:
        content = closed_text(response, start + len(BOX))
        if content is not None:
            return content.strip() or None
        start = response.rfind(BOX, 0, start)
    return None


def _answer_sentence(response: str) -> str | None:
    end = len(response)
    for match in reversed(list(SENTENCE.finditer(response))):
        line, _, below = response[match.end() : end].partition("\n")
        answer = _unmarked(line) or (_unmarked(below.strip().split("\n", 1)[0]) if match["colon"] else "")
        if answer:
            return answer
        end = match.start()
    return None


def _unmarked(line: str) -> str:
    """A line without emphasis and full stop."""
    return line.strip(EMPHASIS).removesuffix(".").strip(EMPHASIS)
