"""The main job: read -> plan -> tokenise -> read documents -> write. Every reading asked for gets exactly one row."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.domain.readings import Status
from memagent_batch.errors import BoundReachedError
from memagent_batch.executors.actor import ReaderTask
from memagent_batch.executors.executor import Executor
from memagent_batch.executors.leaving import GracefulShutdown, can_be_interrupted, noted_stop
from memagent_batch.executors.progress.progress import Progress
from memagent_batch.executors.write import write_tables
from memagent_batch.flows.check import CheckedJob, check
from memagent_batch.flows.plan import make_plan, scan_plan
from memagent_batch.plugins import engine_settings
from memagent_batch.reading.follow_ups import FollowUps
from memagent_batch.runs.claim import ANSWER_TABLES, remove_leftovers, removed_on_failure, require_claim
from memagent_batch.runs.history import (
    PastRun,
    last_hashes,
    recorded_plan,
    repair_last_run_record,
    write_begun_plan,
    write_kept_index,
)
from memagent_batch.runs.manifest import Manifest, PartReport
from memagent_batch.runs.parts import attach_not_read, collect_not_read, kept_parts, plan_parts
from memagent_batch.runs.plan import Plan, count_pending, group_documents
from memagent_batch.runs.run import ActiveRun, begin_run, close_run
from memagent_batch.runs.state import write_progress
from memagent_batch.store.turn_log.index import LogIndex
from memagent_batch.store.turn_log.merge import merge_log
from memagent_batch.store.turn_log.question_list import read_asked
from memagent_batch.wiring import make_output, model_name

CLAIM_LOST = "a newer attempt has claimed the output"
"""What readings name that are given up since the run has lost its output."""

log = logging.getLogger(__name__)


def answer(job: JobConfig) -> Manifest:
    """Reads every document for its questions and returns the manifest.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        CountsError: the tables do not hold one row for each reading.
        SupersededError: a newer attempt has claimed the output.
    """
    return answer_checked(check(job))


def answer_checked(checked: CheckedJob) -> Manifest:
    """The same for a run that was checked; see `answer`."""
    executor = checked.executor
    with executor.session(checked.job):
        plan = make_plan(checked)
        return answer_plan(plan, checked)


def answer_plan(plan: Plan, checked: CheckedJob) -> Manifest:
    """The same for the plan of a run that was checked, inside a session of its executor."""
    executor, job, output = checked.executor, checked.job, make_output(checked.job)
    run = begin_run(output, job, reader=checked.reader, plan=plan)
    progress = Progress(
        run_id=run.run_id,
        asked=run.record.asked,
        model=model_name(job.agent),
        policy=job.agent.policy.kind,
        bound_met=run.bound_met,
    )
    with noted_stop(output, run_id=run.run_id):
        before = repair_last_run_record(output)
        progress.begin()
        read = read_plan(plan, run=run, executor=executor, progress=progress, before=before)
        reports = write(plan, read, run=run, executor=executor)
        write_kept_index(output, plan, run_id=run.run_id)
        manifest = close_run(
            run,
            reports=reports,
            recorded=recorded_plan(plan, read.index),
            before=before,
            spent=progress.spent(),
            turns=read.index.turns,
            replicas_given_up=progress.replicas_given_up,
        )
        progress.close()
        return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What was read of a plan."""

    index: LogIndex
    not_read: pa.Table
    """Readings that could not be read now, as rows of `OUTCOME_LOG`."""


def read_plan(
    plan: Plan, *, run: ActiveRun, executor: Executor, progress: Progress, before: PastRun | None
) -> ReadPlan:
    """Reads what the log does not answer yet of a plan; `before` is the last finished run.

    Raises:
        BoundReachedError: the run has met its own bound before all was read.
    """
    job = run.job
    scan = partial(scan_plan, run.output, plan, fingerprint=run.reader.fingerprint, executor=executor)
    index = scan()
    hashes = last_hashes(run.output, before, plan.documents, index=index, agent=job.agent)
    bundles = list(plan.pending(index, retry_failed=job.retry_failed, last_hashes=hashes))
    if bundles:
        write_begun_plan(run.output, recorded_plan(plan, index), run_id=run.run_id)
    not_read = read_documents(bundles, run=run, executor=executor, progress=progress, follow_ups=plan.asked.follow_ups)
    if bundles:
        merged = merge_log(
            run.output,
            require_claim=partial(require_claim, run.output, run_id=run.run_id),
            mapped=executor.map,
        )
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
        tokenizer_sha256=run.reader.parts["tokenizer_sha256"],
        board=board,
        place=job,
        log=job.log,
        load_questions=partial(read_asked, run.output, run_id=run.run_id),
        follow_ups=None if follow_ups is None else job.follow_ups,
        is_bounded=job.max_tokens is not None or job.max_hours is not None or not can_be_interrupted(),
    )
    splits = follow_ups is not None and follow_ups.config.evidence
    read = executor.read(calls, task=task, sources=run.sources, splits=splits)
    keep = partial(write_progress, output=run.output, run_id=run.run_id)
    pending, ended = count_pending(bundles), Counter[str]()
    shown = progress.shown(board, pending=pending, starting=_starting(job.agent), keep=keep)
    leave = GracefulShutdown(
        require_claim=partial(require_claim, run.output, run_id=run.run_id), stop=partial(board.stop_turns, CLAIM_LOST)
    )
    with read as rows, shown, leave:
        not_read = collect_not_read(_counted(rows, ended))
    is_whole = ended.total() - ended[Status.NOT_READ] == pending.readings
    if not is_whole and (bound := progress.bound_met()):
        raise BoundReachedError(run.stopping_line(bound, progress.spent()))
    return not_read


def _counted(ended: Iterable[pa.Table], counts: Counter[str]) -> Iterator[pa.Table]:
    """The tables of `ENDED` as they are, while their statuses are counted."""
    for batch in ended:
        counts.update(batch["status"].to_pylist())
        yield batch


def write(plan: Plan, read: ReadPlan, *, run: ActiveRun, executor: Executor) -> list[PartReport]:
    """Projects plan and log into the tables, beside those that are shown; returns a report for each part.

    Parts that are as they were in the last finished run keep their files.
    """
    kept = kept_parts(run.output)
    parts = plan_parts(plan, read.index)
    remove_leftovers(run.output, tables=ANSWER_TABLES, run_id=run.run_id)
    with removed_on_failure(run.output, tables=ANSWER_TABLES, run_id=run.run_id):
        written = executor.map(
            partial(write_tables, projection=run.projection, kept=kept), attach_not_read(parts, read.not_read)
        )
        return [row for reports in written for row in reports.to_pylist()]


def _starting(agent: AgentConfig) -> str:
    """What the run waits for until the first turn."""
    engine = engine_settings(agent)
    return f"{engine.first_step} ({agent.model})" if engine.has_weights else engine.first_step
