"""The picture of confidence against what is right: whether a value is right as often as its probability says."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from memagent_batch.domain.scoring.measures import Calibration
from memagent_batch.evaluation.measures import Measures
from memagent_batch.evaluation.report.canvas import (
    INK,
    MUTED,
    Picture,
    canvas,
    colour_of,
    draw_scores,
    finish,
    short_name,
)
from memagent_batch.evaluation.scoring import ALL_TASKS

PICTURES_A_ROW = 4
"""Pictures beside each other."""
SIZE = 2.3
"""Side of one picture, inches."""


def draw_reliability(measures: Sequence[Measures], *, variants: Sequence[str]) -> Picture | None:
    """The reliability curve of each variant, all tasks together; None where no value has a confidence."""
    found = {each.variant: each.calibration for each in measures if each.task == ALL_TASKS and each.calibration}
    if not found:
        return None
    columns = min(PICTURES_A_ROW, len(found))
    rows = math.ceil(len(found) / columns)
    with canvas(width=0.6 + SIZE * columns, height=0.6 + SIZE * rows) as figure:
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes in grid.flat[len(found) :]:
            axes.set_axis_off()
        for axes, (variant, each) in zip(grid.flat, found.items(), strict=False):
            _draw_curve(axes, each, colour=colour_of(variants.index(variant)))
            axes.set_title(short_name(variant), color=INK, fontsize=9)
        figure.supxlabel("confidence", fontsize=9)
        figure.supylabel("share that is right", fontsize=9)
        words = "; ".join(f"{variant}: error {each.error:.3f}" for variant, each in found.items())
        return finish(figure, name="reliability", alternative=f"Share of right values by confidence. {words}")


def _draw_curve(axes: Axes, each: Calibration, *, colour: str) -> None:
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)))
    confidences = [group.confidence for group in each.bins]
    accuracies = [group.accuracy for group in each.bins]
    errors = [
        [group.accuracy - group.interval.low for group in each.bins],
        [group.interval.high - group.accuracy for group in each.bins],
    ]
    axes.errorbar(confidences, accuracies, yerr=errors, color=colour, marker="o", markersize=4, elinewidth=0.9)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xticks([0, 0.5, 1])
    draw_scores(axes)
    axes.set_aspect("equal")
