"""Exports of small tables, and what trainers need beside them."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

import memagent_batch
from memagent_batch.files.location import Location
from memagent_batch.flows.export import export
from tests.training.rollouts.rollout_tables import write_table

TINY_MODEL = str(Path(memagent_batch.__file__).parent / "models/tiny")
"""Folder of the shipped policy."""

Groups = list[list[float | None]]
"""Groups, each the rewards of its samples; None is a sample that failed."""


def export_groups(folder: Path, groups: Groups, *, to: str, **table: Any) -> Path:
    """Exports a table of groups; returns the export's folder. The table lies beside it, in `rollouts`."""
    source = write_table(folder / "rollouts", groups, **table)
    export(Location(uri=str(source)), Location(uri=str(folder / to)), to=to)
    return folder / to


def tiny_tokenizer() -> Any:
    """The shipped policy's tokeniser, as trainers load it."""
    return AutoTokenizer.from_pretrained(TINY_MODEL)
