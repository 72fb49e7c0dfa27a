"""Compares the answers of two finished runs, of one output or of two, by the files that they don't share."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING, Annotated, TypedDict

import numpy as np
import pyarrow as pa

from memagent_batch.data.documents.questions import type_fields, value_types
from memagent_batch.data.store.columns import Column, arrow_schema
from memagent_batch.data.store.database import BATCH_ROWS, on_disk, open_database
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT
from memagent_batch.data.store.turn_log.rows import ENDED_STATUS, SampleNumber, TypedJson, TypedStatus
from memagent_batch.run.endpoint import changed_fields, read_endpoints
from memagent_batch.run.history import GONE_REMEDY, PastRun
from memagent_batch.run.tables import ANSWERS_TABLE, DocumentId, QuestionId

if TYPE_CHECKING:
    import duckdb

_SIDES = ("before", "after")
_READING = ("document_id", "question_id", "sample")
_SHOWN = {
    **{name: f"{{side}}.{name}" for name in ("question", "status", "answer", "value", "value_status", "memory")},
    "error_message": "{side}.error_message",
    "run_id": "if({side}.status = 'not_read' or {side}.document_hash is null, null, {side}.read_run_id)",
}
"""What a difference shows of both runs, from columns of `answers`."""
_COMPARED = ("status", "answer", "value", "value_status")
_LISTED = """
select question_id, any_value(follow_up_fingerprint) as follow_up_fingerprint, any_value(value_type) as value_type,
       min(number) as place
from questions_{side} group by question_id
"""
_WHY_BOTH = """
concat_ws('|', case when before.document_hash is distinct from after.document_hash then 'document' end,
    case when before.question_hash <> after.question_hash then 'question' end,
    case when before.fingerprint <> after.fingerprint then 'reader' end,
    case when other_endpoints.endpoint_before is not null and before.fingerprint = after.fingerprint
         then 'endpoint' end,
    case when not $same_extraction then 'extraction' end,
    case when listed_before.value_type <> listed_after.value_type then 'type' end,
    case when listed_before.follow_up_fingerprint is distinct from listed_after.follow_up_fingerprint
         and before.fingerprint = after.fingerprint and $same_extraction
         and listed_before.value_type = listed_after.value_type then 'follow_ups' end)
"""
_WHY_ONE = """
coalesce(nullif(concat_ws('|',
    case when document_id not in (select document_id from rows_{other})
         then if($is_part_{other}, 'limit', 'document') end,
    case when listed_{other}.question_id is null then 'question' end), ''), 'sample')
"""
_DIFFERENCES = f"""
with pairs as (
    select document_id, question_id, sample, {{shown}},
           case when before.status is null then 'added' when after.status is null then 'removed' else 'changed' end
               as change,
           case when before.status is null then {_WHY_ONE.format(other="before")}
                when after.status is null then {_WHY_ONE.format(other="after")}
                else coalesce(nullif({_WHY_BOTH}, ''), 'same inputs') end as why,
           listed_after.place as place_after, listed_before.place as place_before
    from rows_before before full join rows_after after using (document_id, question_id, sample)
    left join listed_before using (question_id) left join listed_after using (question_id)
    left join endpoints_before on endpoints_before.run_id = before.read_run_id
    left join endpoints_after on endpoints_after.run_id = after.read_run_id
    left join other_endpoints using (endpoint_before, endpoint_after))
select * replace (string_split(why, '|') as why)
from pairs where change <> 'changed' or contains(why, 'type') or {{differs}}
order by document_id, coalesce(place_after, place_before), question_id, sample
"""


_Question = Annotated[str | None, Column("text of the question")]
_Status = Annotated[str | None, ENDED_STATUS]
_Answer = Annotated[str | None, Column("the answer taken out of the response")]
_Memory = Annotated[str | None, Column("memory from which the answer was given")]
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
    ENDPOINT = "endpoint"
    """What the server of the endpoint says of itself, for the same reader."""
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
    why: Annotated[list[str], Column("what is new, different or gone: " + ", ".join(Cause))]
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
        OutputError: a version of a table can't be read any more.
    """
    shown = ", ".join(f"{sql.format(side=side)} as {name}_{side}" for name, sql in _SHOWN.items() for side in _SIDES)
    differs = " or ".join(f"{name}_before is distinct from {name}_after" for name in _COMPARED)
    with _open(before, after) as database:
        for side in _SIDES:
            database.execute(f"create temp view listed_{side} as {_LISTED.format(side=side)}")
        found = database.sql(
            _DIFFERENCES.format(shown=shown, differs=differs), params=_conditions(before, after)
        ).to_arrow_reader(BATCH_ROWS)
        for batch in found:
            if batch.num_rows:
                yield pa.Table.from_batches([batch]).select(DIFFERENCES.names).cast(DIFFERENCES)


def changed_documents(before: PastRun, after: PastRun) -> Iterator[str]:
    """The documents that both runs have, with another text."""
    with _open(before, after) as database:
        found = database.sql(_OTHER_TEXTS).to_arrow_reader(BATCH_ROWS)
        for batch in found:
            yield from batch["document_id"].to_pylist()


_OTHER_TEXTS = """
select distinct document_id from rows_before before join rows_after after using (document_id)
where before.document_hash <> after.document_hash order by document_id
"""


@contextmanager
def _open(before: PastRun, after: PastRun) -> Iterator["duckdb.DuckDBPyConnection"]:
    """A database with the rows and questions of both runs."""
    runs = dict(zip(_SIDES, (before, after), strict=True))
    tables: dict[str, pa.Table] = {}
    for (side, run), other in zip(runs.items(), (after, before), strict=True):
        tables |= {f"rows_{side}": _rows(run, other=other), f"questions_{side}": _questions(run)}
    with open_database({**tables, **_endpoints(before, after)}) as database:
        yield database


def _endpoints(before: PastRun, after: PastRun) -> dict[str, pa.Table]:
    """What the endpoints of all runs of both outputs say of themselves, as JSON, and the pairs of these that differ."""
    tables, texts = {}, []
    for side, run in zip(_SIDES, (before, after), strict=True):
        known = {run_id: json.dumps(endpoint, sort_keys=True) for run_id, _, endpoint in read_endpoints(run.output)}
        columns = {"run_id": [*known], f"endpoint_{side}": [*known.values()]}
        tables[f"endpoints_{side}"] = pa.table({name: pa.array(each, pa.string()) for name, each in columns.items()})
        texts.append(sorted({*known.values()}))
    pairs = [pair for pair in product(*texts) if changed_fields(*map(json.loads, pair))]
    columns = {f"endpoint_{side}": [pair[number] for pair in pairs] for number, side in enumerate(_SIDES)}
    return {
        **tables,
        "other_endpoints": pa.table({name: pa.array(each, pa.string()) for name, each in columns.items()}),
    }


def _rows(run: PastRun, *, other: PastRun) -> pa.Table:
    """Rows of `answers` of a run in files that another run does not have: the others are the same in both."""
    table = run.table(ANSWERS_TABLE)
    dataset, files = run.dataset(ANSWERS_TABLE), table.files(run.version(ANSWERS_TABLE))
    shown = [name for name in _SHOWN if name != "run_id"]
    columns = [*_READING, *shown, "read_run_id", "document_hash", "question_hash", "fingerprint"]
    with table_errors(table.place.uri, remedy=GONE_REMEDY):
        if run.output.uri == other.output.uri:
            shared = table.files(other.version(ANSWERS_TABLE))
            others = [file for path, file in files.items() if path not in shared]
            dataset = table.dataset_of(others, dataset.schema)
        rows = dataset.scanner(columns=columns, batch_size=BATCH_ROWS).to_reader()
        return on_disk(rows, schema=rows.schema)


def _questions(run: PastRun) -> pa.Table:
    listed = run.questions
    questions = listed.select(["question_id"])
    nulls = pa.nulls(questions.num_rows, pa.string())
    closing = listed[FOLLOW_UP_FINGERPRINT] if FOLLOW_UP_FINGERPRINT in listed.schema.names else nulls
    types = [json.dumps(type_fields(each)) for each in value_types(listed)]
    questions = questions.append_column(FOLLOW_UP_FINGERPRINT, closing)
    questions = questions.append_column("value_type", pa.array(types, pa.string()))
    return questions.append_column("number", pa.array(np.arange(questions.num_rows)))


def _conditions(before: PastRun, after: PastRun) -> dict[str, bool]:
    earlier, later = (run.manifest for run in (before, after))
    is_part = {
        f"is_part_{side}": manifest.get("sample") is not None or manifest.get("again") is not None
        for side, manifest in zip(_SIDES, (earlier, later), strict=True)
    }
    return {"same_extraction": earlier["settings"]["extraction"] == later["settings"]["extraction"], **is_part}
