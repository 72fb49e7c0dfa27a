from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from memagent_batch.evaluation.report.charts import (
    Axis,
    Chart,
    Panel,
    Point,
    chart_learning,
    length_axis,
    length_label,
    magnitude,
    number_axis,
    render_chart,
    share_axis,
)
from memagent_batch.evaluation.report.report import with_lengths

SVG = "{http://www.w3.org/2000/svg}"


def chart(*, x: Axis, names: tuple[str, ...] = ("a",), points: tuple[Point, ...]) -> Chart:
    panel = Panel(title="task", x=x, y=share_axis("mean score"), lines=[points] * len(names))
    return Chart(name="accuracy", alternative="scores", names=names, panels=[panel])


@pytest.mark.parametrize("values", [(3.1, 4.2), (0.02, 0.15), (5.0, 5.0), (120.0, 90_000.0), (1.0, 3e5)])
def test_axis_holds_the_values_and_shows_two_to_six_numbers(values: tuple[float, float]) -> None:
    axis = number_axis("tokens", values)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert 2 <= len(set(axis.ticks.values())) <= 6


def test_chart_puts_points_and_intervals_where_their_values_are() -> None:
    points = (Point(x=1024, y=1.0, low=0.6, high=1.0), Point(x=4096, y=0.0, low=0.0, high=0.4))
    svg = ElementTree.fromstring(render_chart(chart(x=length_axis([1024, 4096]), points=points)))

    first, second = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in svg.iter(f"{SVG}circle")]
    ticks = {
        text.text: (float(text.get("x", "")), float(text.get("y", "")))
        for text in svg.iter(f"{SVG}text")
        if text.get("x")
    }
    assert (first[0], second[0]) == (ticks["1K"][0], ticks["4K"][0])
    assert (first[1], second[1]) == pytest.approx((ticks["1"][1] - 4, ticks["0"][1] - 4), abs=0.11)


def test_chart_of_lengths_close_together_labels_the_last_and_those_that_fit() -> None:
    lengths = [1000 + 10 * number for number in range(40)]
    svg = render_chart(chart(x=length_axis(lengths), points=(Point(x=1000, y=1),)))
    assert ">1.39K</text>" in svg
    assert 2 <= svg.count("K</text>") <= 28


def test_chart_of_hostile_names_is_well_formed_and_shows_them_as_text() -> None:
    name = "<script>x</script>\x00\u202e"
    svg = render_chart(chart(x=length_axis([1024]), names=(name, "b" * 99), points=(Point(x=1024, y=0.5),)))
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert "<script>x</script>⟦U+0000⟧⟦U+20…" in texts
    assert f"{'b' * 31}…" in texts


def test_learning_chart_of_rewards_outside_0_to_1_holds_them() -> None:
    steps: list[dict[str, float | None]] = [
        {"step": 1, "mean_reward": -1.0, "held_out_reward": None},
        {"step": 2, "mean_reward": 1.5, "held_out_reward": 0.25},
    ]
    drawn = chart_learning(steps)
    assert drawn
    [panel] = drawn.panels
    assert panel.y.low <= -1.0 < 1.5 <= panel.y.high
    assert [[point.y for point in line] for line in panel.lines] == [[-1.0, 1.5], [0.25]]


def test_learning_chart_before_the_first_reward_is_none() -> None:
    assert chart_learning([{"step": 1, "mean_reward": None}]) is None


@pytest.mark.parametrize(
    ("tokens", "label"),
    [
        (1000, "1K"),
        (1024, "1K"),
        (4096, "4K"),
        (512, "512"),
        (128_000, "125K"),
        (131_072, "128K"),
        (1_000_000, "1M"),
        (1_048_576, "1M"),
        (3_500_000, "3500K"),
        (7_123, "7.12K"),
        (None, "unknown"),
    ],
)
def test_length_label_known_lengths_are_short(tokens: int | None, label: str) -> None:
    assert length_label(tokens) == label


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (0.0421, "0.0421"), (999.9, "1K"), (1.5e6, "1.5M"), (312.5, "312")]
)
def test_magnitude_three_digits(number: float, text: str) -> None:
    assert magnitude(number) == text


def test_with_lengths_fills_from_the_document_where_the_suite_gives_none() -> None:
    rows: list[dict[str, Any]] = [
        {"document_id": "asked", "length_tokens": 1000, "num_document_tokens": 990},
        {"document_id": "own", "length_tokens": None, "num_document_tokens": 3000},
        {"document_id": "own", "length_tokens": None, "num_document_tokens": None},
        {"document_id": "exact", "length_tokens": None, "num_document_tokens": 4096},
        {"document_id": "never", "length_tokens": None, "num_document_tokens": None},
    ]
    assert with_lengths(pa.Table.from_pylist(rows))["length_tokens"].to_pylist() == [1000, 4096, 4096, 4096, None]
