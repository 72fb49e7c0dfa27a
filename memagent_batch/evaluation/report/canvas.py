"""What all pictures share: type, colours that colour-blind readers tell apart, a logarithmic axis of lengths."""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from memagent_batch.evaluation.report.lengths import length_label, magnitude
from memagent_batch.evaluation.report.visible import visible

INK, MUTED, GRID = "#1f2328", "#57606a", "#e4e7eb"
LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a6408b", "#e69f00", "#56b4e9", "#3b3b3b")
"""After Okabe and Ito, without yellow, which white swallows."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""One more than colours, so that 56 variants differ in one or the other."""
LINES = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
"""A line that lies on another one lets it show."""

DOTS_PER_INCH = 160
"""Sharp on a screen of twice the usual density at the width of the page."""
SHORT_AXIS = 20.0
"""Highest over lowest value of a logarithmic axis, below which two powers of ten need not stand on it."""
MAX_NAME_CHARACTERS = 32
"""Longer names of variants and tasks are cut in pictures."""
MIN_LABEL_GAP = 0.045
"""Least distance of two labels on the axis of lengths, as a part of the axis."""

STYLE = {
    "font.family": "DejaVu Sans",  # the one that matplotlib brings, so that pictures are alike everywhere
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # a name with a dollar sign is a name
    "axes.edgecolor": "#b8bfc6",
    "axes.labelcolor": MUTED,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A drawn picture."""

    name: str
    """File name without ending."""
    png: bytes
    """The picture, PNG."""
    width: int
    """Width on the page, in CSS pixels."""
    alternative: str
    """What it shows, for who can't see it."""


@contextmanager
def canvas(*, width: float, height: float) -> Iterator[Figure]:
    """An empty figure in the report's style; inches."""
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        yield Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")


def finish(figure: Figure, *, name: str, alternative: str) -> Picture:
    """The figure as a PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": ""})
    return Picture(name=name, png=stream.getvalue(), width=round(figure.get_figwidth() * 96), alternative=alternative)


def colour_of(place: int) -> str:
    """Colour of a variant, by its place among the variants."""
    return LINE_COLOURS[place % len(LINE_COLOURS)]


def marker_of(place: int) -> str:
    """Marker of a variant, by its place among the variants."""
    return MARKERS[place % len(MARKERS)]


def line_of(place: int) -> str | tuple[int, tuple[float, ...]]:
    """Dashes of a variant's line, by its place among the variants."""
    return LINES[place % len(LINES)]


def short_name(name: str) -> str:
    """A name as pictures write it."""
    shown = " ".join(visible(name).split())
    return shown if len(shown) <= MAX_NAME_CHARACTERS else f"{shown[: MAX_NAME_CHARACTERS - 1]}…"


def shifted(length_tokens: float, *, place: int, num_variants: int, ratio: float) -> float:
    """A length moved a little to the side, so that the intervals of variants do not lie on each other.

    Args:
        length_tokens: The length.
        place: Place of the variant.
        num_variants: Variants drawn.
        ratio: Longest over shortest length drawn; the shift grows with it, to look the same.
    """
    step = 0.011 * max(1.0, math.log2(ratio))
    return length_tokens * 2 ** (step * (place - (num_variants - 1) / 2))


def draw_lengths(axes: Axes, lengths: Sequence[int], *, small: bool = False) -> None:
    """A logarithmic axis with a tick at each length; labels that would touch are left out, never the last."""
    ordered = sorted(lengths)
    spread = math.log2(ordered[-1] / ordered[0])
    room = max(0.5, 0.05 * spread)
    axes.set_xscale("log", base=2)
    axes.set_xlim(ordered[0] / 2**room, ordered[-1] * 2**room)
    gap = MIN_LABEL_GAP * (3.4 if small else 1) * (spread + 2 * room)
    shown = {ordered[-1]}
    for length in reversed(ordered):
        if all(abs(math.log2(length / other)) >= gap for other in shown):
            shown.add(length)
    axes.xaxis.set_major_locator(FixedLocator([float(length) for length in ordered]))
    axes.xaxis.set_major_formatter(
        FixedFormatter([length_label(length) if length in shown else "" for length in ordered])
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(visible=False, axis="x")


def draw_scores(axes: Axes) -> None:
    """An axis of scores from 0 to 1, with room for a marker at either end."""
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])


def draw_magnitudes(axes: Axes) -> None:
    """A logarithmic vertical axis of counts or seconds."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < low * SHORT_AXIS:
        axes.yaxis.set_major_locator(MaxNLocator(4))  # powers of ten alone would leave such an axis without a number
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: magnitude(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", which="minor", size=0)


def draw_legend(figure: Figure, axes: Axes, *, width: float) -> None:
    """The variants in their order above everything; none where there is only one, which the title names."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) < 2:
        return
    longest = max(len(label) for label in labels)
    columns = max(1, min(len(labels), int(width / (0.55 + 0.085 * longest))))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns)
