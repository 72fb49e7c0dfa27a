"""Collecting rollouts: the main job with G samples of every question, then its turns as groups with advantages."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from memagent_batch.apps.training.rollouts.groups import GROUP_COUNTS
from memagent_batch.apps.training.rollouts.rewarder import require_reward
from memagent_batch.apps.training.rollouts.table import RECORD, ROLLOUTS, RolloutsRecord, rollouts_record
from memagent_batch.apps.training.rollouts.write import RolloutTask, project_rollouts
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.delta import OutputTable, shared_tables
from memagent_batch.data.store.turn_log.index import scan_log
from memagent_batch.errors import CountsError, InputError, SettingsError
from memagent_batch.run.budgets import fit_budgets_to_window
from memagent_batch.run.executors.write import table_file
from memagent_batch.run.flows.answer import answer_plan
from memagent_batch.run.flows.check import CheckedJob, check
from memagent_batch.run.flows.plan import make_plan
from memagent_batch.run.history import run_number_of
from memagent_batch.run.manifest import require_read, require_success
from memagent_batch.run.parts import plan_parts
from memagent_batch.run.plan import Plan
from memagent_batch.run.row_changes import row_changes
from memagent_batch.run.run import SHOWN_MISSING
from memagent_batch.run.tables import ANSWERS_TABLE, ROLLOUTS_TABLE
from memagent_batch.run.wiring import make_output


@shared_tables()
def collect(job: JobConfig) -> RolloutsRecord:
    """Samples every reading, writes the table `rollouts`, and returns what its history says of it.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        CountsError: the tables do not hold one row for each reading, or a sample that ended can't be replayed.
        NotReadError: some samples could not be read now; no rollouts were written.
        TooManyFailedError: too many samples failed; the rollouts are written.
        SupersededError: a newer run has taken over the output.
    """
    require_reward(job.rollouts)
    checked = replace(check(sampled_job(job)), follow_ups=None)  # what is learnt from is the reading alone
    with checked.executor.session(checked.job):
        plan = make_plan(checked)
        _require_references(plan)
        manifest = answer_plan(plan, checked)
        require_read(manifest)  # a group without one of its samples would have another baseline
        record = write_rollouts_table(plan, manifest, checked=checked)
    require_success(manifest, max_failed_share=job.max_failed_share)
    return record


def sampled_job(job: JobConfig) -> JobConfig:
    """The job with G samples drawn at temperature 1 and top_p 1, their log-probabilities, and no follow-up questions.

    Raises:
        SettingsError: other sampling was asked for; what is learnt from must be drawn from the policy itself.
    """
    agent, group_size = fit_budgets_to_window(job.agent), job.rollouts.group_size
    sampling = agent.sampling
    if sampling.temperature not in (0.0, 1.0) or sampling.top_p != 1.0 or sampling.top_k not in (-1, 0):
        raise SettingsError(
            f"sampling: temperature {sampling.temperature}, top_p {sampling.top_p}, top_k {sampling.top_k}; rollouts "
            "are drawn at temperature 1 and top_p 1, or their log-probabilities would not be those of their draws; "
            "leave these settings out"
        )
    if sampling.samples not in (1, group_size):
        raise SettingsError(
            f"sampling.samples is {sampling.samples}, rollouts.group_size {group_size}; leave out "
            "the first, a group is all samples of a question"
        )
    drawn = sampling.model_copy(update={"temperature": 1.0, "logprobs": True, "samples": group_size})
    job = job.model_copy(update={"follow_ups": FollowUpConfig()})
    return job.with_agent(agent.model_copy(update={"sampling": drawn}))


def _require_references(plan: Plan) -> None:
    """Refuses a run without a question that could be rewarded."""
    references = plan.asked.table["references"]
    if references.null_count == len(references):
        raise InputError(
            "no question has references, so nothing can be rewarded; add a column `references` (a text or a list of "
            "texts) to the question list"
        )


def write_rollouts_table(plan: Plan, manifest: Mapping[str, Any], *, checked: CheckedJob) -> RolloutsRecord:
    """Projects the log into the table `rollouts`, in place of the rollouts before.

    Raises:
        CountsError: a sample that ended can't be replayed; names it.
        SupersededError: a newer run has begun; nothing was changed.
    """
    job, executor, output = checked.job, checked.executor, make_output(checked.job)
    run = run_number_of(output, manifest["run_id"])
    task = RolloutTask(job=job, run=run, reader=checked.reader, documents=plan.stored)
    index, table = scan_log(output, fingerprint=task.reader.fingerprint), OutputTable(output=output, name=ANSWERS_TABLE)
    with row_changes(plan, index, answers=table, version=None, rules=None) as (_, database):
        parts = list(plan_parts(plan, database))
    written = executor.map(partial(project_rollouts, task=task), parts)
    reports = [report for rows in written for report in rows.to_pylist()]
    counts: dict[str, float] = {name: sum(report[name] for report in reports) for name in GROUP_COUNTS}
    _require_all(counts, [sample for report in reports for sample in report["missing"]], manifest=manifest)
    record = rollouts_record(counts, sampling=job.agent.sampling, rollouts=job.rollouts, run_id=run.run_id)
    OutputTable(output=output, name=ROLLOUTS_TABLE).commit(
        run=run,
        schema=ROLLOUTS,
        add=[table_file(file) for report in reports for file in report["files"]],
        replaces_all=True,
        metadata={RECORD: json.dumps(record)},
    )
    return record


def _require_all(counts: Mapping[str, float], missing: Sequence[str], *, manifest: Mapping[str, Any]) -> None:
    """Refuses rollouts that say another thing than `answers`."""
    here = {"asked": counts["samples"], "failed": counts["failed_samples"]}
    there = {name: manifest["counts"][name] for name in here}
    if missing or here != there:
        raise CountsError(
            f"rollouts would have {here} samples where answers has {there}. Ended, but not to be replayed from log and "
            f"documents: {'; '.join(missing[:SHOWN_MISSING]) or 'none'}. Put back a document that was changed or "
            "removed since it was read, and run the same command again"
        )
