import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from memagent_batch.evaluation.report.charts import chart_accuracy, length_label, magnitude, render_chart
from memagent_batch.evaluation.report.report import with_lengths
from memagent_batch.evaluation.scoring import CellSummary
from memagent_batch.evaluation.statistics import Interval

SVG = "{http://www.w3.org/2000/svg}"
WHOLE = Interval(low=0.0, high=1.0)


def drawn(lengths: Sequence[int], *, names: tuple[str, ...] = ("a",), score: float = 0.5) -> str:
    """A chart of one score at all lengths, for the first of these variants."""
    return draw([cell(length, score) for length in lengths], names=names)


def cell(length: int, score: float, interval: Interval = WHOLE) -> CellSummary:
    costs = ("turns", "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "engine_seconds")
    return CellSummary(
        variant="a",
        task="task",
        length_tokens=length,
        n=9,
        score=score,
        low=interval.low,
        high=interval.high,
        num_failed=0,
        num_unanswered=0,
        num_missing=0,
        **{f"mean_{name}": None for name in costs},
    )


def draw(cells: Sequence[CellSummary], *, names: tuple[str, ...] = ("a",)) -> str:
    chart = chart_accuracy(cells, names=names)
    assert chart is not None
    return render_chart(chart)


def test_chart_puts_points_and_intervals_where_their_values_are() -> None:
    cells = [cell(1024, 1.0, Interval(low=0.6, high=1.0)), cell(4096, 0.0, Interval(low=0.0, high=0.4))]
    svg = ElementTree.fromstring(draw(cells))

    first, second = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in svg.iter(f"{SVG}circle")]
    ticks = {
        text.text: (float(text.get("x", "")), float(text.get("y", "")))
        for text in svg.iter(f"{SVG}text")
        if text.get("x")
    }
    bar = next(path.get("d", "") for path in svg.iter(f"{SVG}path") if "V" in path.get("d", ""))
    assert (first[0], second[0]) == (ticks["1K"][0], ticks["4K"][0])
    assert (first[1], second[1]) == pytest.approx((ticks["1"][1] - 4, ticks["0"][1] - 4), abs=0.11)
    assert [float(each) for each in re.split("[ V]", bar.removeprefix("M"))] == pytest.approx(
        (first[0], ticks["0.6"][1] - 4, first[1]), abs=0.11
    )


def test_chart_of_one_length_puts_it_in_the_middle() -> None:
    svg = ElementTree.fromstring(drawn([1024]))
    (point,) = svg.iter(f"{SVG}circle")
    (middle,) = (text.get("x") for text in svg.iter(f"{SVG}text") if text.text == "length of the document, tokens")
    assert point.get("cx") == middle


def test_chart_of_lengths_close_together_labels_the_last_and_those_that_fit() -> None:
    svg = drawn([1000 + 10 * number for number in range(40)])
    assert ">1.39K</text>" in svg
    assert 2 <= svg.count("K</text>") <= 28


def test_chart_of_hostile_names_is_well_formed_and_shows_them_as_text() -> None:
    svg = drawn([1024], names=("<script>x</script>\x00\u202e", "b" * 99))
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert "<script>x</script>⟦U+0000⟧⟦U+20…" in texts
    assert f"{'b' * 31}…" in texts


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
