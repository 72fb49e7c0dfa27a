"""The charts of the report, as SVG: score against length, a line with intervals for each variant, under one legend."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import jinja2
from markupsafe import Markup

from memagent_batch.evaluation.report.templates import page_environment
from memagent_batch.evaluation.report.visible import visible
from memagent_batch.evaluation.scoring import CellSummary

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a6408b", "#e69f00", "#56b4e9", "#3b3b3b")
"""Colours that colour-blind readers tell apart: after Okabe and Ito, without yellow, which white swallows."""
DASHES = ("none", "7 3", "2 2", "7 2 2 2")
"""One line shows through another; also tells variants of the same colour apart."""
MAX_NAME_CHARACTERS = 32
"""Longer names of variants and tasks are cut in charts."""
LABEL_PIXELS = 34
"""Room for a label of the horizontal axis."""
SHIFT_PIXELS = 3
"""Distance between the intervals of variants at the same place."""
CHART_PIXELS = 900
"""Width of a chart."""
PANEL_PIXELS = {1: 380, 3: 230}
"""Height of a panel, by how many stand beside each other."""
AXIS_LABELS = {1: "length of the document, tokens", 3: "tokens"}
"""Label of the axis of lengths, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Panels beside each other, under one legend, with one axis of lengths (logarithmic)."""

    name: str
    names: Sequence[str]
    """Variants, each a line of every panel."""
    panels: Mapping[str, Sequence[CellSummary]]
    """Cells with a length, from short to long, by the panel's title; at least one in each."""
    columns: int = 1
    """Panels beside each other: one or three."""

    @property
    def lengths(self) -> list[int]:
        """Lengths of all panels, tokens, from short to long."""
        return sorted({cell.length_tokens or 0 for cells in self.panels.values() for cell in cells})

    @property
    def alternative(self) -> str:
        """What it shows, for who can't see it."""
        cells = (cell for panel in self.panels.values() for cell in panel)
        words = (f"{cell.variant}, {cell.task} at {cell.length_tokens} tokens: {cell.score:.2f}" for cell in cells)
        return f"Mean score. {'; '.join(words)}"

    def share(self, length: int) -> float:
        """Where a length stands on its axis: 0 at the low end, 1 at the high end."""
        lengths = self.lengths
        span = math.log2(lengths[-1] / lengths[0])
        room = max(0.5, 0.05 * span)
        return (math.log2(length / lengths[0]) + room) / (span + 2 * room)


def chart_accuracy(cells: Sequence[CellSummary], *, names: Sequence[str]) -> Chart | None:
    """Score against length, a line for each variant; None if no length is known."""
    cells = _with_length(cells)
    return Chart(name="accuracy", names=names, panels={"": cells}) if cells else None


def chart_tasks(cells: Sequence[CellSummary], *, names: Sequence[str]) -> Chart | None:
    """The same for each task; None if there is only one task, or no length is known."""
    cells = _with_length(cells)
    panels = {task: [cell for cell in cells if cell.task == task] for task in sorted({cell.task for cell in cells})}
    return Chart(name="accuracy-by-task", names=names, panels=panels, columns=3) if len(panels) > 1 else None


def render_chart(chart: Chart) -> Markup:
    """The chart as an SVG element, which is also a file of its own."""
    values = {"width": CHART_PIXELS, "panel_height": PANEL_PIXELS[chart.columns], "label": AXIS_LABELS[chart.columns]}
    return Markup(_chart_template().render(chart=chart, **values))


def colour_of(place: int) -> str:
    """Colour of a variant, by its place among the variants."""
    return COLOURS[place % len(COLOURS)]


def short_name(name: str) -> str:
    """A name as charts write it."""
    shown = " ".join(visible(name).split())
    return shown if len(shown) <= MAX_NAME_CHARACTERS else f"{shown[: MAX_NAME_CHARACTERS - 1]}…"


def num_tokens(cell: CellSummary) -> float:
    """Prompt and completion tokens of a reading; 0 if none has a row."""
    return (cell.mean_prompt_tokens or 0.0) + (cell.mean_completion_tokens or 0.0)


def length_label(tokens: int | None) -> str:
    """A length as it is on an axis: 1K for 1,024 and for 1,000, 1M for 1,048,576."""
    if tokens is None:
        return "unknown"
    for base in (1024, 1000):
        if tokens >= base**2 and tokens % base**2 == 0:
            return f"{tokens // base**2}M"
        if tokens >= base and tokens % base == 0:
            return f"{tokens // base}K"
    return magnitude(tokens)


def magnitude(number: float) -> str:
    """A number to three digits, with K, M or G."""
    for size, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "K")):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def _with_length(cells: Sequence[CellSummary]) -> list[CellSummary]:
    """The cells with a known length, from short to long."""
    return sorted((cell for cell in cells if cell.length_tokens), key=lambda cell: cell.length_tokens or 0)


def _score_share(score: float) -> float:
    """Where a score stands on its axis, with room for a marker at either end."""
    return (score + 0.03) / 1.06


def _length_ticks(chart: Chart, *, pixels: int) -> list[tuple[float, str]]:
    """Share of each length and its label; empty if it would touch the next one: the last is always shown."""
    ticks: list[tuple[float, str]] = []
    labelled = math.inf
    for length in reversed(chart.lengths):
        share = chart.share(length)
        fits = (labelled - share) * pixels >= LABEL_PIXELS
        labelled = share if fits else labelled
        ticks.append((share, length_label(length) if fits else ""))
    return ticks


@cache
def _chart_template() -> jinja2.Template:
    environment = page_environment()
    environment.globals |= {
        "colour_of": colour_of,
        "dash_of": lambda place: DASHES[place % len(DASHES)],
        "length_ticks": _length_ticks,
        "shift": lambda place, number: SHIFT_PIXELS * (place - (number - 1) / 2),
    }
    environment.filters |= {"px": lambda number: f"{number:.1f}", "short": short_name}
    environment.filters["score_share"] = _score_share
    return environment.get_template("chart.svg")
