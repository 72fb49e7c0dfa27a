"""What the charts show: score and cost against length, confidence against what is right, reward against steps."""

from collections.abc import Callable, Mapping, Sequence

from memagent_batch.evaluation.measures import Measures
from memagent_batch.evaluation.report.charts import (
    Axis,
    Chart,
    Line,
    Panel,
    Point,
    length_axis,
    magnitude_axis,
    number_axis,
    share_axis,
)
from memagent_batch.evaluation.scoring import ALL_TASKS, CellSummary

REWARDS = {"mean_reward": "mean reward of the samples", "held_out_reward": "held-out questions, greedy"}
"""Lines of the learning curve, by their keys in `metrics.jsonl`."""


def chart_accuracy(cells: Sequence[CellSummary], *, variants: Sequence[str]) -> Chart | None:
    """One line for each variant, all tasks together; None if no length is known."""
    cells = _with_length(cells)
    if not cells:
        return None
    panel = Panel(
        title="", x=length_axis(_lengths(cells)), y=share_axis("mean score"), lines=_score_lines(cells, variants)
    )
    return Chart(name="accuracy", alternative=_in_words(cells), names=variants, panels=[panel])


def chart_tasks(cells: Sequence[CellSummary], *, variants: Sequence[str]) -> Chart | None:
    """The same for each task; None if there is only one task, or no length is known."""
    cells = _with_length(cells)
    tasks = sorted({cell.task for cell in cells})
    if len(tasks) < 2:
        return None
    panels = [
        Panel(
            title=task,
            x=length_axis(_lengths(cells), label="tokens"),
            y=share_axis("mean score"),
            lines=_score_lines([cell for cell in cells if cell.task == task], variants),
        )
        for task in tasks
    ]
    return Chart(
        name="accuracy-by-task",
        alternative=_in_words(cells),
        names=variants,
        panels=panels,
        columns=3,
        panel_width=300,
        panel_height=230,
    )


def chart_costs(cells: Sequence[CellSummary], *, variants: Sequence[str]) -> Chart | None:
    """Tokens and engine seconds a question against length; None if nothing was spent, or no length is known."""
    cells = [cell for cell in _with_length(cells) if num_tokens(cell)]
    if not cells:
        return None
    costs = {"tokens a question": num_tokens, "engine seconds a question": _engine_seconds}
    words = "; ".join(f"{cell.variant} at {cell.length_tokens} tokens: {num_tokens(cell):.0f}" for cell in cells)
    return Chart(
        name="cost",
        alternative=f"Tokens a question. {words}",
        names=variants,
        panels=[_cost_panel(title, cells, variants, cost=cost) for title, cost in costs.items()],
        columns=2,
        panel_width=450,
        panel_height=310,
    )


def chart_reliability(measures: Sequence[Measures], *, variants: Sequence[str]) -> Chart | None:
    """The reliability curve of each variant, all tasks together; None if no value has a confidence."""
    found = {each.variant: each.calibration for each in measures if each.task == ALL_TASKS and each.calibration}
    if not found:
        return None
    panels = [
        Panel(
            title=variant,
            x=share_axis("confidence"),
            y=share_axis("share that is right"),
            lines=[
                Line(
                    place=variants.index(variant),
                    points=[
                        Point(x=group.confidence, y=group.accuracy, low=group.interval.low, high=group.interval.high)
                        for group in each.bins
                    ],
                )
            ],
            has_diagonal=True,
        )
        for variant, each in found.items()
    ]
    words = "; ".join(f"{variant}: error {each.error:.3f}" for variant, each in found.items())
    return Chart(
        name="reliability",
        alternative=f"Share of right values by confidence. {words}",
        names=variants,
        panels=panels,
        columns=3,
        panel_width=300,
        panel_height=300,
    )


def chart_learning(steps: Sequence[Mapping[str, float | None]]) -> Chart | None:
    """The mean reward of each step's samples, and that of the held-out questions; None before the first."""
    lines = [
        Line(
            place=place,
            points=[Point(x=step["step"] or 0, y=reward) for step in steps if (reward := step.get(key)) is not None],
        )
        for place, key in enumerate(REWARDS)
    ]
    points = [point for line in lines for point in line.points]
    if not points:
        return None
    rewards = [point.y for point in points]
    y = share_axis("mean reward") if 0 <= min(rewards) <= max(rewards) <= 1 else number_axis("mean reward", rewards)
    panel = Panel(title="", x=number_axis("step", [point.x for point in points]), y=y, lines=lines)
    words = "; ".join(
        f"{name}: {line.points[0].y:.3f} at first, {line.points[-1].y:.3f} at step {line.points[-1].x:g}"
        for name, line in zip(REWARDS.values(), lines, strict=True)
        if line.points
    )
    return Chart(name="curve", alternative=words, names=list(REWARDS.values()), panels=[panel])


def num_tokens(cell: CellSummary) -> float:
    """Prompt and completion tokens of a reading; 0 if none has a row."""
    return (cell.mean_prompt_tokens or 0.0) + (cell.mean_completion_tokens or 0.0)


def _engine_seconds(cell: CellSummary) -> float:
    return cell.mean_engine_seconds or 0.0


def _score_lines(cells: Sequence[CellSummary], variants: Sequence[str]) -> list[Line]:
    return [
        Line(
            place=place,
            points=[
                Point(x=cell.length_tokens, y=cell.score, low=cell.low, high=cell.high)
                for cell in _of_variant(cells, variant)
                if cell.length_tokens is not None
            ],
        )
        for place, variant in enumerate(variants)
    ]


def _cost_panel(
    title: str, cells: Sequence[CellSummary], variants: Sequence[str], *, cost: Callable[[CellSummary], float]
) -> Panel:
    lines = [
        Line(
            place=place,
            points=[
                Point(x=cell.length_tokens, y=cost(cell))
                for cell in _of_variant(cells, variant)
                if cell.length_tokens is not None and cost(cell) > 0
            ],
        )
        for place, variant in enumerate(variants)
    ]
    y: Axis = magnitude_axis("", [cost(cell) for cell in cells if cost(cell) > 0] or [1.0])
    return Panel(title=title, x=length_axis(_lengths(cells)), y=y, lines=lines)


def _of_variant(cells: Sequence[CellSummary], variant: str) -> list[CellSummary]:
    return sorted((cell for cell in cells if cell.variant == variant), key=lambda cell: cell.length_tokens or 0)


def _with_length(cells: Sequence[CellSummary]) -> list[CellSummary]:
    return [cell for cell in cells if cell.length_tokens is not None]


def _lengths(cells: Sequence[CellSummary]) -> list[int]:
    return [cell.length_tokens for cell in cells if cell.length_tokens is not None]


def _in_words(cells: Sequence[CellSummary]) -> str:
    words = (f"{cell.variant}, {cell.task} at {cell.length_tokens} tokens: {cell.score:.2f}" for cell in cells)
    return f"Mean score. {'; '.join(words)}"
