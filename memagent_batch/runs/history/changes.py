"""What a run found new, changed and gone since the last one that finished: counts for the manifest, and `removed`."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.inputs.document_index import is_document
from memagent_batch.log.index import RunTurns
from memagent_batch.runs.history.history import PastRun
from memagent_batch.runs.history.schemas import REMOVED


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCounts:
    """How many of one kind of thing are new, changed, gone, and as they were."""

    added: int
    """New ids."""
    changed: int
    """Ids with another text."""
    removed: int
    """Ids that are gone."""
    unchanged: int
    """Ids with the same text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingCounts:
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
class TableVersions:
    """Which versions of a table two runs read."""

    before: str | None
    """That of the last finished run; None where it read another input."""
    now: str
    """That of this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnChanges:
    """What the readings that were read since the last finished run cost, closing turns included."""

    asked: int
    """Turns that the engine was asked."""
    held: int
    """Turns of the last versions of changed documents, whose prompts were the same: the engine was not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed since the last finished run; in the first run everything is added."""

    since: str | None
    """That run; None for the first."""
    documents: ChangeCounts
    """Documents, by document_id."""
    questions: ChangeCounts
    """Questions, by question_id and the document that they are bound to, if any."""
    readings: ReadingCounts
    """Readings."""
    tables: Mapping[str, TableVersions] = field(default_factory=dict)
    """Versions of the tables of a lake that were read, by table."""
    turns: TurnChanges
    """Turns."""


def find_changes(
    plan: pa.Table,
    questions: pa.Table,
    *,
    before: PastRun | None,
    tables: Mapping[str, str] | None = None,
    run_turns: Mapping[str, RunTurns] = MappingProxyType({}),
) -> Changes:
    """Compares a run that is about to finish with the last one that did.

    Args:
        plan: What it asked, as `RUN_PLAN`.
        questions: Its question list, as `PlannedQuestions.hashed`.
        before: The last finished run; None where there is none.
        tables: Versions of the tables of a lake that it read.
        run_turns: Turns of the log by run.
    """
    versions = before.manifest.get("tables", {}) if before else {}
    since = before.run_id if before else ""
    new = [turns for run_id, turns in run_turns.items() if run_id > since]
    return Changes(
        since=before.run_id if before else None,
        documents=_count(_document_hashes(before.plan) if before else {}, _document_hashes(plan)),
        questions=_count(_question_hashes(before.questions) if before else {}, _question_hashes(questions)),
        readings=_count_readings(plan, since=since),
        tables={uri: TableVersions(before=versions.get(uri), now=now) for uri, now in (tables or {}).items()},
        turns=TurnChanges(asked=sum(each.asked for each in new), held=sum(each.held for each in new)),
    )


def removed_documents(plan: pa.Table, *, run_id: str, before: PastRun | None) -> pa.Table:
    """The documents that are gone at the run `run_id`, as `REMOVED`; one that came back is not among them."""
    if before is None:
        return REMOVED.empty_table()
    there = plan.filter(is_document(plan))["document_id"].combine_chunks()
    gone = before.plan.filter(is_document(before.plan)).select(["document_id", "document_hash"])
    gone = gone.filter(pc.invert(pc.is_in(gone["document_id"], there)))
    for name, value in (("last_run_id", before.run_id), ("removed_run_id", run_id)):
        gone = gone.append_column(name, pa.array([value] * gone.num_rows, pa.string()))
    still = before.removed.filter(pc.invert(pc.is_in(before.removed["document_id"], there)))
    return pa.concat_tables([still.cast(REMOVED), gone.cast(REMOVED)]).combine_chunks()


def _count(before: Mapping[Hashable, str | None], after: Mapping[Hashable, str | None]) -> ChangeCounts:
    both = before.keys() & after.keys()
    changed = sum(before[key] != after[key] for key in both)
    return ChangeCounts(
        added=len(after) - len(both),
        changed=changed,
        removed=len(before) - len(both),
        unchanged=len(both) - changed,
    )


def _count_readings(plan: pa.Table, *, since: str) -> ReadingCounts:
    """Run ids sort by time."""
    run_ids = pc.struct_field(pc.list_flatten(plan["readings"]), "run_id")
    unreadable = len(pc.list_flatten(plan.filter(pc.is_valid(plan["error"]))["readings"]))
    read = pc.sum(pc.greater(run_ids, since)).as_py() or 0
    return ReadingCounts(
        read=read,
        kept=len(run_ids) - run_ids.null_count - read,
        unreadable=unreadable,
        not_read=run_ids.null_count - unreadable,
    )


def _document_hashes(plan: pa.Table) -> dict[Hashable, str | None]:
    plan = plan.filter(is_document(plan))
    return dict(zip(plan["document_id"].to_pylist(), plan["document_hash"].to_pylist(), strict=True))


def _question_hashes(questions: pa.Table) -> dict[Hashable, str | None]:
    rows = questions.select(["question_id", "document_id", "question_hash"]).to_pylist()
    return {(row["question_id"], row["document_id"]): row["question_hash"] for row in rows}
