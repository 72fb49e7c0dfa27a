"""A second pass: the readings of another output that a run reads again, by a condition on the rows of its `answers`.

The readings are selected when the plan is made. A run that goes on where one was stopped reads the same ones, by the
plan that the stopped run left, whatever has become of the other output.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from memagent_batch.config.job import JobConfig
from memagent_batch.errors import OutputError
from memagent_batch.files.errors import output_errors, table_errors
from memagent_batch.files.json_files import read_json
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import read_parquet
from memagent_batch.inputs.where import columns_of, matching_rows, parse_where
from memagent_batch.log.question_list import read_asked
from memagent_batch.masking import shown
from memagent_batch.runs.history.history import PLAN_FILE, RUNS_FOLDER
from memagent_batch.runs.manifest import RUN_FILE, read_manifest, require_manifest
from memagent_batch.runs.output_place import canonical
from memagent_batch.runs.planning.plan import Again
from memagent_batch.runs.tables.table_files import read_table_columns
from memagent_batch.runs.tables.tables import ANSWERS_FOLDER

WHERE = "again_where"
"""The setting with the condition, for messages."""


def select_again(job: JobConfig, *, output: Location) -> Again | None:
    """The readings that a job reads again; None if it reads all that it asks.

    Raises:
        OutputError: the other output is this one, no run has finished there, or its tables can't be read.
        InputError: the condition does not fit its table.
    """
    if job.again_from is None or job.again_where is None:
        return None
    if canonical(job.again_from, job) == canonical(job.output, job):
        raise OutputError("again_from: it is the output itself; give the second pass an output of its own")
    asked = {"output": shown(job.again_from), "where": job.again_where}
    with output_errors(output.uri):
        begun = _begun(output, asked)
    if begun is not None:
        return begun
    source = Location(uri=job.again_from, storage_options=job.storage_options)
    with output_errors(source.uri):
        manifest = require_manifest(source)
    condition = parse_where(job.again_where, option=WHERE)
    pairs: list[tuple[str, str]] = []
    for name in manifest["files"][ANSWERS_FOLDER]:
        answers = read_table_columns(source / name, {"document_id", "question_id", *columns_of(condition)})
        found = answers.take(matching_rows(answers, condition, option=WHERE))
        pairs += zip(found["document_id"].to_pylist(), found["question_id"].to_pylist(), strict=True)
    return _again(pairs, {**asked, "run_id": manifest["run_id"]})


def _begun(output: Location, asked: Mapping[str, str]) -> Again | None:
    """What the last run of an output began to read again, for the same condition; None if it has finished, or read all.

    That run may itself have gone on where another was stopped, and have been stopped before it wrote its plan.
    """
    record = read_json(output / RUN_FILE) or {}
    begun = record.get("again")
    manifest = read_manifest(output)
    is_finished = manifest is not None and manifest["run_id"] == record.get("run_id")
    if begun is None or is_finished or any(begun[name] != value for name, value in asked.items()):
        return None
    for run_id in (record["run_id"], begun["plan_of"]):
        if run_id and (output / f"{RUNS_FOLDER}/{run_id}/{PLAN_FILE}").exists():
            return _again(_planned(output, run_id), {**begun, "plan_of": run_id})
    return None


def _planned(output: Location, run_id: str) -> Iterable[tuple[str, str]]:
    """Documents and questions in the plan of a run."""
    question_ids = read_asked(output, run_id=run_id)["question_id"].to_pylist()
    place = output / f"{RUNS_FOLDER}/{run_id}/{PLAN_FILE}"
    with table_errors(place.uri, remedy="restore it, or choose another output"):
        plan = read_parquet(place, columns=["document_id", "readings"]).to_pylist()
    for row in plan:
        yield from ((row["document_id"], question_ids[reading["question"]]) for reading in row["readings"])


def _again(pairs: Iterable[tuple[str, str]], record: Mapping[str, Any]) -> Again:
    questions: dict[str, set[str]] = defaultdict(set)
    for document_id, question_id in pairs:
        questions[document_id].add(question_id)
    return Again(
        record={
            "output": record["output"],
            "run_id": record["run_id"],
            "where": record["where"],
            "pairs": sum(map(len, questions.values())),
            "plan_of": record.get("plan_of"),
        },
        questions=dict(questions),
    )
