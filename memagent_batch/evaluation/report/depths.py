"""Pictures of places against length: where in a document, and how far apart, a variant overlooks facts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray

from memagent_batch.evaluation.report.canvas import INK, MUTED, Picture, canvas, finish, short_name
from memagent_batch.evaluation.report.lengths import length_label

NUM_BANDS = 10
"""Bands of depth from 0 to 1, each a tenth of the document."""
MAPS_A_ROW = 3
"""Pictures beside each other."""
COLOUR_MAP = LinearSegmentedColormap.from_list("score", ["#7a1f00", "#d9641a", "#f6c98f", "#fdf3e4", "#f4f8fb"])
"""Dark where a needle was overlooked: what is wrong stands out, also in grey."""
DARK = 0.35
"""Below this score the colour asks for white letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthAxis:
    """A place in a document, from 0 to 1, that scores are drawn by."""

    column: str
    """Column of the scores."""
    label: str
    """Its name on the axis."""
    ends: tuple[str, str]
    """What stands at 0 and at 1 of the axis."""
    words: str
    """Its name in a sentence."""


NEEDLE_DEPTH = DepthAxis(
    column="depth", label="depth of the needle", ends=("0 % (start)", "100 % (end)"), words="depth of the needle"
)
FACT_SPREAD = DepthAxis(
    column="spread",
    label="from the first to the last fact",
    ends=("0 %", "100 %"),
    words="distance between the facts",
)


def draw_places(scores: pa.Table, *, place: DepthAxis, variants: Sequence[str]) -> Picture | None:
    """Mean score by place and length, one map for each variant; None where no reading has a place and a length.

    Args:
        scores: A table of `SCORES`.
        place: The place.
        variants: Names, in order.
    """
    scores = scores.filter(pc.and_(pc.is_valid(scores[place.column]), pc.is_valid(scores["length_tokens"])))
    if not scores.num_rows:
        return None
    lengths = sorted(set(scores["length_tokens"].to_pylist()))
    columns = min(MAPS_A_ROW, len(variants))
    rows = math.ceil(len(variants) / columns)
    width = min(9.6, columns * max(2.6, 0.8 + 0.55 * len(lengths)) + 1.1)
    with canvas(width=width, height=0.5 + 3.0 * rows) as figure:
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for number, axes in enumerate(grid.flat):
            if number >= len(variants):
                axes.set_axis_off()
                continue
            of_variant = scores.filter(pc.equal(scores["variant"], variants[number]))
            image = _draw_map(axes, _means(of_variant, lengths, column=place.column), lengths=lengths, place=place)
            axes.set_title(short_name(variants[number]), color=INK, fontsize=9)
            axes.tick_params(labelbottom=number + columns >= len(variants))
        bar = figure.colorbar(image, ax=grid, shrink=0.9 if rows == 1 else 0.5, pad=0.02, aspect=24)
        bar.outline.set_visible(False)
        bar.set_label("mean score", color=MUTED)
        figure.supxlabel("length of the document, tokens", fontsize=9)
        figure.supylabel(place.label, fontsize=9)
        words = f"Mean score by {place.words} and length of the document."
        return finish(figure, name=place.column, alternative=words)


def _means(scores: pa.Table, lengths: Sequence[int], *, column: str) -> NDArray[np.float64]:
    """Mean score of each band (rows) and length (columns); NaN where nothing was asked."""
    sums, counts = np.zeros((NUM_BANDS, len(lengths))), np.zeros((NUM_BANDS, len(lengths)))
    bands = np.clip((scores[column].to_numpy() * NUM_BANDS).astype(int), 0, NUM_BANDS - 1)
    places = np.searchsorted(lengths, scores["length_tokens"].to_numpy())
    np.add.at(sums, (bands, places), scores["score"].to_numpy())
    np.add.at(counts, (bands, places), 1)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _draw_map(axes: Axes, means: NDArray[np.float64], *, lengths: Sequence[int], place: DepthAxis) -> Any:
    axes.set_facecolor("white")
    edges = np.arange(len(lengths) + 1) - 0.5
    image = axes.pcolormesh(
        edges, np.linspace(0, 1, NUM_BANDS + 1), means, cmap=COLOUR_MAP, vmin=0, vmax=1,
        edgecolors="white", linewidth=1.2,
    )  # fmt: skip
    for (band, column), mean in np.ndenumerate(means):
        colour = MUTED if np.isnan(mean) else "white" if mean < DARK else INK
        middle = (band + 0.5) / NUM_BANDS
        axes.text(column, middle, _cell_label(mean), ha="center", va="center", fontsize=7.5, color=colour)
    axes.set_ylim(1, 0)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1], [place.ends[0], "20 %", "40 %", "60 %", "80 %", place.ends[1]])
    step = math.ceil(len(lengths) / 8)
    shown = range(len(lengths) - 1, -1, -step)
    axes.set_xticks(list(shown), [length_label(lengths[tick]) for tick in shown])
    axes.tick_params(labelsize=8, size=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return image


def _cell_label(mean: float) -> str:
    """Two digits; 1 only where nothing is wrong."""
    if np.isnan(mean):
        return "·"
    return "1" if mean == 1 else f"{min(mean, 0.99):.2f}".removeprefix("0")
