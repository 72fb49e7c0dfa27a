"""The job of `memagent ingest`."""

from typing import Annotated

from pydantic import Field

from memagent_batch.config.ingest import IngestConfig
from memagent_batch.config.job import ExecutorKind
from memagent_batch.config.section import Text, TextOrTexts
from memagent_batch.config.sources import InputConfig, Storage


class IngestJob(Storage):
    """All settings of `memagent ingest`."""

    documents: Annotated[TextOrTexts, Field(min_length=1)]
    """Files, folders or globs, all on one file system, as paths or fsspec URLs. Or one table: delta://FOLDER or
    iceberg://CATALOG/DATABASE.TABLE, optionally with @VERSION."""
    output: Text
    """Folder or fsspec URL for the tables `documents` and `sources`."""
    input: InputConfig = InputConfig()
    """Where texts stand in the input."""
    ingest: IngestConfig = IngestConfig()
    """How document files become text."""
    retry_failed: bool = False
    """Read files again in which something failed."""
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """End with exit code 4 if a larger share of the sources failed, from 0 to 1."""
    executor: ExecutorKind = ExecutorKind.AUTO
    """Where sources are read: in this process (`local`) or by Ray. `auto` takes `local` for at most 64 MiB in at most
    100 document files or 2,000 data files."""
