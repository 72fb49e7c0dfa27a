"""CPU tasks after sampling: replays each reading out of the log, so that prompts are the ones that the engine saw."""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.apps.training.rollouts.groups import GroupCounts, GroupMaker, GroupQuestion, GroupSample
from memagent_batch.apps.training.rollouts.table import write_rollouts
from memagent_batch.config.job import JobConfig
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.columns import arrow_schema
from memagent_batch.data.store.delta import RunNumber
from memagent_batch.data.store.turn_log.index import ReadingKey, read_outcomes, reading_key
from memagent_batch.data.store.turn_log.question_list import AskedQuestion, asked_in
from memagent_batch.data.store.turn_log.rows import OutcomeRow
from memagent_batch.data.store.turn_log.turns import LoggedTurns, read_turns
from memagent_batch.errors import DocumentError, TurnUnansweredError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.run.executors.tokenise import tokenise
from memagent_batch.run.executors.write import WrittenFile, written_file
from memagent_batch.run.history import require_newest
from memagent_batch.run.parts import PART_COLUMN
from memagent_batch.run.plan import WORK_COLUMNS
from memagent_batch.run.reading.agent import make_agent
from memagent_batch.run.reading.documents import PlannedDocument, planned_documents, unreadable
from memagent_batch.run.reading.read import ReadingTurns, ReplayOnly, read
from memagent_batch.run.tables import ROLLOUTS_TABLE
from memagent_batch.run.wiring import ReaderIdentity, make_output
from memagent_batch.types import Question, Status


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
        self._agent = make_agent(job.agent)
        self._output = make_output(job)
        self._questions: dict[int, AskedQuestion] = {}
        self.maker = GroupMaker(job.agent, job.rollouts, run_id=task.run.run_id, reader=task.reader)
        self.missing: list[str] = []

    def groups(self, part: pa.Table) -> Iterator[pa.Table]:
        """The groups of a part, a table of `ROLLOUTS` each, in the order of its documents."""
        fingerprint = self._task.reader.fingerprint
        self._questions = asked_in(part)
        files = sorted({file for files in part["outcome_files"].to_pylist() for file in files})
        outcomes = read_outcomes(self._output, files, fingerprint=fingerprint)
        readable = part.filter(pc.is_null(part["error"]))
        for unread in part.filter(pc.is_valid(part["error"])).to_pylist():
            yield from self._document(_unread_document(unread), {}, outcomes)
        calls = tokenise(_as_batch(readable), agent=self._task.job.agent, documents=self._task.documents)
        for document in chain.from_iterable(map(planned_documents, calls)):
            turns = read_turns(
                self._output,
                document.turn_files,
                fingerprints=[fingerprint],
                document_hashes=[document.document_hash],
            )
            yield from self._document(document, turns[fingerprint], outcomes)

    def _document(
        self,
        document: PlannedDocument,
        turns: Mapping[ReadingKey, LoggedTurns],
        outcomes: Mapping[ReadingKey, OutcomeRow],
    ) -> Iterator[pa.Table]:
        for number in dict.fromkeys(question for question, _ in document.readings):
            question = self._questions[number]
            samples = [
                self._sample(document, question, turns, outcomes, sample=sample)
                for asked, sample in document.readings
                if asked == number
            ]
            about = GroupQuestion(
                document_id=document.document_id,
                document_hash=document.document_hash,
                question_id=question["question_id"],
                references=question["references"],
            )
            table = self.maker.group(about, samples)
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
            fingerprint=self._task.reader.fingerprint,
        )
        key = reading_key(address)
        outcome = outcomes.get(key)
        ended = outcome is not None and outcome["status"] == Status.OK
        replayed = GroupSample(address=address)
        logged = turns.get(key, LoggedTurns())
        if outcome is not None:
            logged = logged.of_outcome(outcome)
        error = self._replay(replayed, document, question, logged)
        if not ended:
            replayed.response = None
            replayed.is_unanswered = outcome is not None and outcome["error_type"] == TurnUnansweredError.__name__
        elif replayed.response is None:
            name = f"document {document.document_id!r}, question {question['question_id']!r}, sample {sample}"
            self.missing.append(f"{name}: {error}" if error else name)
        return replayed

    def _replay(
        self,
        sample: GroupSample,
        document: PlannedDocument,
        question: AskedQuestion,
        turns: LoggedTurns,
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


def _as_batch(part: pa.Table) -> pa.Table:
    """A part of the plan as `tokenise` takes it: no follow-up questions."""
    column = WORK_COLUMNS.field("follow_ups")
    return part.append_column(column, pa.array([[]] * part.num_rows, column.type))


def _unread_document(row: Mapping[str, Any]) -> PlannedDocument:
    """A document that could not be read at all: its samples failed without a turn."""
    return PlannedDocument(
        document_id=row["document_id"],
        document_hash=row["document_hash"] or "",
        document=unreadable(DocumentError(row["error"])),
        readings=[(reading["question"], reading["sample"]) for reading in row["readings"]],
        turn_files=[],
    )
