"""Inputs of a collection, and the rows that come out."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "


def write_inputs(folder: Path, texts: dict[str, str | None], *, references: list[str] | None) -> None:
    names = list(texts)
    pq.write_table(pa.table({"document_id": names, "text": list(texts.values())}), folder / "documents.parquet")
    questions = {
        "question_id": ["q"] * len(names),
        "document_id": names,
        "question": ["What is the access code of copper-falcon?"] * len(names),
        "references": pa.array([references] * len(names), pa.list_(pa.string())),
    }
    pq.write_table(pa.table(questions), folder / "questions.parquet")


def rows_of(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(output / "rollouts").to_pylist()
    return rows
