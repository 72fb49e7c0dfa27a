"""Draws a sample by permanent random numbers: anyone draws the same one from the manifest, in any order, anywhere.

Each reading has one number for good: a hash of the seed, its document and its question. The sample of a stratum is
its smallest numbers, so that a larger sample holds the smaller one, and tomorrow's sample most of today's documents.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from memagent_batch.domain.addresses import permanent_number
from memagent_batch.review.labels.label import Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A reading of the population, as the draw needs it."""

    document_id: str
    """Its document."""
    document_hash: str
    """SHA-256 of the document's text."""
    question_hash: str
    """SHA-256 of the question's text."""
    stratum: str
    """Its stratum."""
    question: str = ""
    """Text of the question."""
    copy: int = 0
    """Place among the documents of the same text, by document_id, from 0: each is drawn on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnUnit:
    """A reading of the sample."""

    unit: Unit
    """The reading."""
    number: str
    """Its permanent random number, 64 hex digits."""
    rank: int
    """Place in its stratum, by number, from 0."""
    is_second: bool
    """Whether a second person reads it too, so that their agreement can be measured."""


def number_of(unit: Unit, *, seed: str) -> str:
    """Its permanent random number, of document hash and question hash; of a further copy also of its place."""
    return permanent_number(seed, unit.document_hash, unit.question_hash, *([str(unit.copy)] if unit.copy else []))


def seed_text(seed: int, purpose: Purpose) -> str:
    """What goes into the numbers: a sample to develop prompts with is another one than that which validates them."""
    return str(seed) if purpose is Purpose.VALIDATE else f"{seed}/{purpose.value}"


def draw(units: Sequence[Unit], sizes: Mapping[str, int], *, seed: str, second_share: float) -> list[DrawnUnit]:
    """The sample: of each stratum the readings with the smallest numbers.

    Args:
        units: The population.
        sizes: Readings to draw of each stratum.
        seed: As `seed_text` writes it.
        second_share: Share of each stratum's sample that a second person reads, 0 to 1.
    """
    numbered: dict[str, list[tuple[str, Unit]]] = defaultdict(list)
    for unit in units:
        numbered[unit.stratum].append((number_of(unit, seed=seed), unit))
    drawn = []
    for stratum in sorted(numbered):
        size = sizes.get(stratum, 0)
        num_second = -int(-second_share * size // 1)
        ordered = sorted(numbered[stratum], key=lambda pair: (pair[0], pair[1].document_id))[:size]
        for rank, (number, unit) in enumerate(ordered):
            drawn.append(DrawnUnit(unit=unit, number=number, rank=rank, is_second=rank < num_second))
    return drawn


def shuffled(drawn: Sequence[DrawnUnit], *, seed: str) -> list[DrawnUnit]:
    """The sample in the order in which people read it: as random as the draw, and blind to strata."""
    return sorted(drawn, key=lambda each: (sha256(f"{seed}|order|{each.number}".encode()).hexdigest(), each.number))
