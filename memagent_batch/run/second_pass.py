"""A second pass: selects the readings of another output that a run reads again, and merges the answers of both."""

from collections.abc import Iterator, Sequence
from os import PathLike

import pyarrow as pa
import pyarrow.dataset as ds

from memagent_batch.config.job import JobConfig
from memagent_batch.config.storage import Options
from memagent_batch.data.documents.questions import are_in_slice
from memagent_batch.data.documents.where import matching_rows, parse_where
from memagent_batch.data.store.columns import column
from memagent_batch.data.store.database import BATCH_ROWS, open_database
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError
from memagent_batch.masking import mask_url
from memagent_batch.run.claim import canonical
from memagent_batch.run.history import find_run
from memagent_batch.run.manifest import AgainRecord
from memagent_batch.run.plan import AGAIN, Again
from memagent_batch.run.tables import ANSWERS, ANSWERS_TABLE

WHERE = "again_where"
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
                    from answers where output_number = 0),
chosen as (
    select document_id, question_id, sample, max(output_number) as output_number from (
        select document_id, question_id, sample, 0 as output_number from first_rows
        union all
        select a.document_id, a.question_id, a.sample, a.output_number from answers a
        join first_rows f using (document_id, question_id, sample, document_hash, question)
        where a.output_number > 0 and a.status = 'ok' and a.answer is not null
        and a.value_status is distinct from 'invalid')
    group by all)
select a.* exclude (output_number), list_extract($outputs, a.output_number + 1) as output,
       case when a.output_number > 0 then f.value end as first_value,
       case when a.output_number > 0 then f.confidence end as first_confidence
from answers a join chosen using (document_id, question_id, sample, output_number)
join first_rows f using (document_id, question_id, sample)
order by document_id, question_id, sample
"""


def select_again(job: JobConfig, *, files: frozenset[str] = frozenset()) -> Again | None:
    """The readings that a job reads again; None if it reads all that it asks. `files`: see `are_in_slice`.

    Raises:
        OutputError: the other output is this one, no run has finished there, or its tables can't be read.
        InputError: the condition does not fit its table.
    """
    if job.again_from is None or job.again_where is None:
        return None
    if canonical(job.again_from, job) == canonical(job.output, job):
        raise OutputError("again_from: it is the output itself; give the second pass its own output")
    source = Location(uri=job.again_from, storage_options=job.storage_options)
    with output_errors(source.uri):
        past = find_run(source)
    condition = parse_where(job.again_where, option=WHERE)
    found = [AGAIN.empty_table()]
    dataset = past.dataset(ANSWERS_TABLE)
    columns = dict.fromkeys(["document_id", "question_id", *condition.columns_among(dataset.schema.names)])
    for batch in dataset.scanner(columns=list(columns), batch_size=BATCH_ROWS).to_batches():
        answers = pa.Table.from_batches([batch])
        rows = matching_rows(answers, condition, there=dataset.schema.names)
        found.append(answers.take(rows).select(AGAIN.names).cast(AGAIN))
    readings = pa.concat_tables(found).group_by(AGAIN.names).aggregate([])
    readings = readings.filter(are_in_slice(readings["document_id"], job.input, files=files))
    record: AgainRecord = {
        "output": mask_url(job.again_from),
        "run_id": past.run_id,
        "where": job.again_where,
        "pairs": readings.num_rows,
    }
    return Again(record=record, readings=readings)


def merged_answers(outputs: Sequence[str | PathLike[str]], *, storage_options: Options | None = None) -> pa.Table:
    """The `answers` of an output; those of second passes replace them.

    An answer of a later output stands if it can be used (`ok`, with an answer, its value not `invalid`), and if the
    document and the question are the same as in the first output. There is one row for each row of the first.

    Args:
        outputs: The first output, and those of second passes; the last one counts most.
        storage_options: Arguments of their file system.

    Raises:
        OutputError: no run has finished in one of them, or its tables can't be read.
    """
    locations = [Location(uri=str(output), storage_options=storage_options or {}) for output in outputs]
    return pa.Table.from_batches(merged_batches(locations))


def merged_batches(outputs: Sequence[Location]) -> Iterator[pa.RecordBatch]:
    """The same in batches; see `merged_answers`."""
    with open_database({f"answers_{number}": _answers(output) for number, output in enumerate(outputs)}) as database:
        tables = [f"select *, {number} as output_number from answers_{number}" for number in range(len(outputs))]
        database.execute(f"create temp view answers as {' union all by name '.join(tables)}")
        names = [mask_url(output.uri) for output in outputs]
        reader = pa.RecordBatchReader.from_stream(database.sql(_MERGED, params={"outputs": names}))
        known = {field.name: field for field in (*ANSWERS, *ADDED)}
        schema = pa.schema([known.get(field.name, field) for field in reader.schema])
        for batch in reader:
            yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def _answers(output: Location) -> ds.Dataset:
    with output_errors(output.uri):
        return find_run(output).dataset(ANSWERS_TABLE)
