"""Docstrings, comments, messages and documents have today's plain English, and one word for each idea."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("memagent_batch", "pipelines", "jobs", "tools", "benchmarks", "infra")
DATA = (
    "memagent_batch/prompts/",
    "memagent_batch/evaluation/haystacks",
    "memagent_batch/evaluation/tasks",
    "memagent_batch/models/",
)
"""Files whose strings are prompts and word lists."""

INSTEAD = {
    r"knobs?": "setting",
    r"closing (?:turn|kind|text|question)s?": "follow-up question",
    r"reader fingerprints?": "fingerprint",
    r"(?<!there )(?<!here )(?:is|was) no (?!longer|more|better|need|room|one|\W)\w+": "is not a",
    r"(?<!there )(?:is|are) none of": "is not one of",
    r"where there (?:is|are|was|were)": "if there is",
    r"say `?--\w+": "pass --option",
    r"say `?memagent": "run memagent",
    r"told (?:apart|from)": "distinguished",
    r"anew": "again",
    r"for ever": "forever",
    r"(?<!nothing )but for": "except for",
    r"as (?:it stands|they stand)": "as it is",
    r"(?:in|takes?|took) the place of": "in place of, replaces",
    r"mend(?:s|ed)?": "fix",
    r"whatever else": "anything else",
    r"sees? to it that": "ensures that",
    r"under way": "in flight, running, in progress",
    r"bears? (?:the|its|an|their) answers?": "supports the answer",
    r"logs? held": "in the log",
    r"takes away|taken away|turned away": "removes, rejected",
    r"can not": "can't",
    r"gives otherwise|reckons?|heeds?|mindful": "a plain verb",
}
"""Turns of phrase that nobody writes here, and what is written instead."""


def texts_of_code(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, comment and message; of files of data without their other strings."""
    has_data = str(path.relative_to(ROOT)).startswith(DATA)
    is_statement = True
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and (is_statement or not has_data)):
            yield token.start[0], token.string
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            is_statement = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def texts_of_document(path: Path) -> Iterator[tuple[int, str]]:
    """First line and text of each paragraph, without code."""
    line = 1
    code = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
    text = code.sub(lambda match: "`" + "\n" * match[0].count("\n"), path.read_text(encoding="utf-8"))
    for paragraph in re.split(r"(\n\s*\n)", text):
        yield line, paragraph
        line += paragraph.count("\n")


def texts() -> Iterator[tuple[str, str]]:
    """Place and text, on one line, of all that is written in the project."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, text in texts_of_code(path):
                yield f"{path.relative_to(ROOT)}:{line}", " ".join(text.split())
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "infra").rglob("*.md")]
    for path in sorted(documents):
        for line, text in texts_of_document(path):
            yield f"{path.relative_to(ROOT)}:{line}", " ".join(text.split())


def test_texts_have_todays_words() -> None:
    phrases = [(re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE), better) for phrase, better in INSTEAD.items()]
    found = [
        f"{place}: {match[0]!r}; write: {better}"
        for place, text in texts()
        for pattern, better in phrases
        for match in pattern.finditer(text)
    ]
    assert not found, "\n" + "\n".join(found)
