"""What is left to read of documents: readings, and the columns that a plan adds to the index for them."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

WORK_COLUMNS = pa.schema(
    [
        pa.field("readings", pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32())]))),
        pa.field("turn_files", pa.list_(pa.string())),
        pa.field("closings", pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32())]))),
        pa.field("ended_by", pa.list_(pa.string())),
        pa.field("last_hashes", pa.list_(pa.string())),
    ]
)
"""What a document is read for: row of the question list and sample; the log files that hold turns of it; the
readings that the log has answered, but whose closing turns are missing; run and writer that ended each of these; and
the hashes of its last versions, the latest first, where these files hold turns of those too."""


class Work(NamedTuple):
    """A reading, whoever reads it; a tuple, since a run holds one for each."""

    document_hash: str
    question: int
    """Row of the question list."""
    sample: int


class ReadingLists:
    """Builds a list column of readings, one list for each document, without an object for each reading."""

    def __init__(self) -> None:
        self._offsets, self._questions, self._samples = array("i", [0]), array("i"), array("i")

    def add(self, question: int, sample: int) -> None:
        """Adds a reading of the document."""
        self._questions.append(question)
        self._samples.append(sample)

    def end_document(self) -> None:
        """The next reading is of the next document."""
        self._offsets.append(len(self._questions))

    def column(self) -> pa.ListArray:
        """The column, as `readings` of `WORK_COLUMNS`."""
        kind = WORK_COLUMNS.field("readings").type
        columns = [pa.array(self._questions, pa.int32()), pa.array(self._samples, pa.int32())]
        values = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
        return pa.ListArray.from_arrays(pa.array(self._offsets, pa.int32()), values, type=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWork:
    """How much is left to read."""

    readings: int
    """Readings, those to close among them."""
    num_bytes: int
    """Text of their documents, once for each reading; bytes of UTF-8."""
    closings: int
    """Readings that the log has answered, but whose closing turns are missing."""


def count_pending(bundles: Iterable[pa.Table]) -> PendingWork:
    """Sums over the bundles of `Plan.pending`."""
    readings = num_bytes = closings = 0
    for bundle in bundles:
        lengths = num_readings_of(bundle)
        readings += pc.sum(lengths).as_py()
        num_bytes += pc.sum(pc.multiply(bundle["num_bytes"], lengths)).as_py()
        closings += pc.sum(pc.list_value_length(bundle["closings"])).as_py()
    return PendingWork(readings=readings, num_bytes=num_bytes, closings=closings)


def num_readings_of(bundle: pa.Table) -> pa.ChunkedArray:
    """Readings of each document, those to close among them."""
    return pc.add(pc.list_value_length(bundle["readings"]), pc.list_value_length(bundle["closings"]))
