"""Compares the answers of two finished runs, from their records and logs; of one output or of two."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.documents.converted import SOURCE_UNREAD
from memagent_batch.documents.document_index import CARRY_PREFIX, is_there
from memagent_batch.documents.questions import type_fields, value_types
from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.follow_ups.values import ValueStatus, stated
from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.runs.history import PastRun
from memagent_batch.runs.tables import DocumentId, QuestionId
from memagent_batch.store.columns import Column, arrow_schema
from memagent_batch.store.database import open_database
from memagent_batch.store.turn_log.index import CurrentOutcome, ReadingKey, counted_rows, read_follow_ups, read_outcomes
from memagent_batch.store.turn_log.keys import FOLLOW_UPS_FOLDER, LOG_KEYS, OUTCOMES_FOLDER, read_keys
from memagent_batch.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT, asked_follow_ups
from memagent_batch.store.turn_log.rows import (
    ENDED_STATUS,
    FollowUpRow,
    OutcomeRow,
    SampleNumber,
    TypedJson,
    TypedStatus,
)

if TYPE_CHECKING:
    import duckdb

BATCH_READINGS = 10_000
"""Most readings whose texts are held at once, of each run."""

_SIDES = ("before", "after")
_READINGS = """
select document_id, question_id, reading.sample as sample, document_hash, question_hash, asked.question,
       reading.run_id as run_id, error, unread, follow_up_fingerprint, value_type, place
from (select * exclude (readings), unnest(readings) as reading, generate_subscripts(readings, 1) as place
      from plan_{side})
join questions_{side} asked on asked.number = reading.question
"""
_SIDE = """
case when {side}.place is not null then struct_pack(
    document_hash := {side}.document_hash, question_hash := {side}.question_hash, sample := sample,
    question := {side}.question, run_id := {side}.run_id, error := {side}.error, unread := {side}.unread,
    follow_up_fingerprint := {side}.follow_up_fingerprint) end
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
_SAME_RECORD = " and ".join(
    f"before.{name} is not distinct from after.{name}"
    for name in (
        "document_hash",
        "question_hash",
        "question",
        "value_type",
        "follow_up_fingerprint",
        "run_id",
        "error",
        "unread",
    )
)
_PAIRS = f"""
with listed as (
    select *, question_id in (select question_id from questions_before) as is_listed_before,
           question_id in (select question_id from questions_after) as is_listed_after
    from (select question_id from questions_before union select question_id from questions_after))
select document_id, question_id, sample, {_SIDE.format(side="before")} as before, {_SIDE.format(side="after")} as after,
       case when before.place is null then coalesce(nullif({_WHY_ONE.format(other="before")}, ''), 'sample')
            when after.place is null then coalesce(nullif({_WHY_ONE.format(other="after")}, ''), 'sample')
            else coalesce(nullif({_WHY_BOTH}, ''), 'same inputs') end as why,
       row_number() over (order by plan_after.document is null, coalesce(plan_after.document, plan_before.document),
                          after.place is null, coalesce(after.place, before.place)) as number
from readings_before before full join readings_after after using (document_id, question_id, sample)
join listed using (question_id)
left join plan_before using (document_id) left join plan_after using (document_id)
left join asked_before using (document_id, question_id) left join asked_after using (document_id, question_id)
where not ($same_log and $same_reader and $same_extraction and before.place is not null and after.place is not null
           and {_SAME_RECORD} and coalesce(plan_after.document_hash not in (select document_hash from touched), true))
"""
_FOUND = """
select document_id, pairs.question_id, pairs.sample, string_split(why, '|') as why, {columns}
from pairs {joins} order by number
"""
_COLUMNS = "{side}, ended_{side}.files as files_{side}, closed_{side}.file as closed_file_{side}"
_OUTCOMES = """
left join (select document_hash, question_hash, sample, run_id, list(distinct file) as files
           from outcomes_{side} group by all) ended_{side}
    on ended_{side}.document_hash = pairs.{side}.document_hash
    and ended_{side}.question_hash = pairs.{side}.question_hash
    and ended_{side}.sample = pairs.sample and ended_{side}.run_id = pairs.{side}.run_id
left join closed_{side}
    on closed_{side}.document_hash = pairs.{side}.document_hash
    and closed_{side}.question_hash = pairs.{side}.question_hash
    and closed_{side}.sample = pairs.sample and closed_{side}.fingerprint = pairs.{side}.follow_up_fingerprint
"""


_Question = Annotated[str | None, Column("text of the question")]
_Status = Annotated[str | None, ENDED_STATUS]
_Answer = Annotated[str | None, Column("the answer taken out of the response")]
_Memory = Annotated[str | None, Column("memory that the answer was given from")]
_Message = Annotated[str | None, Column("where and why it failed")]
_ReadBy = Annotated[str | None, Column("the run that read it; null where none could or did")]


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
    """The question's text; the question itself."""
    LIMIT = "limit"
    """The limit, or the condition of a second pass, which leaves it out of one of the runs."""
    SAMPLE = "sample"
    """The number of samples."""
    READER = "reader"
    """The fingerprint: model, prompts, policy, sampling."""
    EXTRACTION = "extraction"
    """How answers are taken out of responses."""
    TYPE = "type"
    """The type that the question asks for."""
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


class _Reading(TypedDict):
    """A reading in the plan of one run, with the log files that hold its answer."""

    document_hash: str | None
    """SHA-256 of the document's text; None where it can't be read."""
    question_hash: str
    question: str
    sample: int
    run_id: str | None
    """The run that read it; None where the document can't be read, or the reading was not read."""
    error: str | None
    """Why the document can't be read."""
    unread: str | None
    """What of its source was not read."""
    follow_up_fingerprint: str | None
    """What is asked after the answer; depends on reader, extraction and type."""
    outcome_files: list[str] | None
    closed_file: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _GivenAnswer:
    """What `answers` shows of a reading in one run; empty where the run did not ask for it."""

    question: str | None = None
    status: str | None = None
    answer: str | None = None
    memory: str | None = None
    value: str | None = None
    value_status: str | None = None
    error_message: str | None = None
    run_id: str | None = None

    @property
    def compared(self) -> tuple[str | None, ...]:
        """What is compared with another run's."""
        return self.status, self.answer, self.value_status, self.value

    def columns(self, side: str) -> dict[str, str | None]:
        """Its columns of `DIFFERENCES`."""
        return {f"{each.name}_{side}": getattr(self, each.name) for each in fields(self)}


def compare_runs(before: PastRun, after: PastRun) -> Iterator[pa.Table]:
    """Streams the rows whose answer, value, status, type or presence differs, as tables of `DIFFERENCES`.

    What both runs have from the same rows of one log is passed over without reading it.

    Raises:
        OutputError: the log no longer holds what a run read, or can't be read.
    """
    runs = dict(zip(_SIDES, (before, after), strict=True))
    tables = {"touched": _closed_between(before, after)}
    for side, run in runs.items():
        tables |= {f"plan_{side}": _plan(run), f"questions_{side}": _questions(run)}
    with open_database(tables) as database:
        for side in runs:
            database.execute(f"create temp view readings_{side} as {_READINGS.format(side=side)}")
            asked = f"select distinct document_id, question_id from readings_{side} where sample = 0"
            database.execute(f"create temp view asked_{side} as {asked}")
        database.execute(f"create temp table pairs as {_PAIRS}", _conditions(before, after))
        for side, run in runs.items():
            _register_log(database, run, side=side)
        files = (
            f"{side}, ended_{side}.files as files_{side}, closed_{side}.file as closed_file_{side}" for side in runs
        )
        joins = " ".join(_OUTCOMES.format(side=side) for side in runs)
        found = database.sql(_FOUND.format(columns=", ".join(files), joins=joins))
        for batch in found.to_arrow_reader(BATCH_READINGS):
            if differing := list(_differences(batch.to_pylist(), runs)):
                yield pa.Table.from_pylist(differing, schema=DIFFERENCES)


def _plan(run: PastRun) -> pa.Table:
    unread = CARRY_PREFIX + SOURCE_UNREAD
    plan = run.plan.select(["document_id", "document_hash", "error", "readings"])
    has_sources = unread in run.plan.schema.names
    plan = plan.append_column("unread", run.plan[unread] if has_sources else pa.nulls(plan.num_rows, pa.string()))
    plan = plan.append_column("is_there", is_there(run.plan))
    return plan.append_column("document", pa.array(np.arange(plan.num_rows)))


def _questions(run: PastRun) -> pa.Table:
    questions = run.questions.select(["question_id", "question", "question_hash"])
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
        "same_log": _is_one_log(before, after),
        "same_reader": earlier["fingerprint"] == later["fingerprint"],
        "same_extraction": earlier["settings"]["extraction"] == later["settings"]["extraction"],
        **{f"is_sample_{side}": "sample" in manifest for side, manifest in manifests.items()},
        **{f"is_second_pass_{side}": "again" in manifest for side, manifest in manifests.items()},
    }


def _is_one_log(before: PastRun, after: PastRun) -> bool:
    return before.output.uri == after.output.uri


def _closed_between(before: PastRun, after: PastRun) -> pa.Table:
    """Hashes of documents of one log whose values may differ though nothing else does: follow-up questions failed
    before.
    """
    earlier, later = sorted((before, after), key=lambda run: run.run_id)
    fingerprints = asked_follow_ups(later.questions) if _is_one_log(before, after) else []
    closed = _closed_keys(later, fingerprints)
    return closed.filter(pc.greater(closed["run_id"], earlier.run_id)).select(["document_hash"])


def _closed_keys(run: PastRun, fingerprints: Collection[str]) -> pa.Table:
    """Keys of what runs up to this one closed."""
    if not fingerprints:
        return LOG_KEYS.empty_table()
    keys = read_keys(run.output, fingerprints=fingerprints, folders=[FOLLOW_UPS_FOLDER])
    return keys.filter(pc.less_equal(keys["run_id"], run.run_id))


def _register_log(database: "duckdb.DuckDBPyConnection", run: PastRun, *, side: str) -> None:
    """Adds the keys of the answers in the table `pairs`: `outcomes_before`, `closed_before`, or those of `after`."""
    sql = f"select distinct {side}.run_id, {side}.follow_up_fingerprint from pairs where {side}.run_id is not null"
    found = database.sql(sql).to_arrow_table()
    run_ids, fingerprints = (pc.unique(column).drop_null().to_pylist() for column in found.columns)
    reader = run.manifest["fingerprint"]
    keys = read_keys(run.output, fingerprints=[reader], folders=[OUTCOMES_FOLDER], begins=run_ids)
    database.register(f"outcomes_{side}", keys)
    database.register(f"closed_{side}", counted_rows(_closed_keys(run, fingerprints)))


def _differences(rows: Sequence[dict[str, Any]], runs: Mapping[str, PastRun]) -> Iterator[dict[str, Any]]:
    """The rows of `DIFFERENCES` among pairs of readings."""
    for row in rows:
        for side in _SIDES:
            files = {"outcome_files": row.pop(f"files_{side}"), "closed_file": row.pop(f"closed_file_{side}")}
            row[side] = row[side] and {**row[side], **files}
    given = [_answers(run, [row[side] for row in rows]) for side, run in runs.items()]
    for row, earlier, later in zip(rows, *given, strict=True):
        before, after = row.pop("before"), row.pop("after")
        change = AnswerChange.CHANGED if after else AnswerChange.REMOVED
        if Cause.TYPE in row["why"] or earlier.compared != later.compared:
            change = change if before else AnswerChange.ADDED
            yield {**row, "change": change, **earlier.columns("before"), **later.columns("after")}


def _answers(run: PastRun, readings: Sequence[_Reading | None]) -> Iterator[_GivenAnswer]:
    """What a run has to say of each reading."""
    read = [reading for reading in readings if reading and reading["run_id"]]
    outcomes, closed = _read_outcomes(run, read), _read_closed(run, read)
    for reading in readings:
        if reading is None:
            yield _GivenAnswer()
        elif reading["run_id"] is None:
            status = Status.NOT_READ if reading["error"] is None else Status.FAILED
            value = ValueStatus.NOT_READ.value if reading["error"] and reading["unread"] else None
            yield _GivenAnswer(
                question=reading["question"], status=status, value_status=value, error_message=reading["error"]
            )
        else:
            outcome = outcomes.get((_key(reading), reading["run_id"]))
            if outcome is None:
                raise OutputError(
                    f"the log of {run.output.uri} no longer holds what run {reading['run_id']} read (document hash "
                    f"{_key(reading)[0][:12]}, question {reading['question']!r}); restore its files in log/outcomes"
                )
            of_kind = closed.get(reading["follow_up_fingerprint"] or "", {})
            yield _answer(run, reading, outcome, of_kind.get(_key(reading)))


def _key(reading: _Reading) -> ReadingKey:
    return (reading["document_hash"] or "", reading["question_hash"], reading["sample"])


def _read_outcomes(run: PastRun, readings: Sequence[_Reading]) -> dict[tuple[ReadingKey, str], CurrentOutcome]:
    by_run: dict[str, list[_Reading]] = defaultdict(list)
    for reading in readings:
        by_run[str(reading["run_id"])].append(reading)
    found: dict[tuple[ReadingKey, str], CurrentOutcome] = {}
    for run_id, of_run in by_run.items():
        rows = read_outcomes(
            run.output,
            sorted({file for reading in of_run for file in reading["outcome_files"] or ()}),
            fingerprint=run.manifest["fingerprint"],
            document_hashes=sorted({_key(reading)[0] for reading in of_run}),
        )
        found.update({(key, run_id): row for key, row in rows.items()})
    return found


def _read_closed(run: PastRun, readings: Sequence[_Reading]) -> Mapping[str, Mapping[ReadingKey, FollowUpRow]]:
    """What closed the readings, by fingerprint and key, where the log has it."""
    closed = [reading for reading in readings if reading["closed_file"]]
    return read_follow_ups(
        run.output,
        sorted({str(reading["closed_file"]) for reading in closed}),
        fingerprints=sorted({str(reading["follow_up_fingerprint"]) for reading in closed}),
        document_hashes=sorted({_key(reading)[0] for reading in closed}),
        columns=("value", "value_status"),
    )


def _answer(run: PastRun, reading: _Reading, outcome: OutcomeRow, closed: FollowUpRow | None) -> _GivenAnswer:
    is_ok = outcome["status"] == Status.OK
    extraction = Extraction(run.manifest["settings"]["extraction"])
    return _GivenAnswer(
        question=reading["question"],
        status=outcome["status"],
        answer=extract_answer(outcome["response"] or "", extraction=extraction) if is_ok else None,
        memory=outcome["memory"],
        value=closed["value"] if closed and is_ok else None,
        value_status=stated(closed["value_status"], unread=reading["unread"]) if closed and is_ok else None,
        error_message=outcome["error_message"],
        run_id=reading["run_id"],
    )
