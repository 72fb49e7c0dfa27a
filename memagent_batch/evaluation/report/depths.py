"""Where in a document, and how far apart, a variant overlooks facts: mean score by place and length, as a table."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import pyarrow as pa
import pyarrow.compute as pc

NUM_BANDS = 10
"""Bands of a place from 0 to 1, each a tenth of the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceMap:
    """Mean scores of one variant."""

    variant: str
    """Its name."""
    lengths: Sequence[int]
    """Lengths of documents, tokens, rising: the columns."""
    bands: Sequence[Sequence[float | None]]
    """Mean score of each band (row) and length (column); None if nothing was asked there."""


def map_places(scores: pa.Table, *, column: str, variants: Sequence[str]) -> list[PlaceMap]:
    """One map for each variant; none if no reading has a place and a length.

    Args:
        scores: A table of `SCORES`.
        column: Its column of places: `depth` or `spread`, from 0 to 1.
        variants: Names, in order.
    """
    known = scores.filter(pc.and_(pc.is_valid(scores[column]), pc.is_valid(scores["length_tokens"])))
    lengths = sorted(set(known["length_tokens"].to_pylist()))
    cells: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for row in known.select(["variant", column, "length_tokens", "score"]).to_pylist():
        band = min(int(row[column] * NUM_BANDS), NUM_BANDS - 1)
        cells[row["variant"], band, row["length_tokens"]].append(row["score"])
    return [
        PlaceMap(
            variant=variant,
            lengths=lengths,
            bands=[
                [fmean(found) if (found := cells.get((variant, band, length))) else None for length in lengths]
                for band in range(NUM_BANDS)
            ],
        )
        for variant in variants
        if lengths
    ]
