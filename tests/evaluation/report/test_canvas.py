import pytest
from matplotlib.figure import Figure

from memagent_batch.evaluation.report.canvas import draw_magnitudes


@pytest.mark.parametrize("values", [(3.1, 4.2), (0.02, 0.15), (5.0, 5.0), (120.0, 90_000.0)])
def test_draw_magnitudes_shows_two_numbers_at_least(values: tuple[float, float]) -> None:
    figure = Figure(figsize=(3, 2))
    axes = figure.add_subplot()
    axes.plot([1, 2], values)
    draw_magnitudes(axes)
    low, high = axes.get_ylim()
    shown = {label.get_text() for label in axes.get_yticklabels() if low <= label.get_position()[1] <= high}
    assert len(shown - {""}) >= 2
