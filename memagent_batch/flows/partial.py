"""What a run has answered so far, while it lasts or after it stopped: read from its record and log, and marked as such.

It never stands among the tables, but in one file beside them, which the next call replaces. A run takes no notice of
it, and nothing of the run is written or removed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.config.job import TableFormat
from memagent_batch.domain.answers import Extraction
from memagent_batch.errors import OutputError
from memagent_batch.runs.history import PLAN_FILE, RUNS_FOLDER
from memagent_batch.runs.manifest import RUN_FILE, read_manifest, read_run_record
from memagent_batch.runs.parts import PART_READINGS
from memagent_batch.runs.projection import Projection, answers_table, carried_values, load_part_log, part_readings
from memagent_batch.runs.reading_state import Rows, rows_of, with_log_files
from memagent_batch.store.database import run_query
from memagent_batch.store.errors import output_errors
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import map_parquet
from memagent_batch.store.turn_log.index import LogIndex, scan_log
from memagent_batch.store.turn_log.question_list import asked_follow_ups, read_asked, with_asked

PARTIAL_FILE = "partial/answers.parquet"
_ENDED = """
select document, dense_rank() over (order by num_readings // $part_readings) - 1 as part from (
    select document, sum(len(readings)) over (order by list_max(outcome_files) nulls first, document) as num_readings
    from plan where len(outcome_files) > 0 or error is not null)
order by part
"""
INCOMPLETE = "memagent:incomplete"
"""Schema metadata of the file: the run, and when it was written."""


class PartialRecord(TypedDict):
    """What was written."""

    run_id: str
    made_at: str
    readings_asked: int
    readings_shown: int
    file: str
    """Below the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _BegunRun:
    """A run that has not finished, as its location knows it."""

    plan: pa.Table
    """`RUN_PLAN`, as of its begin, with the log files that hold the ends of each document's readings."""
    questions: pa.Table
    projection: Projection
    asked: int


def write_partial(output: Location) -> PartialRecord:
    """Writes the answers that a run has so far, in place of those that stood there.

    Raises:
        OutputError: there is no run, it has finished, or it has not begun to read.
    """
    with output_errors(output.uri), NamedTemporaryFile(suffix=".parquet") as file:
        run = _begun_run(output)
        made_at, tables, num_rows = datetime.now(UTC).isoformat(), _tables(run), 0
        first = next(tables)
        mark = {**(first.schema.metadata or {}), INCOMPLETE: f"run {run.projection.run_id} at {made_at}"}
        with pq.ParquetWriter(file, first.schema.with_metadata(mark), compression="zstd") as writer:
            for table in chain([first], tables):
                writer.write_table(table.replace_schema_metadata(mark))
                num_rows += table.num_rows
        file.flush()
        (output / PARTIAL_FILE).write_file(Path(file.name))
    return {
        "run_id": run.projection.run_id,
        "made_at": made_at,
        "readings_asked": run.asked,
        "readings_shown": num_rows,
        "file": PARTIAL_FILE,
    }


def _begun_run(output: Location) -> _BegunRun:
    record = read_run_record(output)
    if record is None:
        raise OutputError(f"output: there is no run at {output.uri} (no {RUN_FILE})")
    run_id, fingerprint = record["run_id"], record["fingerprint"]
    manifest = read_manifest(output)
    if manifest is not None and manifest["run_id"] == run_id:
        raise OutputError(f"output: run {run_id} has finished; its answers are whole, in the table 'answers'")
    place = output / f"{RUNS_FOLDER}/{run_id}/{PLAN_FILE}"
    if not place.exists():
        raise OutputError(f"output: run {run_id} has not begun to read; try again in a while")
    questions = read_asked(output, run_id=run_id)
    follow_up_readings = asked_follow_ups(questions)
    index = scan_log(output, fingerprint=fingerprint, follow_up_readings=follow_up_readings)
    projection = Projection(
        output=output,
        run_id=run_id,
        fingerprint=fingerprint,
        model=record["settings"]["model"],
        extraction=Extraction(record["settings"]["extraction"]),
        table_format=TableFormat.PARQUET,
        first_memory="",
        keep_word="",
        follow_up_readings=dict.fromkeys(follow_up_readings, ()),
    )
    plan = with_log_files(map_parquet(place), questions, LogIndex(outcomes=index.outcomes, closed=index.closed))
    return _BegunRun(plan=plan, questions=questions, projection=projection, asked=record["asked"])


def _tables(run: _BegunRun) -> Iterator[pa.Table]:
    """Rows of `ANSWERS`, by documents that ended at about the same time, so that a log file is read for one or two.

    At least one table, which may be empty.
    """
    plan = run.plan.select(["outcome_files", "error", "readings"])
    plan = plan.append_column("document", pa.array(np.arange(plan.num_rows)))
    ended = run_query(_ENDED, {"plan": plan}, part_readings=PART_READINGS)
    for part in range(ended["part"][-1].as_py() + 1 if ended.num_rows else 1):
        yield _answers_so_far(run, ended["document"].filter(pc.equal(ended["part"], part)).to_numpy())


def _answers_so_far(run: _BegunRun, rows: Rows) -> pa.Table:
    """The answers of some documents, of the readings that have ended and are closed."""
    documents = rows_of(run.plan, np.sort(rows))
    part = with_asked(documents, run.questions)
    held = load_part_log(part, projection=run.projection)
    answered = [found for each in part_readings(part) if (found := held.reading(*each))]
    return answers_table([each.answer for each in answered], carried=carried_values(part, answered))
