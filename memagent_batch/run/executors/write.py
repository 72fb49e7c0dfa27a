"""CPU tasks after the engine: parts of the plan in, files of the tables out."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.data.store.columns import arrow_schema
from memagent_batch.data.store.delta import OutputTable, RunNumber, TableFile, write_table_files
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.location import Location
from memagent_batch.run.history import require_newest
from memagent_batch.run.parts import PART_COLUMN, CopiedPart, detach_not_read
from memagent_batch.run.projection import Projection, project
from memagent_batch.run.tables import ANSWERS_TABLE, EVIDENCE_TABLE, MEMORIES_TABLE, RESULTS_TABLE


class WrittenFile(TypedDict):
    """A file that a task has written, or a reading that it misses."""

    table: str
    path: str
    num_bytes: int
    num_rows: int
    partition: str
    """Values of the partition columns, as JSON."""
    missing: str | None
    """Of the table "", which has no file: a reading that was asked for, and that the log has no outcome of."""


WRITTEN = arrow_schema(WrittenFile)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """What every writing task of a run knows."""

    output: Location
    run: RunNumber
    schemas: Mapping[str, pa.Schema]
    """Of the tables that the run has."""
    partition_by: Sequence[str] = ()
    """Partition columns of `answers` and `results`."""

    def write(self, rows: Mapping[str, pa.Table], *, stem: str) -> Iterator[WrittenFile]:
        """Writes rows of the tables, in the order of their documents.

        Raises:
            SupersededError: a newer run has begun.
        """
        require_newest(self.output, self.run)
        for table, of_table in rows.items():
            order = pc.sort_indices(of_table, [("document_id", "ascending")])  # stable
            columns = [name for name in self.partition_by if name in of_table.schema.names]
            folder = OutputTable(output=self.output, name=table).place
            for file in write_table_files(folder, of_table.take(order), stem=stem, partition_by=columns):
                yield written_file(table, file)


def written_file(table: str, file: TableFile) -> WrittenFile:
    """A file as a task reports it."""
    return {
        "table": table,
        "path": file.path,
        "num_bytes": file.num_bytes,
        "num_rows": file.num_rows,
        "partition": json.dumps(dict(file.partition)),
        "missing": None,
    }


def table_file(written: WrittenFile) -> TableFile:
    """A file that a task reports."""
    return TableFile(
        path=written["path"],
        num_bytes=written["num_bytes"],
        num_rows=written["num_rows"],
        partition=json.loads(written["partition"]),
    )


def write_part(part: pa.Table, *, projection: Projection, task: WriteTask) -> pa.Table:
    """Ray Data UDF: one part of the plan in, its rows projected and written, rows of `WRITTEN` out.

    Raises:
        SupersededError: a newer run has begun.
    """
    planned, not_read = detach_not_read(part)
    tables = project(planned, projection=projection, not_read=not_read)
    rows = {
        ANSWERS_TABLE: tables.answers,
        MEMORIES_TABLE: tables.memories,
        EVIDENCE_TABLE: tables.evidence,
        RESULTS_TABLE: tables.results,
    }
    stem = f"part-{part[PART_COLUMN][0].as_py():05d}-{task.run.run_id}"
    reports = list(task.write({name: table for name, table in rows.items() if table is not None}, stem=stem))
    nothing = written_file("", TableFile(path="", num_bytes=0, num_rows=0))
    reports += [{**nothing, "missing": reading} for reading in tables.missing]
    return pa.Table.from_pylist(reports, schema=WRITTEN)


def copy_part(part: CopiedPart, *, task: WriteTask) -> pa.Table:
    """Ray Data UDF: files that are replaced in, those of their rows that stay written again, rows of `WRITTEN` out.

    Raises:
        OutputError: a file is gone or damaged, or a column has another type by now.
        SupersededError: a newer run has begun.
    """
    dropped = pa.array(part.dropped, pa.string())
    rows = {}
    for table, files in part.files.items():
        read = [_read(task.output / table, file, schema=task.schemas[table]) for file in files]
        if read:
            of_table = pa.concat_tables(read)
            rows[table] = of_table.filter(pc.invert(pc.is_in(of_table["document_id"], value_set=dropped)))
    stem = f"copy-{part.number:05d}-{task.run.run_id}"
    return pa.Table.from_pylist(list(task.write(rows, stem=stem)), schema=WRITTEN)


def _read(folder: Location, file: TableFile, *, schema: pa.Schema) -> pa.Table:
    """The rows of a file with the columns of a schema: null where the file has none of this name."""
    place = folder / file.path
    with table_errors(place.uri, remedy="restore the file, or choose another output"):
        rows = pq.read_table(pa.BufferReader(place.read_bytes()), use_threads=False)
        columns = []
        for field in schema:
            if field.name in file.partition:
                value = pa.scalar(file.partition[field.name], pa.string()).cast(field.type)
                columns.append(pa.repeat(value, rows.num_rows))
            elif field.name in rows.schema.names:
                columns.append(rows[field.name].cast(field.type))
            else:
                columns.append(pa.nulls(rows.num_rows, field.type))
        return pa.table(columns, schema=schema)
