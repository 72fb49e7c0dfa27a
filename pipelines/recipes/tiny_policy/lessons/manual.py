"""Written English for the training split: the topics of Python's own manual, which every CPython 3.11 carries."""

import re
from collections.abc import Iterator
from pydoc_data.topics import topics


def manual_sentences() -> Iterator[str]:
    """Sentences and lines of the manual, each with the space or line break before it, in a fixed order."""
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            text = re.sub(r"\s+", " ", re.sub(r"[*`|=\-~^]{2,}", "", paragraph)).strip()
            for index, sentence in enumerate(re.split(r"(?<=[.:;]) ", text)):
                if sentence:
                    yield (" " if index else "\n") + sentence
