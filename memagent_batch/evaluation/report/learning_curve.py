"""Reward and held-out reward against steps, as a picture."""

from collections.abc import Mapping, Sequence

from memagent_batch.evaluation.report.canvas import Picture, canvas, colour_of, draw_legend, draw_scores, finish

CURVE_WIDTH = 9.6
"""Width of the picture, inches."""


def draw_curve(lines: Sequence[Mapping[str, float | None]]) -> Picture | None:
    """One line for the mean reward of each step's samples, one for the held-out questions; None before the first."""
    drawn = [
        ("mean reward of the samples", "mean_reward", "o"),
        ("held-out questions, greedy", "held_out_reward", "s"),
    ]
    with canvas(width=CURVE_WIDTH, height=4.3) as figure:
        axes = figure.subplots()
        words = []
        for place, (label, name, marker) in enumerate(drawn):
            points = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
            if points:
                steps, values = zip(*points, strict=True)
                axes.plot(
                    steps, values, color=colour_of(place), marker=marker, markersize=4, linewidth=1.4, label=label
                )
                words.append(f"{label}: {values[0]:.3f} at step {steps[0]}, {values[-1]:.3f} at step {steps[-1]}")
        if not words:
            return None
        if all(0 <= (line.get(name) or 0) <= 1 for line in lines for _, name, _ in drawn):
            draw_scores(axes)
        axes.set_xlabel("step")
        axes.set_ylabel("mean reward")
        draw_legend(figure, axes, width=CURVE_WIDTH)
        return finish(figure, name="curve", alternative="; ".join(words))
