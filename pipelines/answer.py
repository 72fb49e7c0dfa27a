"""The main job: read -> plan -> tokenise -> read documents -> write. Every reading asked for gets exactly one row."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import ray

from memagent_batch.config import AgentConfig, JobConfig
from memagent_batch.domain.escalation import Doubt
from memagent_batch.domain.readings import Status
from memagent_batch.log.index import LoggedOutcome, TurnIndex
from memagent_batch.logs import EventKind
from memagent_batch.plugins import engine_config
from memagent_batch.ray_data.actor import ReaderTask
from memagent_batch.ray_data.board import start_board
from memagent_batch.ray_data.leaving import OrderlyLeave
from memagent_batch.ray_data.progress import Progress
from memagent_batch.ray_data.reader import Reader
from memagent_batch.ray_data.session import CPU_SHARE, ray_session
from memagent_batch.ray_data.stages import read_calls, tokenised_plan
from memagent_batch.ray_data.stop import noted_stop
from memagent_batch.ray_data.write import write_tables
from memagent_batch.reading.closed import Closing
from memagent_batch.reading.escalation import Escalation
from memagent_batch.runs.claim import ANSWER_TABLES, remove_leftovers, removed_on_failure, require_claim
from memagent_batch.runs.finalise import Run, begin_run, close_run
from memagent_batch.runs.history import keep_last_run, recorded_plan
from memagent_batch.runs.manifest import Manifest
from memagent_batch.runs.parts import attach_not_read, collect_not_read, kept_parts
from memagent_batch.runs.plan import Plan, Work, count_pending, group_documents
from memagent_batch.runs.schemas import PartReport
from memagent_batch.wiring import make_output
from pipelines.check import Checked, check
from pipelines.plan import find_doubtful, make_plan, scan_plan

log = logging.getLogger(__name__)


def answer(job: JobConfig) -> Manifest:
    """Reads every document for its questions and returns the manifest.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        CountsError: the tables do not hold one row for each reading.
        SupersededError: a newer attempt has claimed the output.
    """
    return answer_checked(check(job))


def answer_checked(checked: Checked) -> Manifest:
    """The same for a run that was checked, which takes no Ray; see `answer`."""
    with ray_session():
        return answer_plan(make_plan(checked.job, inputs=checked.inputs, closing=checked.closing), checked)


def answer_plan(plan: Plan, checked: Checked) -> Manifest:
    """The same for the plan of a run that was checked, inside a `ray_session`."""
    job, reader, escalation = checked.job, checked.reader, checked.escalation
    output = make_output(job)
    second = plan.for_second_reader(closing=escalation.closing) if escalation else None
    run = begin_run(output, job, reader=reader, plan=plan, escalation=escalation, second=second)
    progress = Progress(run_id=run.run_id, asked=run.asked, model=job.agent.model, policy=job.agent.policy.kind)
    with noted_stop(output, run_id=run.run_id):
        before = keep_last_run(output)
        progress.begin()
        index = scan_plan(output, plan, reader_fingerprint=reader.fingerprint)
        bundles = list(plan.pending(index, retry_failed=job.retry_failed))
        not_read = read_documents(bundles, run=run, progress=progress, closing=plan.closing)
        index = scan_plan(output, plan, reader_fingerprint=reader.fingerprint)
        looked = None
        if escalation is not None and second is not None:
            looked = look_again(plan, index, second, escalation, run=run, not_read=not_read)
            not_read = pa.concat_tables([not_read, looked.not_read])
        reports = write(plan, index, run=run, not_read=not_read, second=(looked.plan, looked.index) if looked else None)
        recorded = recorded_plan(plan, index, again=looked.answered() if looked else None)
        manifest = close_run(run, reports=reports, recorded=recorded, before=before)
        progress.close()
        return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLook:
    """What the second reader has read."""

    plan: Plan
    """All readings, as it takes them."""
    index: TurnIndex
    """What the log holds of them."""
    doubtful: Mapping[Work, Doubt]
    """Those that were doubtful, which alone it reads."""
    not_read: pa.Table
    """Those that could not be read now, as rows of `OUTCOME_LOG`."""

    def answered(self) -> dict[Work, LoggedOutcome]:
        """How the readings ended that it answered."""
        found = {work: self.index.outcomes.get(key) for work, key, _ in self.plan.addressed() if work in self.doubtful}
        return {work: outcome for work, outcome in found.items() if outcome and outcome.status == Status.OK}


def look_again(
    plan: Plan, index: TurnIndex, second: Plan, escalation: Escalation, *, run: Run, not_read: pa.Table
) -> SecondLook:
    """Reads doubtful readings by the second reader, whose actors start when those of the first have ended.

    Args:
        plan: The plan of the first reader.
        index: What the log holds of it.
        second: The plan of the second reader.
        escalation: The second reader.
        run: The run.
        not_read: What the first reader could not read, which is not read again.
    """
    job, output, fingerprint = run.job, run.output, escalation.reader.fingerprint
    doubtful = find_doubtful(plan, index, escalation, job=job, not_read=not_read)
    looked = scan_plan(output, second, reader_fingerprint=fingerprint)
    bundles = list(second.pending(looked, retry_failed=job.retry_failed, only=doubtful))
    agent = escalation.agent
    log.info(
        f"{len(doubtful)} of {run.asked} readings are doubtful; {count_pending(bundles).readings} are read again",
        extra={"event": EventKind.PROGRESS, "run_id": run.run_id, "doubtful": len(doubtful), "asked": run.asked},
    )
    progress = Progress(run_id=run.run_id, asked=len(doubtful), model=agent.model, policy=agent.policy.kind)
    unread = read_documents(bundles, run=run, progress=progress, closing=escalation.closing, again=escalation)
    looked = scan_plan(output, second, reader_fingerprint=fingerprint) if bundles else looked
    return SecondLook(plan=second, index=looked, doubtful=doubtful, not_read=unread)


def read_documents(
    bundles: list[pa.Table],
    *,
    run: Run,
    progress: Progress,
    closing: Closing | None = None,
    again: Escalation | None = None,
) -> pa.Table:
    """Reads what the log does not answer yet, in this order, and asks what is asked after the answers.

    All that was read is in the log when this returns. `again`: the second reader, where that one reads.

    Returns the readings that could not be read now, as rows of `OUTCOME_LOG`.
    """
    if not bundles:
        return collect_not_read([])
    job = run.job.with_agent(again.agent) if again else run.job
    reader = again.reader if again else run.reader
    calls = group_documents(bundles, readings_in_flight=job.pool.replicas * job.pool.readings_in_flight)
    board = start_board()
    task = ReaderTask.of_job(
        job,
        run_id=run.run_id,
        reader_fingerprint=reader.fingerprint,
        board=board,
        closes=closing is not None,
        singly=again is not None,
    )
    splits = closing is not None and closing.turns.plan.evidence
    tokenised = tokenised_plan(calls, agent=job.agent, sources=job, splits=splits)
    rows = read_calls(tokenised, Reader, task=task, pool=job.pool)
    shown = progress.shown(board, pending=count_pending(bundles), starting=_starting(job.agent))
    with shown, OrderlyLeave(require_claim=partial(require_claim, run.output, run_id=run.run_id)):
        return collect_not_read(rows.iter_batches(batch_size=None, batch_format="pyarrow"))


def write(
    plan: Plan,
    index: TurnIndex,
    *,
    run: Run,
    not_read: pa.Table,
    second: tuple[Plan, TurnIndex] | None = None,
) -> list[PartReport]:
    """Projects plan and log into the tables, beside those that are shown; returns a report for each part.

    Parts that are as they were in the last finished run keep their files.
    """
    kept = kept_parts(run.output)
    remove_leftovers(run.output, tables=ANSWER_TABLES, run_id=run.run_id)
    with removed_on_failure(run.output, tables=ANSWER_TABLES, run_id=run.run_id):
        rows = ray.data.from_arrow(list(attach_not_read(plan.parts(index, second=second), not_read))).map_batches(
            partial(write_tables, projection=run.projection, kept=kept),
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=CPU_SHARE,
        )
        batches = rows.iter_batches(batch_size=None, batch_format="pyarrow")
        return [row for batch in batches for row in batch.to_pylist()]


def _starting(agent: AgentConfig) -> str:
    """What the run waits for until the first turn."""
    engine = engine_config(agent)
    return f"{engine.first_step} ({agent.model})" if engine.has_weights else engine.first_step
