"""How large the pages of a run become, from the lengths of its columns: before anything is written."""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.evaluation.report.templates import MAX_TEXT_CHARACTERS
from memagent_batch.evaluation.report.traces import MAX_MEMORY_CHARACTERS, MAX_STEPS
from memagent_batch.files.location import Location
from memagent_batch.pages.readings import table_rows
from memagent_batch.pages.templates import stylesheet
from memagent_batch.runs.manifest import Manifest

SHEET_BYTES = 2_500
"""What a document's page has without its readings and its style, about."""
READING_BYTES = 2_500
"""What a reading has on it without its texts and steps, about."""
STEP_BYTES = 450
"""What a turn that changed the memory has without its text, about."""
QUIET_BYTES = 220
"""A line for turns that did not."""
ROW_BYTES = 160
"""What a row of the table has without its texts, about."""
MARKED = 1.2
"""By how much marks of what changed lengthen a memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeEstimate:
    """About how much is written."""

    num_bytes: int
    """All files."""
    num_documents: int
    """Documents, each a file or more."""


def estimate_size(output: Location, manifest: Manifest, *, context_chars: int | None) -> SizeEstimate:
    """Sums the texts that the pages show; the memories are counted as if no stretch of them were elided.

    Args:
        output: The run's location.
        manifest: The run.
        context_chars: Characters of the document on either side of evidence; None where no text is shown.
    """
    num_bytes, num_documents = 0.0, 0
    for part in manifest["parts"]:
        documents: set[str] = set()
        for batch in table_rows(
            output / part["answers_file"], columns=("document_id", "question", "answer", "response")
        ):
            documents.update(batch.column("document_id").to_pylist())
            texts = _shown_bytes(batch, ("question", "answer", "response"), most=MAX_TEXT_CHARACTERS)
            num_bytes += 2 * texts + batch.num_rows * (READING_BYTES + ROW_BYTES)
        num_documents += len(documents)
        num_bytes += _trace_bytes(table_rows(output / part["memories_file"], columns=("memory", "changed", "turn")))
        if evidence := part.get("evidence_file"):
            for batch in table_rows(output / str(evidence), columns=("text",)):
                num_bytes += 2 * _shown_bytes(batch, ("text",), most=MAX_TEXT_CHARACTERS)
                num_bytes += batch.num_rows * (READING_BYTES // 10 + 2 * (context_chars or 0))
    num_bytes += num_documents * (SHEET_BYTES + len(stylesheet()))
    return SizeEstimate(num_bytes=round(num_bytes), num_documents=num_documents)


def _trace_bytes(batches: Iterable[pa.RecordBatch]) -> float:
    """What the traces take: of each reading the first `MAX_STEPS` memories that changed."""
    num_bytes, in_reading = 0.0, 0
    for batch in batches:
        lengths = pc.binary_length(batch.column("memory")).to_pylist()
        columns = (batch.column(name).to_pylist() for name in ("turn", "changed"))
        for turn, changed, length in zip(*columns, lengths, strict=True):
            in_reading = 0 if turn == 0 else in_reading
            if changed and in_reading < MAX_STEPS:
                in_reading += 1
                num_bytes += MARKED * min(length, MAX_MEMORY_CHARACTERS) + STEP_BYTES + QUIET_BYTES
    return num_bytes


def _shown_bytes(batch: pa.RecordBatch, names: Iterable[str], *, most: int) -> int:
    lengths = [pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in names]
    return sum(pc.sum(pc.min_element_wise(length, most)).as_py() or 0 for length in lengths)
