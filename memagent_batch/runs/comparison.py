"""Compares the answers of two finished runs, of one output or of two, by the table files that they don't share."""

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from memagent_batch.documents.document_index import is_there
from memagent_batch.documents.questions import type_fields, value_types
from memagent_batch.errors import OutputError
from memagent_batch.runs.history import PastRun
from memagent_batch.runs.tables import ANSWERS, ANSWERS_FOLDER, DocumentId, QuestionId, table_dataset
from memagent_batch.store.columns import Column, arrow_schema
from memagent_batch.store.database import BATCH_ROWS, open_database
from memagent_batch.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT
from memagent_batch.store.turn_log.rows import ENDED_STATUS, SampleNumber, TypedJson, TypedStatus

_SIDES = ("before", "after")
_READING = ("document_id", "question_id", "sample")
_SHOWN = ("question", "status", "answer", "value", "value_status", "memory", "error_message", "run_id")
"""Columns of `answers` that a difference shows of both runs."""
_COMPARED = ("status", "answer", "value", "value_status")
_READINGS = """
select rows.* replace (if(error is null and status <> 'not_read', rows.run_id, null) as run_id),
       follow_up_fingerprint, value_type, place
from rows_{side} rows join (
    select asked.*, document_id, reading.sample as sample, error, place
    from (select document_id, error, unnest(readings) as reading, generate_subscripts(readings, 1) as place
          from plan_{side})
    join questions_{side} asked on asked.number = reading.question)
using (document_id, question_id, sample)
"""
_WHY_BOTH = """
concat_ws('|', case when before.document_hash is distinct from after.document_hash then 'document' end,
    case when before.question_hash <> after.question_hash then 'question' end,
    case when not $same_reader then 'reader' end,
    case when not $same_extraction then 'extraction' end,
    case when before.value_type <> after.value_type then 'type' end,
    case when before.follow_up_fingerprint is distinct from after.follow_up_fingerprint and $same_reader
         and $same_extraction and before.value_type = after.value_type then 'follow_ups' end)
"""
_WHY_ONE = """
case when plan_{other}.is_there and case when $is_second_pass_{other} then is_listed_{other}
          else $is_sample_{other} and len(plan_{other}.readings) = 0 end then 'limit'
     else concat_ws('|', case when plan_{other}.is_there is distinct from true then 'document' end,
         case when not if(plan_{other}.is_there is true, asked_{other}.document_id is not null, is_listed_{other})
              then 'question' end) end
"""
_DIFFERENCES = f"""
with listed as (
    select *, question_id in (select question_id from questions_before) as is_listed_before,
           question_id in (select question_id from questions_after) as is_listed_after
    from (select question_id from questions_before union select question_id from questions_after)),
pairs as (
    select document_id, question_id, sample, {{shown}},
           case when before.place is null then 'added' when after.place is null then 'removed' else 'changed' end
               as change,
           case when before.place is null then coalesce(nullif({_WHY_ONE.format(other="before")}, ''), 'sample')
                when after.place is null then coalesce(nullif({_WHY_ONE.format(other="after")}, ''), 'sample')
                else coalesce(nullif({_WHY_BOTH}, ''), 'same inputs') end as why,
           plan_after.document as document_after, plan_before.document as document_before,
           after.place as place_after, before.place as place_before
    from readings_before before full join readings_after after using (document_id, question_id, sample)
    join listed using (question_id)
    left join plan_before using (document_id) left join plan_after using (document_id)
    left join asked_before using (document_id, question_id) left join asked_after using (document_id, question_id))
select * replace (string_split(why, '|') as why)
from pairs where change <> 'changed' or contains(why, 'type') or {{differs}}
order by document_after is null, coalesce(document_after, document_before),
         place_after is null, coalesce(place_after, place_before)
"""


_Question = Annotated[str | None, Column("text of the question")]
_Status = Annotated[str | None, ENDED_STATUS]
_Answer = Annotated[str | None, Column("the answer taken out of the response")]
_Memory = Annotated[str | None, Column("memory that the answer was given from")]
_Message = Annotated[str | None, Column("where and why it failed")]
_ReadBy = Annotated[str | None, Column("the run that read it; null if none could or did")]


class AnswerChange(StrEnum):
    """How a row of `answers` differs between two runs."""

    ADDED = "added"
    """Only the later run asked for it."""
    CHANGED = "changed"
    """Both did, and answer, value, type or status differ."""
    REMOVED = "removed"
    """Only the earlier run asked for it."""


class Cause(StrEnum):
    """What differs between two readings; what is new or gone if there is only one."""

    DOCUMENT = "document"
    """The document's text; the document itself."""
    QUESTION = "question"
    LIMIT = "limit"
    """The limit, or the condition of a second pass, which leaves it out of one of the runs."""
    SAMPLE = "sample"
    READER = "reader"
    """The fingerprint: model, prompts, policy, sampling."""
    EXTRACTION = "extraction"
    """How answers are taken out of responses."""
    TYPE = "type"
    FOLLOW_UPS = "follow_ups"
    """What is asked after the answer, of the same reader and type: its budgets and texts, evidence, support."""
    SAME_INPUTS = "same inputs"
    """None of these: a reading that failed or was not read was read again, or the engine gave another answer."""


class DifferenceRow(TypedDict):
    """One row for each reading with another answer, value or status in one of two runs, or that only one asked for.

    What a run has to say of a reading is null if it did not ask for it.
    """

    document_id: DocumentId
    question_id: QuestionId
    sample: SampleNumber
    change: Annotated[str, Column("what became of the row of `answers`: " + ", ".join(AnswerChange))]
    why: Annotated[list[str], Column("what is new, other or gone: " + ", ".join(Cause))]
    question_before: _Question
    question_after: _Question
    status_before: _Status
    status_after: _Status
    answer_before: _Answer
    answer_after: _Answer
    value_before: TypedJson
    value_after: TypedJson
    value_status_before: TypedStatus
    value_status_after: TypedStatus
    memory_before: _Memory
    memory_after: _Memory
    error_message_before: _Message
    error_message_after: _Message
    run_id_before: _ReadBy
    run_id_after: _ReadBy


DIFFERENCES = arrow_schema(DifferenceRow)


def compare_runs(before: PastRun, after: PastRun) -> Iterator[pa.Table]:
    """Streams the rows whose answer, value, status, type or presence differs, as tables of `DIFFERENCES`.

    Raises:
        OutputError: table files of a run are gone, or can't be read.
    """
    runs = dict(zip(_SIDES, (before, after), strict=True))
    tables: dict[str, pa.Table | ds.Dataset] = {}
    for (side, run), other in zip(runs.items(), (after, before), strict=True):
        rows = _rows(run, other=other)
        tables |= {f"rows_{side}": rows, f"plan_{side}": _plan(run), f"questions_{side}": _questions(run)}
    shown = ", ".join(f"{side}.{name} as {name}_{side}" for name in _SHOWN for side in _SIDES)
    differs = " or ".join(f"{name}_before is distinct from {name}_after" for name in _COMPARED)
    with open_database(tables) as database:
        for side in runs:
            database.execute(f"create temp view readings_{side} as {_READINGS.format(side=side)}")
            asked = f"select distinct document_id, question_id from rows_{side} where sample = 0"
            database.execute(f"create temp view asked_{side} as {asked}")
        found = database.sql(
            _DIFFERENCES.format(shown=shown, differs=differs), params=_conditions(before, after)
        ).to_arrow_reader(BATCH_ROWS)
        for batch in found:
            if batch.num_rows:
                yield pa.Table.from_batches([batch]).select(DIFFERENCES.names).cast(DIFFERENCES)


def changed_documents(before: PastRun, after: PastRun) -> Iterator[str]:
    """The documents that both runs have, with another text."""
    plans = {side: run.plan.select(["document_id", "document_hash"]) for side, run in (("old", before), ("new", after))}
    found = "select document_id from old join new using (document_id) where old.document_hash <> new.document_hash"
    with open_database(plans) as database:
        for batch in database.sql(f"{found} order by document_id").to_arrow_reader(BATCH_ROWS):
            yield from batch["document_id"].to_pylist()


def _rows(run: PastRun, *, other: PastRun) -> pa.Table | ds.Dataset:
    """Rows of `answers` of a run in files that another run does not name: what it names too is the same in both."""
    is_one_output = run.output.uri == other.output.uri
    shared = {*other.manifest["files"][ANSWERS_FOLDER]} if is_one_output else set()
    places = [run.output / name for name in run.manifest["files"][ANSWERS_FOLDER] if name not in shared]
    there = {*(run.output / ANSWERS_FOLDER).files()} if places else set()
    if gone := [place for place in places if place.path not in there]:
        raise OutputError(
            f"{gone[0]} of run {run.run_id} is gone, and {len(gone) - 1} more of its table files; replaced files stay "
            "for record.keep_nights runs: compare later runs, or raise it for the next ones"
        )
    columns = [*_READING, *_SHOWN, "document_hash", "question_hash"]
    if not places:
        return ANSWERS.empty_table().select(list(dict.fromkeys(columns)))
    return table_dataset(places)


def _plan(run: PastRun) -> pa.Table:
    plan = run.plan.select(["document_id", "error", "readings"]).append_column("is_there", is_there(run.plan))
    return plan.append_column("document", pa.array(np.arange(plan.num_rows)))


def _questions(run: PastRun) -> pa.Table:
    questions = run.questions.select(["question_id"])
    names, nulls = run.questions.schema.names, pa.nulls(questions.num_rows, pa.string())
    closing = run.questions[FOLLOW_UP_FINGERPRINT] if FOLLOW_UP_FINGERPRINT in names else nulls
    types = [json.dumps(type_fields(each)) for each in value_types(run.questions)]
    questions = questions.append_column(FOLLOW_UP_FINGERPRINT, closing)
    questions = questions.append_column("value_type", pa.array(types, pa.string()))
    return questions.append_column("number", pa.array(np.arange(questions.num_rows)))


def _conditions(before: PastRun, after: PastRun) -> dict[str, bool]:
    manifests = dict(zip(_SIDES, (before.manifest, after.manifest), strict=True))
    earlier, later = manifests.values()
    return {
        "same_reader": earlier["fingerprint"] == later["fingerprint"],
        "same_extraction": earlier["settings"]["extraction"] == later["settings"]["extraction"],
        **{f"is_sample_{side}": manifest.get("sample") is not None for side, manifest in manifests.items()},
        **{f"is_second_pass_{side}": manifest.get("again") is not None for side, manifest in manifests.items()},
    }
