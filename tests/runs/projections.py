"""A projection for tests that make rows of a log."""

from typing import Any

from memagent_batch.config.job import TableFormat
from memagent_batch.domain.answers import Extraction
from memagent_batch.runs.projection import Projection
from memagent_batch.store.location import Location


def projection_at(output: Location, **fields: Any) -> Projection:
    """The plainest projection of an output's log by the reader `f`, with these fields in place of its own."""
    plain: dict[str, Any] = {
        "run_id": "run",
        "fingerprint": "f",
        "model": "m",
        "first_memory": "",
        "keep_word": "",
        "extraction": Extraction.AUTO,
        "table_format": TableFormat.PARQUET,
    }
    return Projection(output=output, **(plain | fields))
