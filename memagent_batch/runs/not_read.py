"""The readings of a run that were not read, on their way from the readers to the table `answers`.

The log does not hold them, so that the next run reads them. A reader returns a row of each, as an outcome would be.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.log.index import Row
from memagent_batch.log.schemas import OUTCOME_LOG

COLUMN = "not_read"
"""Column of what a reader returns, and of a part of the plan."""

ENDED = pa.schema(
    [
        pa.field("document_id", pa.string()),
        pa.field("status", pa.string()),
        pa.field(COLUMN, pa.struct(list(OUTCOME_LOG))),
    ]
)
"""What a reader returns of each reading; `not_read` is null where the log holds the outcome."""


def collect_not_read(batches: Iterable[pa.Table]) -> pa.Table:
    """The readings in a run's tables of `ENDED` that were not read, as rows of `OUTCOME_LOG`."""
    found = [chunk for batch in batches for chunk in batch[COLUMN].drop_null().chunks if len(chunk)]
    return pa.concat_tables(
        [OUTCOME_LOG.empty_table(), *[pa.Table.from_struct_array(chunk).cast(OUTCOME_LOG) for chunk in found]]
    ).combine_chunks()


def attach_not_read(parts: Iterable[pa.Table], not_read: pa.Table) -> Iterator[pa.Table]:
    """The parts of a plan with a column `not_read`: of each document, its rows of `OUTCOME_LOG`."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, document_hash in enumerate(not_read["document_hash"].to_pylist()):
        rows_of[document_hash].append(row)
    for part in parts:
        rows = [rows_of.get(document_hash, []) for document_hash in part["document_hash"].to_pylist()]
        values = [not_read.take(pa.array(numbers)).to_pylist() if numbers else [] for numbers in rows]
        yield part.append_column(COLUMN, pa.array(values, pa.list_(ENDED.field(COLUMN).type)))


def detach_not_read(part: pa.Table) -> tuple[pa.Table, list[Row]]:
    """A part of a plan without the column, and what stood in it."""
    return part.drop_columns([COLUMN]), pc.list_flatten(part[COLUMN]).to_pylist()
