"""Collecting rollouts: the main job with G samples of every question, then its turns as groups with advantages.

CPU tasks replay each sample out of the log after sampling, so that prompts are the ones that the engine saw.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.apps.training.groups import GROUP_COUNTS, GroupCounts, GroupMaker, GroupSample
from memagent_batch.apps.training.rewards import require_reward
from memagent_batch.apps.training.rollouts_table import (
    RECORD,
    ROLLOUTS,
    RolloutsRecord,
    rollouts_record,
    write_rollouts,
)
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.columns import arrow_schema
from memagent_batch.data.store.delta import OutputTable, RunNumber, shared_tables
from memagent_batch.data.store.turn_log.index import ReadingKey, read_outcomes, reading_key, scan_log
from memagent_batch.data.store.turn_log.question_list import AskedQuestion, asked_in
from memagent_batch.data.store.turn_log.rows import OutcomeRow
from memagent_batch.data.store.turn_log.turns import LoggedTurns, read_turns
from memagent_batch.errors import CountsError, DocumentError, InputError, SettingsError, TurnUnansweredError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.run.budgets import fit_budgets_to_window
from memagent_batch.run.executors.tokenise import tokenise
from memagent_batch.run.executors.write import WrittenFile, table_file, written_file
from memagent_batch.run.flows.answer import answer_plan
from memagent_batch.run.flows.check import CheckedJob, check
from memagent_batch.run.flows.plan import ingest_sources, make_plan
from memagent_batch.run.history import require_newest, run_number_of
from memagent_batch.run.manifest import require_read, require_success
from memagent_batch.run.parts import PART_COLUMN, plan_parts
from memagent_batch.run.plan import WORK_COLUMNS, Plan
from memagent_batch.run.reading.agent import make_agent
from memagent_batch.run.reading.documents import PlannedDocument, planned_documents, unreadable
from memagent_batch.run.reading.read import ReadingTurns, ReplayOnly, read
from memagent_batch.run.row_changes import row_changes
from memagent_batch.run.run import SHOWN_MISSING
from memagent_batch.run.tables import ANSWERS_TABLE, ROLLOUTS_TABLE
from memagent_batch.run.wiring import ReaderIdentity, files_of, make_output
from memagent_batch.types import Question, Status

log = logging.getLogger(__name__)


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
        plan = make_plan(checked, ingest_sources(checked))
        references = plan.asked.table["references"]
        if references.null_count == len(references):
            raise InputError(
                "no question has references, so nothing can be rewarded; add a column `references` (a text or a list "
                "of texts) to the question list"
            )
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


def write_rollouts_table(plan: Plan, manifest: Mapping[str, Any], *, checked: CheckedJob) -> RolloutsRecord:
    """Projects the log into the table `rollouts`, in place of the rollouts before.

    Raises:
        CountsError: a sample that ended can't be replayed; names it.
        SupersededError: a newer run has begun; nothing was changed.
    """
    job, executor, output = checked.job, checked.executor, make_output(checked.job)
    run = run_number_of(output, manifest["run_id"])
    task = RolloutTask(job=job, run=run, reader=checked.reader, documents=plan.stored)
    index, answers = (
        scan_log(output, fingerprint=task.reader.fingerprint),
        OutputTable(output=output, name=ANSWERS_TABLE),
    )
    with row_changes(plan, index, answers=answers, version=None, settings={}) as (_, database):
        parts = list(plan_parts(plan, database))
    written = executor.map(partial(project_rollouts, task=task), parts)
    reports = [report for rows in written for report in rows.to_pylist()]
    counts: dict[str, float] = {name: sum(report[name] for report in reports) for name in GROUP_COUNTS}
    missing = [sample for report in reports for sample in report["missing"]]
    here = {"asked": counts["samples"], "failed": counts["failed_samples"]}
    there = {name: manifest["counts"][name] for name in here}
    if missing or here != there:
        raise CountsError(
            f"rollouts would have {here} samples where answers has {there}. Ended, but not to be replayed from log and "
            f"documents: {'; '.join(missing[:SHOWN_MISSING]) or 'none'}. Put back a document that was changed or "
            "removed since it was read, and run the same command again"
        )
    if counts["samples_without_reward"]:
        log.warning(
            f"{counts['samples_without_reward']:,.0f} of {counts['samples']:,.0f} samples have no reward, since it "
            "could not be computed; `reward_error` in the table `rollouts` says why"
        )
    record = rollouts_record(counts, sampling=job.agent.sampling, rollouts=job.rollouts, run_id=run.run_id)
    OutputTable(output=output, name=ROLLOUTS_TABLE).commit(
        run=run,
        schema=ROLLOUTS,
        add=[table_file(file) for report in reports for file in report["files"]],
        replaces_all=True,
        metadata={RECORD: json.dumps(record)},
    )
    return record


class RolloutsReport(GroupCounts):
    """What a written part reports."""

    files: list[WrittenFile]
    missing: list[str]


ROLLOUTS_REPORT = arrow_schema(RolloutsReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTask:
    """What every projecting task of a run knows."""

    job: JobConfig
    run: RunNumber
    reader: ReaderIdentity
    documents: StoredDocuments


def project_rollouts(part: pa.Table, *, task: RolloutTask) -> pa.Table:
    """Ray Data UDF: one part of the plan in, its files written, one row of `ROLLOUTS_REPORT` out.

    Raises:
        SupersededError: a newer run has begun.
    """
    projector = Projector(task)
    output, number = make_output(task.job), part[PART_COLUMN][0].as_py()
    require_newest(output, task.run)
    with closing(projector.maker):
        written = write_rollouts(output, projector.groups(part), part=number, run_id=task.run.run_id)
        files = [written_file(ROLLOUTS_TABLE, file) for file in written]
    report = {**projector.maker.counts, "files": files, "missing": projector.missing}
    return pa.Table.from_pylist([report], schema=ROLLOUTS_REPORT)


class Projector:
    """Replays the samples of a run, one document at a time, and has their groups made."""

    def __init__(self, task: RolloutTask) -> None:
        job = task.job
        self._task = task
        self._fingerprint = task.reader.fingerprint
        self._agent = make_agent(job.agent, files_of(job.agent, fingerprint=self._fingerprint))
        self.maker = GroupMaker(job.agent, job.rollouts, run_id=task.run.run_id, reader=task.reader)
        self.missing: list[str] = []
        """Samples that ended, but can't be replayed to their end."""

    def groups(self, part: pa.Table) -> Iterator[pa.Table]:
        """The groups of a part, a table of `ROLLOUTS` each, in the order of its documents."""
        output, questions = make_output(self._task.job), asked_in(part)
        files = sorted({file for files in part["outcome_files"].to_pylist() for file in files})
        outcomes = read_outcomes(output, files, fingerprint=self._fingerprint)
        is_readable = pc.is_null(part["error"])
        unread = map(_unread_document, part.filter(pc.invert(is_readable)).to_pylist())
        column = WORK_COLUMNS.field("follow_ups")
        work = part.append_column(column, pa.array([[]] * part.num_rows, column.type)).filter(is_readable)
        calls = tokenise(work, agent=self._task.job.agent, documents=self._task.documents)
        for document in chain(unread, chain.from_iterable(map(planned_documents, calls))):
            turns = read_turns(
                output,
                document.turn_files,
                fingerprints=[self._fingerprint],
                document_hashes=[document.document_hash],
            )[self._fingerprint]
            for number in dict.fromkeys(question for question, _ in document.readings):
                samples = [
                    self._sample(document, questions[number], turns, outcomes, sample=sample)
                    for asked, sample in document.readings
                    if asked == number
                ]
                table = self.maker.group(
                    questions[number],
                    samples,
                    document_id=document.document_id,
                    document_hash=document.document_hash or None,
                )
                if table is not None:
                    yield table

    def _sample(
        self,
        document: PlannedDocument,
        question: AskedQuestion,
        turns: Mapping[ReadingKey, LoggedTurns],
        outcomes: Mapping[ReadingKey, OutcomeRow],
        *,
        sample: int,
    ) -> GroupSample:
        """The sample as the log has it; one that ended, but can't be replayed to its end, is noted as missing."""
        address = ReadingAddress(
            document_hash=document.document_hash,
            question_hash=question["question_hash"],
            sample=sample,
            fingerprint=self._fingerprint,
        )
        outcome, logged = outcomes.get(reading_key(address)), turns.get(reading_key(address), LoggedTurns())
        replayed = GroupSample(address=address)
        error = self._replay(replayed, document, question, logged.of_outcome(outcome) if outcome else logged)
        if outcome is None or outcome["status"] != Status.OK:
            replayed.response = None
            replayed.is_unanswered = outcome is not None and outcome["error_type"] == TurnUnansweredError.__name__
        elif replayed.response is None:
            name = f"document {document.document_id!r}, question {question['question_id']!r}, sample {sample}"
            self.missing.append(f"{name}: {error}" if error else name)
        return replayed

    def _replay(
        self, sample: GroupSample, document: PlannedDocument, question: AskedQuestion, turns: LoggedTurns
    ) -> str | None:
        """Gives the sample the turns that the log holds; returns why they don't lead to an answer, where that shows."""
        if document.document.error:
            return str(document.document.error)
        if not turns:
            return None
        replay = ReadingTurns(
            engine=ReplayOnly(),
            address=sample.address,
            seed=self._task.job.agent.sampling.seed,
            from_log={sample.address.fingerprint: turns},
            observe=sample.add_turn,
        )
        asked = Question(question_id=question["question_id"], text=question["question"])
        replayed = read(document.document, asked, agent=self._agent, turns=replay)
        with ThreadPoolExecutor(1) as thread:  # a notebook runs an event loop in its own
            reading = thread.submit(asyncio.run, replayed).result()
        sample.response = reading.response
        return f"{reading.error_type}: {reading.error_message}" if reading.error_type else None


def _unread_document(row: Mapping[str, Any]) -> PlannedDocument:
    """A document that could not be read at all: its samples failed without a turn."""
    return PlannedDocument(
        document_id=row["document_id"],
        document_hash=row["document_hash"] or "",
        document=unreadable(DocumentError(row["error"])),
        readings=[(reading["question"], reading["sample"]) for reading in row["readings"]],
        turn_files=[],
    )
