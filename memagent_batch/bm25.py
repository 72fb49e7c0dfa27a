"""Ranks passages against a question by BM25 (package bm25s): for the `retrieve` policy, and for evidence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

WORD_PATTERN = r"(?u)\w+"
"""A word: letters, digits and underscores; single ones too, so that no number or initial is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bm25:
    """Scores by words in lower case, without stop words or stems: any language that puts spaces between words."""

    decode: Callable[[Sequence[int]], str]
    """Turns token ids back into text."""

    def __call__(self, passages: Sequence[Sequence[int]], question: Sequence[int]) -> list[float]:
        """Scores of the passages, shape [num_passages]; 0 where a passage has no word of the question."""
        words = self._words([*passages, question])
        return word_scores(words[:-1], words[-1])

    def _words(self, texts: Sequence[Sequence[int]]) -> list[list[str]]:
        import bm25s

        decoded = (self.decode(list(token_ids)) for token_ids in texts)  # one at a time: a document may be huge
        words: list[list[str]] = bm25s.tokenize(
            decoded, token_pattern=WORD_PATTERN, stopwords=None, return_ids=False, show_progress=False
        )
        return words


def word_scores(passages: Sequence[list[str]], question: Sequence[str]) -> list[float]:
    """Scores of passages by their words, shape [num_passages]; 0 where a passage has no word of the question."""
    import bm25s

    if not any(passages):
        return [0.0] * len(passages)
    index = bm25s.BM25()
    index.index(list(passages), show_progress=False)
    known = [word for word in question if word in index.vocab_dict]
    return [float(score) for score in index.get_scores(known)] if known else [0.0] * len(passages)
