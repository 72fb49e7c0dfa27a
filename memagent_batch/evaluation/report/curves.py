"""Pictures of score and cost against length."""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from memagent_batch.evaluation.report.canvas import (
    INK,
    Picture,
    canvas,
    colour_of,
    draw_legend,
    draw_lengths,
    draw_magnitudes,
    draw_scores,
    finish,
    line_of,
    marker_of,
    shifted,
    short_name,
)
from memagent_batch.evaluation.scoring import CellSummary

WIDTH = 9.6
"""Width of a picture, inches."""
TASK_COLUMNS = 4
"""Small pictures beside each other."""


def draw_accuracy(cells: Sequence[CellSummary], *, variants: Sequence[str]) -> Picture | None:
    """One line for each variant, all tasks together; None where no length is known."""
    cells = _with_length(cells)
    if not cells:
        return None
    with canvas(width=WIDTH, height=4.3) as figure:
        axes = figure.subplots()
        _draw_lines(axes, cells, variants=variants)
        draw_lengths(axes, _cell_lengths(cells))
        axes.set_xlabel("length of the document, tokens")
        axes.set_ylabel("mean score")
        _name_single(axes, variants)
        draw_legend(figure, axes, width=WIDTH)
        return finish(figure, name="accuracy", alternative=_in_words(cells))


def draw_tasks(cells: Sequence[CellSummary], *, variants: Sequence[str]) -> Picture | None:
    """The same for each task; None where there is one task alone, or no length is known."""
    cells = _with_length(cells)
    tasks = sorted({cell.task for cell in cells})
    if len(tasks) < 2:
        return None
    columns = min(TASK_COLUMNS, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    with canvas(width=WIDTH, height=0.5 + 2.1 * rows) as figure:
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False, gridspec_kw={"wspace": 0.06})
        for place, axes in enumerate(grid.flat):
            if place >= len(tasks):
                axes.set_axis_off()
                continue
            of_task = [cell for cell in cells if cell.task == tasks[place]]
            _draw_lines(axes, of_task, variants=variants, small=True)
            axes.set_title(short_name(tasks[place]), fontsize=8.5, color=INK)
            axes.tick_params(labelsize=7.5, labelbottom=place + columns >= len(tasks))
            draw_lengths(axes, _cell_lengths(cells), small=True)
        figure.supxlabel("length of the document, tokens", fontsize=8.5)
        figure.supylabel("mean score", fontsize=8.5)
        draw_legend(figure, grid.flat[0], width=WIDTH)
        return finish(figure, name="accuracy-by-task", alternative=_in_words(cells))


def draw_costs(cells: Sequence[CellSummary], *, variants: Sequence[str]) -> Picture | None:
    """Tokens and engine seconds of a question against length; None where nothing was spent, or no length is known."""
    cells = [cell for cell in _with_length(cells) if num_tokens(cell)]
    if not cells:
        return None
    with canvas(width=WIDTH, height=3.5) as figure:
        tokens, seconds = figure.subplots(1, 2)
        _draw_cost(tokens, cells, variants=variants, cost=num_tokens, title="tokens a question")
        _draw_cost(seconds, cells, variants=variants, cost=_engine_seconds, title="engine seconds a question")
        figure.supxlabel("length of the document, tokens", fontsize=9)
        draw_legend(figure, tokens, width=WIDTH)
        words = "; ".join(f"{cell.variant} at {cell.length_tokens} tokens: {num_tokens(cell):.0f}" for cell in cells)
        return finish(figure, name="cost", alternative=f"Tokens a question. {words}")


def num_tokens(cell: CellSummary) -> float:
    """Prompt and completion tokens of a reading; 0 where none has a row."""
    return (cell.mean_prompt_tokens or 0.0) + (cell.mean_completion_tokens or 0.0)


def _engine_seconds(cell: CellSummary) -> float:
    return cell.mean_engine_seconds or 0.0


def _draw_lines(axes: Axes, cells: Sequence[CellSummary], *, variants: Sequence[str], small: bool = False) -> None:
    lengths = _cell_lengths(cells)
    for place, variant in enumerate(variants):
        points = [cell for cell in cells if cell.variant == variant]
        axes.errorbar(
            [
                shifted(length, place=place, num_variants=len(variants), ratio=lengths[-1] / lengths[0])
                for length in _lengths_of(points)
            ],
            [cell.score for cell in points],
            yerr=[[cell.score - cell.low for cell in points], [cell.high - cell.score for cell in points]],
            color=colour_of(place),
            marker=marker_of(place),
            linestyle=line_of(place),
            markersize=3.2 if small else 5.5,
            linewidth=1.2 if small else 1.6,
            elinewidth=0.7 if small else 0.9,
            capsize=1.5 if small else 2.5,
            label=short_name(variant),
            clip_on=False,
        )
    draw_scores(axes)


def _draw_cost(
    axes: Axes,
    cells: Sequence[CellSummary],
    *,
    variants: Sequence[str],
    cost: Callable[[CellSummary], float],
    title: str,
) -> None:
    for place, variant in enumerate(variants):
        points = [cell for cell in cells if cell.variant == variant and cost(cell) > 0]
        axes.plot(
            _lengths_of(points),
            [cost(cell) for cell in points],
            color=colour_of(place),
            marker=marker_of(place),
            linestyle=line_of(place),
            markersize=4.5,
            linewidth=1.4,
            label=short_name(variant),
        )
    axes.set_title(title, color=INK)
    draw_magnitudes(axes)
    draw_lengths(axes, _cell_lengths(cells), small=True)


def _name_single(axes: Axes, variants: Sequence[str]) -> None:
    if len(variants) == 1:
        axes.set_title(short_name(variants[0]), color=INK)


def _with_length(cells: Sequence[CellSummary]) -> list[CellSummary]:
    return [cell for cell in cells if cell.length_tokens is not None]


def _cell_lengths(cells: Sequence[CellSummary]) -> list[int]:
    return sorted(set(_lengths_of(cells)))


def _lengths_of(cells: Sequence[CellSummary]) -> list[int]:
    return [cell.length_tokens for cell in cells if cell.length_tokens is not None]


def _in_words(cells: Sequence[CellSummary]) -> str:
    words = (f"{cell.variant}, {cell.task} at {cell.length_tokens} tokens: {cell.score:.2f}" for cell in cells)
    return f"Mean score. {'; '.join(words)}"
