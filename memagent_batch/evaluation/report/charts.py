"""The charts of the report and of training, as SVG: lines with intervals, in panels under one legend."""

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
PANEL_PIXELS = {1: 380, 2: 310, 3: 230}
"""Height of a panel, by how many stand beside each other."""
REWARD_COLUMNS = {"mean_reward": "mean reward of the samples", "held_out_reward": "held-out questions, greedy"}
"""Lines of the learning curve, by their keys in `metrics.jsonl`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a line, with its interval if it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis from `low` to `high`, both drawn."""

    label: str
    low: float
    high: float
    ticks: Mapping[float, str]
    is_log: bool = False

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        low, high, value = (math.log2(each) if self.is_log else each for each in (self.low, self.high, value))
        return (value - low) / (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot of a chart, with a line for each name of the chart."""

    title: str = ""
    x: Axis
    y: Axis
    lines: Sequence[Sequence[Point]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Panels beside each other, under one legend."""

    name: str
    alternative: str
    """What it shows, for who can't see it."""
    names: Sequence[str]
    panels: Sequence[Panel]
    columns: int = 1
    """Panels beside each other, at most three."""


def chart_accuracy(cells: Sequence[CellSummary], *, names: Sequence[str]) -> Chart | None:
    """Score against length, a line for each variant; None if no length is known."""
    cells = _with_length(cells)
    if not cells:
        return None
    panel = _score_panel(cells, names, axis=length_axis(_lengths(cells)))
    return Chart(name="accuracy", alternative=_in_words(cells), names=names, panels=[panel])


def chart_tasks(cells: Sequence[CellSummary], *, names: Sequence[str]) -> Chart | None:
    """The same for each task; None if there is only one task, or no length is known."""
    cells = _with_length(cells)
    tasks = sorted({cell.task for cell in cells})
    if len(tasks) < 2:
        return None
    axis = length_axis(_lengths(cells), label="tokens")
    panels = [
        _score_panel([cell for cell in cells if cell.task == task], names, title=task, axis=axis) for task in tasks
    ]
    return Chart(name="accuracy-by-task", alternative=_in_words(cells), names=names, panels=panels, columns=3)


def chart_learning(steps: Sequence[Mapping[str, float | None]]) -> Chart | None:
    """The mean reward of each step's samples, and that of the held-out questions; None before the first."""
    lines = [
        [Point(x=step["step"] or 0, y=reward) for step in steps if (reward := step.get(key)) is not None]
        for key in REWARD_COLUMNS
    ]
    points = [point for line in lines for point in line]
    if not points:
        return None
    rewards = [point.y for point in points]
    y = share_axis("mean reward") if 0 <= min(rewards) <= max(rewards) <= 1 else number_axis("mean reward", rewards)
    panel = Panel(x=number_axis("step", [point.x for point in points]), y=y, lines=lines)
    words = "; ".join(
        f"{name}: {line[0].y:.3f} at first, {line[-1].y:.3f} at step {line[-1].x:g}"
        for name, line in zip(REWARD_COLUMNS.values(), lines, strict=True)
        if line
    )
    return Chart(name="curve", alternative=words, names=list(REWARD_COLUMNS.values()), panels=[panel])


def render_chart(chart: Chart) -> Markup:
    """The chart as an SVG element, which is also a file of its own."""
    return Markup(_chart_template().render(chart=chart, width=CHART_PIXELS, panel_height=PANEL_PIXELS[chart.columns]))


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
    rough = (high - low) / 4 or abs(high) / 4 or 1
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    ticks = {number * step: f"{number * step:g}" for number in range(first, last + 1)}
    return Axis(label=label, low=first * step, high=last * step, ticks=ticks)


def _with_length(cells: Sequence[CellSummary]) -> list[CellSummary]:
    """The cells with a known length, from short to long."""
    return sorted((cell for cell in cells if cell.length_tokens), key=lambda cell: cell.length_tokens or 0)


def _lengths(cells: Sequence[CellSummary]) -> list[int]:
    return [cell.length_tokens or 0 for cell in cells]


def _score_panel(cells: Sequence[CellSummary], names: Sequence[str], *, axis: Axis, title: str = "") -> Panel:
    lines = [
        [
            Point(x=cell.length_tokens or 0, y=cell.score, low=cell.low, high=cell.high)
            for cell in cells
            if cell.variant == name
        ]
        for name in names
    ]
    return Panel(title=title, x=axis, y=share_axis("mean score"), lines=lines)


def _in_words(cells: Sequence[CellSummary]) -> str:
    words = (f"{cell.variant}, {cell.task} at {cell.length_tokens} tokens: {cell.score:.2f}" for cell in cells)
    return f"Mean score. {'; '.join(words)}"


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
def _chart_template() -> jinja2.Template:
    environment = page_environment()
    environment.globals |= {
        "colour_of": colour_of,
        "dash_of": lambda place: DASHES[place % len(DASHES)],
        "labelled_ticks": _labelled_ticks,
        "shift": lambda place, number: SHIFT_PIXELS * (place - (number - 1) / 2),
    }
    environment.filters |= {"px": lambda number: f"{number:.1f}", "short": short_name}
    return environment.get_template("chart.svg")
