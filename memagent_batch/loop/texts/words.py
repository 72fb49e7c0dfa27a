"""Words of a text in any script, for comparing texts by what they speak of."""

import logging
import re
from collections.abc import Mapping, Sequence

WORD_FORM = re.compile(r"\w+")
UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
"""Scripts that put no space between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


def folded_words(text: str) -> list[str]:
    """The words of a text in lower case; pairs of neighbouring characters where a script has no spaces."""
    parts = (part for word in WORD_FORM.findall(text.casefold()) for part in UNSPACED.split(word) if part)
    words: list[str] = []
    for part in parts:
        words += [part[place : place + 2] for place in range(max(1, len(part) - 1))] if UNSPACED.match(part) else [part]
    return words


def texts_in(text: str, sought: Sequence[str]) -> frozenset[str]:
    """Which of these stand in a text, without regard to case."""
    folded = text.casefold()
    return frozenset(each for each in sought if each and each.casefold() in folded)


def word_scores(passages: Sequence[list[str]], question: Sequence[str]) -> list[float]:
    """Scores of passages by BM25, shape [num_passages]; 0 where a passage has no word of the question."""
    return WordIndex(passages).scores(question)


class WordIndex:
    """The words of passages, to be asked for several questions."""

    def __init__(self, passages: Sequence[list[str]]) -> None:
        """Indexes the passages."""
        import bm25s

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs each index that it makes
        self._num_passages, self._index = len(passages), bm25s.BM25()
        self._vocabulary: Mapping[str, int] = {}
        if any(passages):
            self._index.index(list(passages), show_progress=False)
            self._vocabulary = self._index.vocab_dict

    def scores(self, question: Sequence[str]) -> list[float]:
        """Scores of the passages; see `word_scores`."""
        known = [word for word in question if word in self._vocabulary]
        return [float(score) for score in self._index.get_scores(known)] if known else [0.0] * self._num_passages
