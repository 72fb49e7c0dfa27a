"""The main job: check, ingest, plan, begin, tokenise, read, write. Every reading asked for gets exactly one row."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.columns import column_types
from memagent_batch.data.store.delta import OutputTable, retry_conflicts, shared_tables
from memagent_batch.data.store.turn_log.index import LogIndex
from memagent_batch.data.store.turn_log.merge import merge_log
from memagent_batch.data.store.turn_log.question_list import read_asked
from memagent_batch.errors import BoundReachedError
from memagent_batch.plugins import engine_settings
from memagent_batch.run.commits import TableUpdate, end_commits
from memagent_batch.run.endpoint import describe_endpoint, warn_of_change
from memagent_batch.run.executors.executor import Executor
from memagent_batch.run.executors.leaving import GracefulShutdown, can_be_interrupted, noted_stop
from memagent_batch.run.executors.progress import Progress
from memagent_batch.run.executors.reader import Reader, ReaderTask
from memagent_batch.run.executors.tokenise import tokenise
from memagent_batch.run.executors.write import WriteTask, copy_part, table_file, write_part
from memagent_batch.run.flows.check import CheckedJob, check
from memagent_batch.run.flows.plan import ingest_sources, make_plan, scan_plan
from memagent_batch.run.history import PastRun, has_unfinished, last_run, require_newest
from memagent_batch.run.manifest import Manifest, public_settings
from memagent_batch.run.parts import attach_not_read, collect_not_read, copied_parts, plan_parts
from memagent_batch.run.plan import Plan, count_pending, group_documents
from memagent_batch.run.projection import table_schemas
from memagent_batch.run.reading.follow_ups import FollowUps
from memagent_batch.run.retention import vacuum_tables
from memagent_batch.run.row_changes import RowChanges, row_changes
from memagent_batch.run.run import (
    ActiveRun,
    begin_run,
    close_quiet_run,
    close_run,
    partition_columns,
    quiet_run,
    writer_of,
)
from memagent_batch.run.state import write_progress
from memagent_batch.run.sums import count_turns, sum_readings
from memagent_batch.run.tables import ANSWERS_TABLE, READING_TABLES
from memagent_batch.run.wiring import make_output, model_name
from memagent_batch.types import Status

CLAIM_LOST = "a newer run has taken over the output"
"""What readings name that are given up since the run has lost its output."""

log = logging.getLogger(__name__)


@shared_tables()
def answer(job: JobConfig) -> Manifest:
    """Reads every document for its questions and returns the manifest.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        CountsError: the tables do not hold one row for each reading.
        SupersededError: a newer run has taken over the output.
    """
    return answer_checked(check(job))


@shared_tables()
def answer_checked(checked: CheckedJob) -> Manifest:
    """The same for a run that was checked; see `answer`."""
    executor = checked.executor
    with executor.session(checked.job):
        plan = make_plan(checked, ingest_sources(checked))
        return answer_plan(plan, checked)


def answer_plan(plan: Plan, checked: CheckedJob) -> Manifest:
    """The same for the plan of a run that was checked, inside a session of its executor."""
    executor, job, output = checked.executor, checked.job, make_output(checked.job)
    index = scan_plan(output, plan, fingerprint=checked.reader.fingerprint, executor=executor)
    bundles = list(plan.pending(index, retry_failed=job.retry_failed))
    if not bundles and (manifest := _answer_unchanged(plan, index, checked)) is not None:
        return manifest
    endpoint = None
    if bundles:
        endpoint = describe_endpoint(job.agent)
        pending = count_pending(bundles).readings
        warn_of_change(endpoint, output, checked.reader.fingerprint, asked=plan.num_readings, pending=pending)
    run = begin_run(output, job, reader=checked.reader, plan=plan, latest=checked.latest, endpoint=endpoint or None)
    progress = Progress(
        run_id=run.run_id,
        asked=run.record.asked,
        model=model_name(job.agent),
        policy=job.agent.policy.kind,
        bound_met=run.bound_met,
    )
    with noted_stop(output, run_id=run.run_id):
        end_commits(output, run.number)
        before = last_run(output)
        progress.begin()
        read = read_plan(plan, index, bundles, run=run, executor=executor, progress=progress)
        manifest = write(plan, read, run=run, executor=executor, before=before, progress=progress)
        progress.close()
        if before is not None and manifest["table_versions"] != before.manifest["table_versions"]:
            vacuum_tables(output, keep_days=job.record.keep_days)
        return manifest


def _answer_unchanged(plan: Plan, index: LogIndex, checked: CheckedJob) -> Manifest | None:
    """Closes a run by one commit if no row of the tables changes; returns None if one does."""
    job, output = checked.job, make_output(checked.job)
    before = last_run(output)
    if before is None or has_unfinished(output, writer=writer_of(job)):
        return None
    run = quiet_run(output, job, reader=checked.reader, plan=plan, latest=checked.latest)
    last = before.manifest
    was = [last["sample"], last["again"], last["counts"]["asked"], *_scope(last["settings"])]
    now = [run.record.sample, run.record.again, run.record.asked, *_scope(public_settings(job))]
    if was != now:
        return None
    answers = OutputTable(output=output, name=ANSWERS_TABLE)
    version = before.version(ANSWERS_TABLE)
    with row_changes(plan, index, answers=answers, version=version, settings=_row_settings(run, plan)) as (changes, _):
        if not changes.is_empty:
            return None
    return close_quiet_run(run, before=before, changes=changes, questions=plan.asked.hashed)


def _scope(settings: Mapping[str, Any]) -> list[object]:
    """Which part of its inputs a run with these settings asks about."""
    return [settings["input"].get("where"), settings["input"].get("slice")]


def _row_settings(run: ActiveRun, plan: Plan) -> dict[str, object]:
    """What decides rows beside documents and questions, as JSON."""
    schemas = table_schemas(run.projection, plan.documents.schema)
    layout = {name: [column_types(schema), partition_columns(run.job, schema)] for name, schema in schemas.items()}
    return {**run.projection.rules(), "layout": layout}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What was read of a plan."""

    index: LogIndex
    not_read: pa.Table
    """Readings that could not be read now, as rows of `OUTCOME_LOG`."""


def read_plan(
    plan: Plan, index: LogIndex, bundles: list[pa.Table], *, run: ActiveRun, executor: Executor, progress: Progress
) -> ReadPlan:
    """Reads what the log does not answer yet of a plan.

    Args:
        plan: What is asked for.
        index: What the log holds of it.
        bundles: Documents with readings to do, `Plan.pending`.
        run: The run.
        executor: Where the work is done.
        progress: What is shown meanwhile.

    Raises:
        BoundReachedError: the run has met its own bound before all was read.
    """
    not_read = read_documents(bundles, run=run, executor=executor, progress=progress, follow_ups=plan.asked.follow_ups)
    if bundles:
        merged = merge_log(
            run.output,
            require_claim=partial(require_newest, run.output, run.number),
            mapped=executor.map,
        )
        scan = partial(scan_plan, run.output, plan, fingerprint=run.reader.fingerprint, executor=executor)
        is_own = all(name.startswith(f"{run.run_id}-") for name in merged)
        index = scan(run_id=run.run_id, before=index) if is_own else scan()
    return ReadPlan(index=index, not_read=not_read)


def read_documents(
    bundles: list[pa.Table],
    *,
    run: ActiveRun,
    executor: Executor,
    progress: Progress,
    follow_ups: FollowUps | None = None,
) -> pa.Table:
    """Reads what the log does not answer yet, in this order, and asks what is asked after the answers.

    All that was read is in the log when this returns.

    Returns the readings that could not be read now, as rows of `OUTCOME_LOG`.

    Raises:
        BoundReachedError: the run has met its own bound before all was read.
    """
    if not bundles:
        return collect_not_read([])
    job = run.job
    if bound := progress.bound_met():
        raise BoundReachedError(run.stopping_line(bound, progress.spent()))
    calls = group_documents(bundles, readings_in_flight=job.pool.replicas * job.pool.readings_in_flight)
    board = executor.start_board()
    task = ReaderTask(
        agent=job.agent,
        pool=job.pool,
        run_id=run.run_id,
        fingerprint=run.reader.fingerprint,
        board=board,
        place=job,
        log=job.log,
        load_questions=partial(read_asked, run.output, asked_id=run.record.asked_id),
        follow_ups=None if follow_ups is None else job.follow_ups,
        is_bounded=any((job.max_tokens, job.max_hours, job.max_cost)) or not can_be_interrupted(),
    )
    tokenise_batch = partial(
        tokenise,
        agent=job.agent,
        documents=run.projection.documents,
        splits=follow_ups is not None and follow_ups.config.evidence,
        tokenizer_sha256=run.reader.parts["tokenizer_sha256"],
    )
    read = executor.read(calls, tokenise=tokenise_batch, reader=Reader, task=task)
    keep = partial(write_progress, output=run.output, run_id=run.run_id)
    pending, ended = count_pending(bundles), Counter[str]()
    shown = progress.shown(board, pending=pending, starting=_starting(job.agent), keep=keep)
    leave = GracefulShutdown(
        require_claim=partial(require_newest, run.output, run.number), stop=partial(board.stop_turns, CLAIM_LOST)
    )
    with read as rows, shown, leave:
        not_read = collect_not_read(_count_statuses(rows, ended))
    is_whole = ended.total() - ended[Status.NOT_READ] == pending.readings
    if not is_whole and (bound := progress.bound_met()):
        raise BoundReachedError(run.stopping_line(bound, progress.spent()))
    return not_read


def _count_statuses(batches: Iterable[pa.Table], counts: Counter[str]) -> Iterator[pa.Table]:
    """Yields tables of `ENDED` unchanged, and adds their statuses to `counts`."""
    for batch in batches:
        counts.update(batch["status"].to_pylist())
        yield batch


def write(
    plan: Plan,
    read: ReadPlan,
    *,
    run: ActiveRun,
    executor: Executor,
    before: PastRun | None,
    progress: Progress,
) -> Manifest:
    """Writes the rows that changed, and commits the tables; returns the manifest.

    Files of which no row changes stay as they are. If another run has replaced files that this run replaces too, the
    rows are written once more, beside those of the other run.

    Raises:
        FilesChangedError: other runs replace the files again and again; nothing was committed.
    """
    return retry_conflicts(
        partial(_write_once, plan, read, run=run, executor=executor, before=before, progress=progress)
    )


def _write_once(
    plan: Plan, read: ReadPlan, *, run: ActiveRun, executor: Executor, before: PastRun | None, progress: Progress
) -> Manifest:
    """The same for the tables as they are now."""
    end_commits(run.output, run.number)
    tables = {name: OutputTable(output=run.output, name=name) for name in READING_TABLES}
    versions = {name: version for name, table in tables.items() if (version := table.version()) is not None}
    answers, not_read = tables[ANSWERS_TABLE], read.not_read
    compared = row_changes(
        plan,
        read.index,
        answers=answers,
        version=versions.get(ANSWERS_TABLE),
        settings=_row_settings(run, plan),
        not_read=not_read,
    )
    with compared as (changes, database):
        parts = attach_not_read(plan_parts(plan, database), not_read)
        updates, missing = _write_files(plan, changes, parts, run=run, executor=executor, versions=versions)
    sums = sum_readings(
        answers,
        updates[ANSWERS_TABLE],
        documents=plan.documents.select(["document_id"]) if changes.has_rows_outside else None,
        since=before.run_id if before else "",
    )
    return close_run(
        run,
        updates=updates,
        changes=changes,
        sums=sums,
        missing=missing,
        questions=plan.asked.hashed,
        before=before,
        turns=count_turns(read.index.turns, since=before.run_id if before else ""),
        spent=progress.spent(),
        replicas_given_up=progress.replicas_given_up,
    )


def _write_files(
    plan: Plan,
    changes: RowChanges,
    parts: Iterable[pa.Table],
    *,
    run: ActiveRun,
    executor: Executor,
    versions: Mapping[str, int],
) -> tuple[dict[str, TableUpdate], list[str]]:
    """Writes new files beside those that are there; returns what changes in each table, and missing readings."""
    tables = {name: OutputTable(output=run.output, name=name) for name in READING_TABLES}
    files = {name: tables[name].files(version) for name, version in versions.items()}
    there = {name: tables[name].schema(version) for name, version in versions.items()}
    asked = table_schemas(run.projection, plan.documents.schema)
    if changes.has_rows_outside:  # rows of documents that the run leaves out keep the values of all their columns
        asked |= {name: _with_columns_of(schema, there[name]) for name, schema in asked.items() if name in there}
    schemas = {name: asked.get(name, there.get(name)) for name in READING_TABLES if name in asked or name in there}
    partition_by = {name: partition_columns(run.job, schema) for name, schema in schemas.items()}
    changed_layout = {
        name
        for name, version in versions.items()
        if name in asked and not tables[name].has_layout(asked[name], partition_by[name], version=version)
    }
    copied, replaced = copied_parts(changes, files, copies_all=bool(changed_layout))
    task = WriteTask(output=run.output, run=run.number, schemas=schemas, partition_by=run.job.record.partition_by)
    written = [
        *executor.map(partial(write_part, projection=run.projection, task=task), parts),
        *executor.map(partial(copy_part, task=task), copied),
    ]
    rows = [row for table in written for row in table.to_pylist()]
    updates = {}
    for name, schema in schemas.items():
        removed = replaced.get(name, [])
        gone = {file.path for file in removed}
        kept = [file for path, file in files.get(name, {}).items() if path not in gone]
        added = [table_file(row) for row in rows if row["table"] == name]
        updates[name] = TableUpdate(
            schema=schema,
            partition_by=partition_by[name],
            kept=kept,
            added=added,
            removed=removed,
            replaces_all=name in changed_layout,
            is_of_run=name in asked or bool(kept or added),
        )
    return updates, [row["missing"] for row in rows if row["missing"] is not None]


def _with_columns_of(schema: pa.Schema, there: pa.Schema) -> pa.Schema:
    """A schema with the columns that only the table has."""
    return pa.schema([*schema, *(field for field in there if field.name not in schema.names)])


def _starting(agent: AgentConfig) -> str:
    """What the run waits for until the first turn."""
    engine = engine_settings(agent)
    return f"{engine.first_step} ({agent.model})" if engine.has_weights else engine.first_step
