"""Inputs of a collection, and the rows that come out."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.apps.training.rollouts_table import ROLLOUTS, read_groups
from memagent_batch.data.store.location import Location

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
    """The rows of the table `rollouts`, in its order."""
    groups = read_groups(Location(uri=str(output)), columns=ROLLOUTS.names)
    return [row for group in groups for row in group.to_pylist()]
