"""Inputs and result of every family of tasks: materials and a request in, one sample of a suite out."""

import random
from dataclasses import dataclass

from memagent_batch.evaluation.tasks.corpora import Corpus
from memagent_batch.evaluation.tasks.lengths import TokenMeter

EssayTexts = tuple[tuple[str, ...], ...]
"""Running texts, each as its sentences."""

GoldSpan = tuple[int, int]
"""First code point of a place in a document, and the one after its last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """What documents are made of; the same for all samples of a suite."""

    meter: TokenMeter
    """Counts tokens of the model under test."""
    texts: EssayTexts
    """Haystack of the tasks that hide needles in running text."""
    hotpotqa: Corpus | None = None
    """Questions and paragraphs of a HotpotQA file."""
    squad: Corpus | None = None
    """Questions and paragraphs of a SQuAD file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """What one sample of a suite should be."""

    rng: random.Random
    """Source of every choice; its own for each sample."""
    length: int
    """Length of the document: tokens, or paragraphs where the task counts them."""
    depth: float
    """Where a needle that stands alone is to begin, from 0 to 1."""
    number: int
    """Which sample of its cell it is, counted from 0."""
    questions_seed: str
    """Seeds the order in which a task draws questions from a file; the same for all lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSample:
    """One document, a question about it, and the right answers."""

    document: str
    """The document."""
    question: str
    """The question."""
    references: tuple[str, ...]
    """Right answers; what they mean together is up to the task's metric."""
    num_tokens: int
    """Length of the document, measured, tokens."""
    depth: float | None = None
    """Where the only needle that matters begins, from 0 to 1; None where several matter, or none."""
    gold: tuple[GoldSpan, ...] | None = None
    """Sentences that bear the answer together, in the order of the text; none where the document does not state it,
    None where they are not known or the whole document bears it."""

    @property
    def spread(self) -> float | None:
        """Distance between the first and the last sentence that bears the answer, as a part of the document; None
        where there are not two of them.
        """
        if self.gold is None or len(self.gold) < 2:
            return None
        return (self.gold[-1][0] - self.gold[0][0]) / len(self.document)
