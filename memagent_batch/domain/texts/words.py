"""Words of a text in any script, for comparing texts by what they speak of."""

import logging
import re
from collections.abc import Sequence

WORD_FORM = re.compile(r"\w+")
UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
"""Scripts that put no space between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""


def folded_words(text: str) -> list[str]:
    """The words of a text in lower case; pairs of neighbouring characters where a script has no spaces."""
    parts = (part for word in WORD_FORM.findall(text.casefold()) for part in UNSPACED.split(word) if part)
    return [word for part in parts for word in (_pairs(part) if UNSPACED.match(part) else [part])]


def texts_in(text: str, sought: Sequence[str]) -> frozenset[str]:
    """Which of these stand in a text, without regard to case."""
    folded = text.casefold()
    return frozenset(each for each in sought if each and each.casefold() in folded)


def word_scores(passages: Sequence[list[str]], question: Sequence[str]) -> list[float]:
    """Scores of passages by BM25, shape [num_passages]; 0 where a passage has no word of the question."""
    import bm25s

    if not any(passages):
        return [0.0] * len(passages)
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs each index that it makes
    index = bm25s.BM25()
    index.index(list(passages), show_progress=False)
    known = [word for word in question if word in index.vocab_dict]
    return [float(score) for score in index.get_scores(known)] if known else [0.0] * len(passages)


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(max(1, len(run) - 1))]
