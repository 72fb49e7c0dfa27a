"""Charts as SVG: lines with intervals, in panels that share an axis. Pure; `chart.svg` is the template."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import jinja2
from markupsafe import Markup

from memagent_batch.evaluation.report.lengths import length_label, magnitude
from memagent_batch.evaluation.report.templates import page_environment
from memagent_batch.evaluation.report.visible import visible

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
LEGEND_PIXELS = 17
"""Height of a line of the legend."""
MARGINS = (46, 26, 12, 38)
"""Pixels of a panel left, above, right and below the plot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a line, with its interval if it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one variant draws in a panel."""

    place: int
    """Its place among the variants, which decides its look."""
    points: Sequence[Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis from `low` to `high`, both drawn."""

    label: str
    low: float
    high: float
    ticks: Mapping[float, str]
    """Their labels."""
    is_log: bool = False

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        low, high, value = (math.log2(each) if self.is_log else each for each in (self.low, self.high, value))
        return (value - low) / (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot of a chart."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]
    has_diagonal: bool = False
    """Whether a dashed line shows where both axes are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Panels beside each other, under one legend."""

    name: str
    """Its name on the page."""
    alternative: str
    """What it shows, for who can't see it."""
    names: Sequence[str]
    """Names of the lines, by their places."""
    panels: Sequence[Panel]
    columns: int = 1
    """Panels beside each other."""
    panel_width: int = 900
    """Pixels, its margins included."""
    panel_height: int = 380


def render_chart(chart: Chart) -> Markup:
    """The chart as an SVG element, which is also a file of its own."""
    return Markup(_template().render(chart=chart, height=_legend_height(chart) + _panels_height(chart)))


def colour_of(place: int) -> str:
    """Colour of a variant, by its place among the variants."""
    return COLOURS[place % len(COLOURS)]


def short_name(name: str) -> str:
    """A name as charts write it."""
    shown = " ".join(visible(name).split())
    return shown if len(shown) <= MAX_NAME_CHARACTERS else f"{shown[: MAX_NAME_CHARACTERS - 1]}…"


def length_axis(lengths: Sequence[int], *, label: str = "length of the document, tokens") -> Axis:
    """A logarithmic axis with a tick at each length."""
    ordered = sorted(set(lengths))
    room = 2 ** max(0.5, 0.05 * math.log2(ordered[-1] / ordered[0]))
    ticks = {float(length): length_label(length) for length in ordered}
    return Axis(label=label, low=ordered[0] / room, high=ordered[-1] * room, ticks=ticks, is_log=True)


def share_axis(label: str) -> Axis:
    """An axis from 0 to 1, with room for a marker at either end."""
    return Axis(label=label, low=-0.03, high=1.03, ticks={tick / 5: f"{tick / 5:g}" for tick in range(6)})


def number_axis(label: str, values: Sequence[float]) -> Axis:
    """A linear axis that holds the values, with two to six round ticks."""
    low, high = min(values), max(values)
    step = _round_step((high - low) / 4 or abs(high) / 4 or 1)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    ticks = {number * step: f"{number * step:g}" for number in range(first, last + 1)}
    return Axis(label=label, low=first * step, high=last * step, ticks=ticks)


def magnitude_axis(label: str, values: Sequence[float]) -> Axis:
    """A logarithmic axis that holds the values, all above 0, with two round ticks at least."""
    steps = [digit * 10.0**power for power in range(-12, 19) for digit in (1, 2, 5)]
    first = max(number for number, step in enumerate(steps) if step <= min(values))
    last = max(first + 1, min(number for number, step in enumerate(steps) if step >= max(values)))
    ticks = steps[first : last + 1]
    if len(ticks) > 6:
        ticks = [tick for tick in ticks if f"{tick:e}".startswith("1")]
    return Axis(
        label=label,
        low=steps[first],
        high=steps[last],
        ticks={tick: magnitude(tick) for tick in ticks},
        is_log=True,
    )


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten, at or above the step."""
    power: float = 10.0 ** math.floor(math.log10(step))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= step * (1 - 1e-9))


def _legend_height(chart: Chart) -> int:
    return LEGEND_PIXELS * len(chart.names) + 6


def _panels_height(chart: Chart) -> int:
    return chart.panel_height * math.ceil(len(chart.panels) / chart.columns)


def _labelled_ticks(axis: Axis, *, pixels: int) -> list[tuple[float, str]]:
    """Share of each tick and its label; empty if it would touch the next one: the last is always shown."""
    shown: list[tuple[float, str]] = []
    labelled = math.inf
    for value, label in sorted(axis.ticks.items(), reverse=True):
        share = axis.share(value)
        fits = (labelled - share) * pixels >= LABEL_PIXELS
        labelled = share if fits else labelled
        shown.append((share, label if fits else ""))
    return shown


@cache
def _template() -> jinja2.Template:
    environment = page_environment(jinja2.PackageLoader("memagent_batch.evaluation", "report"))
    environment.globals |= {
        "colour_of": colour_of,
        "dash_of": lambda place: DASHES[place % len(DASHES)],
        "labelled_ticks": _labelled_ticks,
        "legend_height": _legend_height,
        "margins": MARGINS,
        "shift": lambda place, number: SHIFT_PIXELS * (place - (number - 1) / 2),
    }
    environment.filters |= {"px": lambda number: f"{number:.1f}", "short": short_name}
    return environment.get_template("chart.svg")
