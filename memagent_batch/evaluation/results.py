"""What an evaluation left behind: the scores of its variants, and the rows that a run kept of chosen readings."""

from collections.abc import Iterator, Set
from dataclasses import dataclass

import pyarrow as pa

from memagent_batch.errors import OutputError
from memagent_batch.evaluation.record import EVALUATION_FILE, Evaluation, VariantRecord, read_evaluation
from memagent_batch.evaluation.suites.schemas import SCORES
from memagent_batch.files.errors import output_errors, table_errors
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import read_parquet
from memagent_batch.inputs.formats.columnar import GroupedFile, open_grouped
from memagent_batch.log.index import Row
from memagent_batch.runs.manifest import MANIFEST_FILE
from memagent_batch.runs.tables.table_files import table_locations
from memagent_batch.runs.tables.tables import ANSWERS_FOLDER, MEMORIES_FOLDER

REPEAT_REMEDY = "run `evaluate run` again with the same arguments; finished readings are not read again"
"""What brings back a file that is lost or broken."""

READING_COLUMNS = ("document_id", "question_id", "sample")
"""What names a reading inside a run."""

ReadingIds = tuple[str, str, int]
"""Values of `READING_COLUMNS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRows:
    """What a run kept of some readings."""

    answers: dict[ReadingIds, Row]
    """Their rows of `answers`."""
    memories: dict[ReadingIds, list[Row]]
    """Their rows of `memories`, in the order of their turns; none for a reading that failed before its first."""


def open_evaluation(output: Location) -> Evaluation:
    """What `evaluation.json` says; at least one variant has been read.

    Raises:
        OutputError: there is none, it is broken, another version or program wrote it, or no variant is there yet.
    """
    with output_errors(output.uri):
        is_there = (output / EVALUATION_FILE).exists()
    if not is_there:
        raise OutputError(
            f"{output.uri} is not the output of an evaluation: there is no {EVALUATION_FILE}; name the folder that was "
            "`--output` of `evaluate run`"
        )
    evaluation = read_evaluation(output)
    if evaluation is None or not evaluation.variants:
        raise OutputError(f"the evaluation at {output.uri} holds no finished variant; run `evaluate run` to its end")
    return evaluation


def read_scores(output: Location, evaluation: Evaluation) -> pa.Table:
    """The scores of all variants, a table of `SCORES`.

    Raises:
        OutputError: a variant's scores are missing, empty or not readable; names the file.
    """
    return pa.concat_tables([_read_scores(output / variant.scores, variant) for variant in evaluation.variants])


def read_readings(run: Location, keys: Set[ReadingIds]) -> ReadingRows:
    """What the run in this folder kept of some readings. Holds one batch of rows at a time, beside what it returns.

    Raises:
        OutputError: a table can't be read; names the file.
    """
    memories: dict[ReadingIds, list[Row]] = {}
    for row in _matching(run, MEMORIES_FOLDER, keys):
        memories.setdefault(_reading_key(row), []).append(row)
    return ReadingRows(
        answers={_reading_key(row): row for row in _matching(run, ANSWERS_FOLDER, keys)},
        memories={key: sorted(rows, key=lambda row: row["turn"]) for key, rows in memories.items()},
    )


def _read_scores(place: Location, variant: VariantRecord) -> pa.Table:
    if not place.exists():
        raise OutputError(
            f"the scores of variant {variant.name!r} are missing: there is no {place.uri}; {REPEAT_REMEDY}"
        )
    with table_errors(place.uri, remedy=REPEAT_REMEDY):
        table = read_parquet(place).select(SCORES.names).cast(SCORES)
    if not table.num_rows:
        raise OutputError(f"the scores of variant {variant.name!r} are empty: {place.uri}; {REPEAT_REMEDY}")
    return table


def _matching(run: Location, table: str, keys: Set[ReadingIds]) -> Iterator[Row]:
    """Rows of these readings in a table of a run; none where the run's folder is no longer there."""
    for place in table_locations(run, table) if keys and (run / MANIFEST_FILE).exists() else ():
        with table_errors(place.uri, remedy=REPEAT_REMEDY), open_grouped(place) as file:
            for group in range(len(file.group_bytes)):
                if any(places for _, places in _found(file, group, keys=keys, names=READING_COLUMNS)):
                    for batch, places in _found(file, group, keys=keys, names=file.schema.names):
                        yield from batch.take(pa.array(places, pa.int64())).to_pylist()


def _found(
    file: GroupedFile, group: int, *, keys: Set[ReadingIds], names: tuple[str, ...] | list[str]
) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Batches of a row group, with the places of the rows that are looked for."""
    for batch in file.batches(group, names=names):
        columns = (batch.column(name).to_pylist() for name in READING_COLUMNS)
        yield batch, [place for place, key in enumerate(zip(*columns, strict=True)) if key in keys]


def _reading_key(row: Row) -> ReadingIds:
    document_id, question_id, sample = (row[name] for name in READING_COLUMNS)
    return document_id, question_id, sample
