"""The answers of an output with those of second passes over it, where these have a better one."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from memagent_batch.errors import OutputError
from memagent_batch.files.columns import column
from memagent_batch.files.errors import output_errors, table_errors
from memagent_batch.files.location import Location
from memagent_batch.files.options import Options
from memagent_batch.masking import shown
from memagent_batch.runs.tables.schemas import ANSWERS
from memagent_batch.runs.tables.table_files import MOVED_TABLES_REMEDY, table_locations
from memagent_batch.runs.tables.tables import ANSWERS_FOLDER

MEMORY_LIMIT = "2GB"
"""Memory in which the tables are joined; more goes to temporary files."""
ADDED = pa.schema(
    [
        column("output", pa.string(), "the output that the answer is from"),
        column("first_value", pa.string(), "`value` of the first output, where the answer is another's", nullable=True),
        column("first_confidence", pa.float64(), "`confidence` of the same", nullable=True),
    ]
)
"""Columns of the merged answers behind those of `answers`."""

_MERGED = """
with first_rows as (select document_id, question_id, sample, document_hash, question, value, confidence
                    from answers where place = 0),
chosen as (
    select document_id, question_id, sample, max(place) as place from (
        select document_id, question_id, sample, 0 as place from first_rows
        union all
        select a.document_id, a.question_id, a.sample, a.place from answers a
        join first_rows f using (document_id, question_id, sample, document_hash, question)
        where a.place > 0 and a.status = 'ok' and a.answer is not null
        and a.value_status is distinct from 'invalid')
    group by all)
select a.* exclude (place), list_extract($outputs, a.place + 1) as output,
       case when a.place > 0 then f.value end as first_value,
       case when a.place > 0 then f.confidence end as first_confidence
from answers a join chosen using (document_id, question_id, sample, place)
join first_rows f using (document_id, question_id, sample)
order by document_id, question_id, sample
"""


def merged_answers(outputs: Sequence[str | PathLike[str]], *, storage_options: Options | None = None) -> pa.Table:
    """The `answers` of an output, each in the place of which the answer of a second pass stands if it has one.

    An answer of a later output stands if it can be used (`ok`, with an answer, its value not `invalid`), and if the
    document and the question are the same as in the first output. There is one row for each row of the first.

    Args:
        outputs: The first output, and those of second passes, the last of which counts most.
        storage_options: Arguments of their file system.

    Raises:
        OutputError: no run has finished in one of them, or its tables can't be read.
    """
    locations = [Location(uri=str(output), storage_options=storage_options or {}) for output in outputs]
    return pa.Table.from_batches(merged_batches(locations))


def merged_batches(outputs: Sequence[Location]) -> Iterator[pa.RecordBatch]:
    """The same in batches; see `merged_answers`."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        spilled = str(Path(folder) / "spilled")
        connected = duckdb.connect(config={"memory_limit": MEMORY_LIMIT, "temp_directory": spilled})
        database = stack.enter_context(connected)
        database.execute("set timezone = 'UTC'")
        for place, output in enumerate(outputs):
            database.register(f"answers_{place}", _answers(output))
        tables = [f"select *, {place} as place from answers_{place}" for place in range(len(outputs))]
        database.execute(f"create view answers as {' union all by name '.join(tables)}")
        names = [shown(output.uri) for output in outputs]
        reader = pa.RecordBatchReader.from_stream(database.sql(_MERGED, params={"outputs": names}))
        known = {field.name: field for field in (*ANSWERS, *ADDED)}
        schema = pa.schema([known.get(field.name, field) for field in reader.schema])
        for batch in reader:
            yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def _answers(output: Location) -> ds.Dataset:
    """The table `answers` of the last run of an output."""
    with output_errors(output.uri):
        places = table_locations(output, ANSWERS_FOLDER)
    if not places:
        raise OutputError(f"output: {output.uri} has no answers; it read nothing")
    with table_errors(output.uri, remedy=MOVED_TABLES_REMEDY):
        kind = "parquet" if places[0].path.endswith(".parquet") else "ipc"
        return ds.dataset([place.path for place in places], filesystem=output.fs, format=kind)
