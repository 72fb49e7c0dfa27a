"""Counts over the rows of `answers` as they are about to be committed: by how readings ended, reasons, sums."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import pyarrow as pa
import pyarrow.dataset as ds

from memagent_batch.data.documents.document_index import SOURCE_UNREAD, UNREAD_SOURCE
from memagent_batch.data.store.database import BATCH_ROWS, open_database, run_query
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.run.commits import TableUpdate
from memagent_batch.run.manifest import FOLLOW_UP_FAILED, AnswerSums, ReasonRow, UnreadCounts
from memagent_batch.types import Status

SHOWN_REASONS = 3
"""Reasons of failed readings, and of those that were not read, that the manifest and the last lines name."""
FAILED_FOLLOW_UP = r"^[A-Z]\w*Error: "
"""How `follow_up_error` begins where a follow-up question failed; else it says why a value is invalid."""
_SUMMED = ("document_tokens", "turns", "prompt_tokens", "cached_prompt_tokens", "completion_tokens")
_COLUMNS = [
    *("document_id", "question_id", "sample", "status", "read_run_id", "started_at", "value_status"),
    "follow_up_error",
    *("error_type", "error_message", "memory_truncations", *(f"num_{name}" for name in _SUMMED)),
]
_SUMS = f"""
select count(*) as answers_rows, count(distinct (document_id, question_id, sample)) as num_readings,
       count(*) filter (status = 'ok') as ok, count(*) filter (status = 'failed') as failed,
       count(*) filter (status = 'not_read') as not_read,
       count(*) filter (status = 'ok' and regexp_matches(follow_up_error, '{FAILED_FOLLOW_UP}'))
           as num_follow_ups_failed,
       count(*) filter (value_status = 'not_read') as num_unread,
       count(distinct document_id) filter (source_unread is not null) as num_unread_documents,
       count(*) filter (source_unread is not null and error_type = '{UNREAD_SOURCE}') as num_unread_failed,
       count(*) filter (status in ('ok', 'failed') and is_read and read_run_id > $since) as read,
       count(*) filter (status in ('ok', 'failed') and is_read and read_run_id <= $since) as kept,
       count(*) filter (not is_read and status <> 'not_read') as unreadable,
       coalesce(sum(memory_truncations), 0)::bigint as memory_truncations,
       {", ".join(f"coalesce(sum(num_{name}), 0)::bigint as num_{name}" for name in _SUMMED)}
from answers
"""
_REASONS = f"""
select kind, error_type, error_message, count(*) as num_readings from (
    select status as kind, error_type, error_message from answers where status in ('failed', 'not_read')
    union all
    select '{FOLLOW_UP_FAILED}', regexp_extract(follow_up_error, '^(\\w+): ', 1),
           regexp_extract(follow_up_error, '^\\w+: (.*)', 1, 's')
    from answers where status = 'ok' and regexp_matches(follow_up_error, '{FAILED_FOLLOW_UP}'))
group by kind, error_type, error_message
qualify row_number() over (partition by kind order by num_readings desc, error_type, error_message)
                     <= {SHOWN_REASONS}
order by kind, num_readings desc, error_type, error_message
"""
_CHANGED_COLUMNS = ("status", "answer", "value", "value_status")
_CHANGED = """
select count(*) as num from before full join after using (document_id, question_id, sample)
where before.status is null or after.status is null or {differs}
"""
_QUESTIONS = """
select count(*) filter (before.name is null) as added,
       count(*) filter (before.name = after.name and before.hash is distinct from after.hash) as changed,
       count(*) filter (after.name is null) as removed,
       count(*) filter (before.name = after.name and before.hash is not distinct from after.hash) as unchanged
from before full join after on before.name = after.name and before.place is not distinct from after.place
"""


_TURNS = """
select coalesce(sum(num_turns - num_copies), 0)::bigint as asked, coalesce(sum(num_copies), 0)::bigint as reused
from turns where run_id > $since
"""


class ReadingCounts(TypedDict):
    """Where the rows of `answers` come from; the four add up to all readings asked for."""

    read: int
    """Read since the last finished run, by this run or by one that was stopped."""
    kept: int
    """Read before it."""
    unreadable: int
    """Readings of documents whose text can't be read, or that are not there."""
    not_read: int
    """Not read for a cause that passes; the next run reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSums:
    """Sums over the rows of a run's readings."""

    counts: dict[str, int]
    """`ok`, `failed`, `not_read` and `answers_rows`."""
    num_readings: int
    """Different readings among the rows."""
    num_follow_ups_failed: int
    unread: UnreadCounts
    totals: AnswerSums
    readings: ReadingCounts
    reasons: dict[str, list[ReasonRow]]
    num_changed: int
    """Rows that are new, gone, or have another answer, value or status than in the run before."""


def sum_readings(answers: OutputTable, update: TableUpdate, *, documents: pa.Table | None, since: str) -> ReadingSums:
    """Sums over the rows of `answers` as they will be after an update.

    Args:
        answers: The table.
        update: What a run changes in it.
        documents: The documents whose rows count, if the table has rows of others: `document_id`.
        since: The last finished run; empty if there is none.
    """
    names = {*_COLUMNS, *_CHANGED_COLUMNS, SOURCE_UNREAD}
    schema = pa.schema([field for field in update.schema if field.name in names])
    columns = [*_COLUMNS, *([SOURCE_UNREAD] if SOURCE_UNREAD in schema.names else [])]
    rows = answers.dataset_of(update.files, schema).scanner(columns=columns, batch_size=BATCH_ROWS).to_reader()
    unread = "" if SOURCE_UNREAD in columns else ", null::varchar as source_unread"
    with open_database({"rows_read": rows}) as database:
        if documents is not None:
            database.register("documents", documents)
        only = "" if documents is None else "semi join documents using (document_id)"
        database.execute(
            f"create temp table answers as select *{unread}, started_at is not null as is_read from rows_read {only}"
        )
        (sums,) = database.sql(_SUMS, params={"since": since}).to_arrow_table().to_pylist()
        reasons = database.sql(_REASONS).to_arrow_table().to_pylist()
    kinds = (Status.FAILED.value, Status.NOT_READ.value, FOLLOW_UP_FAILED)
    return ReadingSums(
        counts={name: sums[name] for name in ("ok", "failed", "not_read", "answers_rows")},
        num_readings=sums["num_readings"],
        num_follow_ups_failed=sums["num_follow_ups_failed"],
        unread=cast("UnreadCounts", _some(sums, UnreadCounts)),
        totals=cast("AnswerSums", _some(sums, AnswerSums)),
        readings={**cast("ReadingCounts", _some(sums, ReadingCounts))},
        reasons={
            kind: [
                {
                    "error_type": row["error_type"] or "",
                    "error_message": row["error_message"] or "",
                    "num_readings": row["num_readings"],
                }
                for row in reasons
                if row["kind"] == kind
            ]
            for kind in kinds
        },
        num_changed=_num_changed(*(answers.dataset_of(files, schema) for files in (update.removed, update.added))),
    )


def _some(sums: Mapping[str, Any], columns: type) -> dict[str, int]:
    return {name: sums[name] for name in columns.__annotations__}


def _num_changed(before: ds.Dataset, after: ds.Dataset) -> int:
    columns = ["document_id", "question_id", "sample", *_CHANGED_COLUMNS]
    differs = " or ".join(f"before.{name} is distinct from after.{name}" for name in _CHANGED_COLUMNS)
    tables = {
        name: dataset.scanner(columns=columns, batch_size=BATCH_ROWS).to_reader()
        for name, dataset in (("before", before), ("after", after))
    }
    with open_database(tables) as database:
        ((count,),) = database.sql(_CHANGED.format(differs=differs)).fetchall()
    return int(count)


def count_turns(turns: pa.Table, *, since: str) -> dict[str, int]:
    """Turns that were asked since a run, and those that were taken from other versions of their documents.

    Args:
        turns: `LogIndex.turns`.
        since: The last finished run; empty for all turns.
    """
    (counts,) = run_query(_TURNS, {"turns": turns}, since=since).to_pylist()
    return cast("dict[str, int]", counts)


def changed_questions(before: pa.Table | None, after: pa.Table) -> dict[str, int]:
    """How many questions are new, have another text, are gone, or the same: by id and the document bound to."""
    tables = {"before": _questions(after.slice(0, 0) if before is None else before), "after": _questions(after)}
    (counts,) = run_query(_QUESTIONS, tables).to_pylist()
    return cast("dict[str, int]", counts)


def _questions(questions: pa.Table) -> pa.Table:
    return questions.select(["question_id", "document_id", "question_hash"]).rename_columns(["name", "place", "hash"])
