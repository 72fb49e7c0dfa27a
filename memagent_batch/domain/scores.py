"""Scores of an answer against its references. Pure; each is a number from 0 to 1."""

from enum import StrEnum


class Metric(StrEnum):
    """How an answer is scored."""

    ALL = "all"
    """Part of the references that the answer contains, without regard to case (RULER, string_match_all)."""
    ANY = "any"
    """Whether it contains any of them, without regard to case (RULER, string_match_part)."""
    EM = "em"
    """Whether it equals one of them, both normalised."""
    F1 = "f1"
    """Harmonic mean of token precision and recall, both normalised; the best over the references."""
    SUB_EM = "sub_em"
    """Whether it contains one of them, both normalised."""
    SUB_EM_EITHER = "sub_em_either"
    """As `sub_em`, or is contained in one: the official evaluator's, by which an empty answer is right."""
