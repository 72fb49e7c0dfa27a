from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.evaluation.report.lengths import length_label, magnitude, with_lengths


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
