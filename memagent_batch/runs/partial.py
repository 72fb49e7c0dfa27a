"""What a run has answered so far, while it lasts or after it stopped: read from its record and log, and marked as such.

It never stands among the tables: `partial/answers/` is beside them, and `partial/partial.json` names its files. A run
takes no notice of it, and nothing of the run is written or removed.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, TypedDict

import pyarrow as pa

from memagent_batch.domain.answers import Extraction
from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.files.claims import ABANDONED_AFTER, replace_shown
from memagent_batch.files.errors import output_errors
from memagent_batch.files.json_files import json_bytes, read_json
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes, read_parquet
from memagent_batch.inputs.document_index import CARRY_PREFIX
from memagent_batch.log.index import ReadingKey, TurnIndex, read_closings, read_outcomes, scan_log
from memagent_batch.log.question_list import CLOSING_FINGERPRINT, AskedQuestion, read_asked
from memagent_batch.log.rows import ClosedRow, OutcomeRow
from memagent_batch.runs.history import PLAN_FILE, RUNS_FOLDER
from memagent_batch.runs.manifest import RUN_FILE, read_manifest
from memagent_batch.runs.parts import PART_READINGS
from memagent_batch.runs.projection import Origin, PartDocument, answer_row, answers_table, carried_columns
from memagent_batch.runs.tables import AnswerRow

PARTIAL_FOLDER = "partial"
PARTIAL_FILE = "partial/partial.json"
_ANSWERS = f"{PARTIAL_FOLDER}/answers"
_STAMP = "%Y%m%dT%H%M%S"
INCOMPLETE = "memagent:incomplete"
"""Schema metadata of each file; its value says of which run, and when."""


class PartialRecord(TypedDict):
    """What `partial.json` says."""

    is_complete: bool
    """Never."""
    run_id: str
    made_at: str
    readings_asked: int
    readings_shown: int
    files: list[str]
    """Below the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _BegunRun:
    """A run that has not finished, as its location knows it."""

    output: Location
    plan: pa.Table
    questions: Sequence[AskedQuestion]
    index: TurnIndex
    origin: Origin
    asked: int

    def key(self, document: PartDocument, reading: Mapping[str, int]) -> ReadingKey:
        """Where the log keeps a reading."""
        question = self.questions[reading["question"]]
        return (document["document_hash"] or "", question["question_hash"], reading["sample"])

    def closing(self, reading: Mapping[str, int]) -> str | None:
        """The fingerprint of what is asked after the answer."""
        return self.questions[reading["question"]].get("closing_fingerprint")

    def file(self, document: PartDocument) -> str:
        """The last log file with an outcome of the document; empty where none has ended."""
        outcomes = (self.index.outcomes.get(self.key(document, reading)) for reading in document["readings"])
        return max((outcome.file for outcome in outcomes if outcome), default="")


def write_partial(output: Location) -> PartialRecord:
    """Writes the answers that a run has so far to `partial/`, in the place of those that stood there.

    Raises:
        OutputError: there is no run, it has finished, or it has not begun to read.
    """
    with output_errors(output.uri):
        run = _begun_run(output)
        made_at = datetime.now(UTC)
        mark = f"run {run.origin.run_id} at {made_at.isoformat()}"
        key, files, num_rows = uuid.uuid4().hex[:6], [], 0
        for number, table in enumerate(_tables(run)):
            name = f"{_ANSWERS}/{made_at:{_STAMP}}-{key}-part-{number:05d}.parquet"
            marked = table.replace_schema_metadata({**(table.schema.metadata or {}), INCOMPLETE: mark})
            (output / name).write_bytes(parquet_bytes(marked))
            files.append(name)
            num_rows += table.num_rows
        record: PartialRecord = {
            "is_complete": False,
            "run_id": run.origin.run_id,
            "made_at": made_at.isoformat(),
            "readings_asked": run.asked,
            "readings_shown": num_rows,
            "files": files,
        }
        before = replace_shown(output / PARTIAL_FILE, json_bytes(record))
        _remove_files(output, shown_before=json.loads(before)["files"] if before else [])
    return record


def _remove_files(output: Location, *, shown_before: Sequence[str]) -> None:
    """Removes files that were shown before, and those of a writer that was stopped a day ago or longer."""
    abandoned = f"{datetime.now(UTC) - ABANDONED_AFTER:{_STAMP}}"
    left = [path for path in (output / _ANSWERS).files() if path.rsplit("/", 1)[-1] < abandoned]
    output.delete_files([*{*((output / name).path for name in shown_before), *left}])


def _begun_run(output: Location) -> _BegunRun:
    record = read_json(output / RUN_FILE)
    if record is None:
        raise OutputError(f"output: there is no run at {output.uri} (no {RUN_FILE})")
    run_id, fingerprint = record["run_id"], record["reader_fingerprint"]
    manifest = read_manifest(output)
    if manifest is not None and manifest["run_id"] == run_id:
        raise OutputError(f"output: run {run_id} has finished; its answers are whole, in the table 'answers'")
    place = output / f"{RUNS_FOLDER}/{run_id}/{PLAN_FILE}"
    if not place.exists():
        raise OutputError(f"output: run {run_id} has not begun to read; try again in a while")
    questions: list[Any] = read_asked(output, run_id=run_id).to_pylist()
    closings = sorted({name for each in questions if (name := each.get(CLOSING_FINGERPRINT))})
    settings = record["settings"]
    return _BegunRun(
        output=output,
        plan=read_parquet(place),
        questions=questions,
        index=scan_log(output, reader_fingerprint=fingerprint, closings=closings),
        origin=Origin(
            run_id=run_id,
            reader_fingerprint=fingerprint,
            model=settings["model"],
            extraction=Extraction(settings["extraction"]),
        ),
        asked=record["asked"],
    )


def _tables(run: _BegunRun) -> Iterator[pa.Table]:
    """Rows of `ANSWERS`, by documents that ended at about the same time, so that a log file is read for one or two."""
    documents: list[PartDocument] = run.plan.select(
        ["document_id", "document_hash", "error", "error_type", "readings"]
    ).to_pylist()
    ended_in = [run.file(document) for document in documents]
    group: list[int] = []
    num_readings = 0
    for row in sorted(range(len(documents)), key=ended_in.__getitem__):
        if ended_in[row] or documents[row]["error"] is not None:
            group.append(row)
            num_readings += len(documents[row]["readings"])
        if num_readings >= PART_READINGS:
            yield _answers(run, group, documents=documents)
            group, num_readings = [], 0
    if group:
        yield _answers(run, group, documents=documents)


def _answers(run: _BegunRun, rows: Sequence[int], *, documents: Sequence[PartDocument]) -> pa.Table:
    """The answers of some documents, of the readings that have ended and are closed."""
    outcomes, closed = _held(run, [documents[row] for row in rows])
    answers: list[AnswerRow] = []
    of_rows: list[int] = []
    for row in rows:
        document = documents[row]
        for reading in document["readings"]:
            key, fingerprint = run.key(document, reading), run.closing(reading)
            outcome, closing = outcomes.get(key), closed.get(fingerprint or "", {}).get(key)
            is_open = fingerprint is not None and closing is None
            if document["error"] is None and (outcome is None or (is_open and outcome["status"] == Status.OK)):
                continue
            question, sample = run.questions[reading["question"]], reading["sample"]
            answers.append(answer_row(document, question, outcome, sample=sample, origin=run.origin, closed=closing))
            of_rows.append(row)
    carried = run.plan.take(pa.array(of_rows, pa.int64()))
    names = carried_columns(run.plan.schema)
    return answers_table(answers, carried={name: carried[CARRY_PREFIX + name].to_pylist() for name in names})


def _held(
    run: _BegunRun, documents: Sequence[PartDocument]
) -> tuple[Mapping[ReadingKey, OutcomeRow], Mapping[str, Mapping[ReadingKey, ClosedRow]]]:
    """How their readings ended, and what was asked after the answers, from the files that the index names."""
    readings = [(document, reading) for document in documents for reading in document["readings"]]
    keys = [run.key(*each) for each in readings]
    hashes = sorted({key[0] for key in keys})
    ended = (run.index.outcomes.get(key) for key in keys)
    files = sorted({outcome.file for outcome in ended if outcome})
    fingerprint = run.origin.reader_fingerprint
    outcomes = read_outcomes(run.output, files, reader_fingerprint=fingerprint, document_hashes=hashes)
    closings = chain.from_iterable((of.get(key) for key in keys) for of in run.index.closings.values())
    closed_in = sorted({closing.file for closing in closings if closing})
    names = list(run.index.closings)
    return outcomes, read_closings(run.output, closed_in, fingerprints=names, document_hashes=hashes)
