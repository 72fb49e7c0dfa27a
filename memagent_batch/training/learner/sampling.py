"""Readings of the loop: on one engine in this process, with the main job's policies, addresses and seeds."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from memagent_batch.config.training import TrainLoopConfig
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.document import Document
from memagent_batch.domain.readings import Question, Status
from memagent_batch.engines.engine import Completer
from memagent_batch.errors import DocumentError, ReadingError, RunFailedError
from memagent_batch.files.location import Location
from memagent_batch.logs import EventKind
from memagent_batch.plugins import make_policy
from memagent_batch.reading.agent import LoadedAgent, make_agent
from memagent_batch.reading.documents import unreadable, with_breaks
from memagent_batch.reading.read import Reading, read
from memagent_batch.reading.turns import ReadingTurns
from memagent_batch.training.learner.tasks import Task
from memagent_batch.training.rollouts.groups import GroupMaker, GroupQuestion, GroupSample
from memagent_batch.training.rollouts.table import ROLLOUTS_FOLDER, write_record, write_rollouts
from memagent_batch.wiring import identify_reader, make_tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A task with its samples."""

    asked: GroupQuestion
    """What was asked."""
    samples: list[GroupSample]
    """How it was read."""


class Sampler:
    """Reads tasks with an engine that has been started."""

    def __init__(self, engine: Completer, training: TrainLoopConfig) -> None:
        """Takes the engine, and the loop that sets its model and its sampling."""
        self._engine = engine
        self._training = training
        self._tokenizer = make_tokenizer(training.agent)
        self._agent = make_agent(training.agent)
        self.reader = identify_reader(training.agent)

    async def read(self, tasks: Sequence[Task]) -> list[Read]:
        """Reads each task `sampling.samples` times, as many readings at once as the pool allows.

        Raises:
            EngineDeadError: the engine can serve nothing more.
            RunFailedError: no sample could be read.
            Exception: what else ends a reading and is no ReadingError, such as a defect of a policy or an engine.
        """
        slots = asyncio.Semaphore(self._training.pool.readings_in_flight)
        read = list(await asyncio.gather(*[self._task(task, slots) for task in tasks]))
        samples = [sample for each in read for sample in each.samples]
        if all(sample.response is None for sample in samples):
            raise RunFailedError(
                f"none of {len(samples)} samples could be read, the lines above say why; the same command goes on"
            )
        return read

    async def _task(self, task: Task, slots: asyncio.Semaphore) -> Read:
        document_hash = text_hash(task.text)
        samples = [
            GroupSample(
                address=ReadingAddress(
                    document_hash=document_hash,
                    question_hash=text_hash(task.question),
                    sample=number,
                    reader_fingerprint=self.reader.fingerprint,
                )
            )
            for number in range(self._training.agent.sampling.samples)
        ]
        agent, document = self._agent_for(task), self._document(task)
        await asyncio.gather(*[self._sample(sample, task, document, agent, slots) for sample in samples])
        asked = GroupQuestion(
            document_id=task.document_id,
            document_hash=document_hash,
            question_id=task.question_id,
            references=list(task.references),
        )
        return Read(asked=asked, samples=samples)

    async def _sample(
        self, sample: GroupSample, task: Task, document: Document, agent: LoadedAgent, slots: asyncio.Semaphore
    ) -> None:
        turns = ReadingTurns(
            engine=self._engine,
            address=sample.address,
            seed=self._training.agent.sampling.seed,
            observe=lambda prompt, completion: sample.turns.append((prompt, completion)),
        )
        question = Question(question_id=task.question_id, text=task.question)
        async with slots:
            reading = await read(document, question, agent=agent, turns=turns)
        if reading.error is not None and not isinstance(reading.error, ReadingError):
            raise reading.error  # a reward for it would teach the model a defect
        sample.response = reading.response
        if reading.status is not Status.OK:
            report_failed(task, reading)

    def _document(self, task: Task) -> Document:
        try:
            return with_breaks(self._tokenizer.document(task.text), task.text, agent=self._training.agent)
        except DocumentError as error:
            return unreadable(error)

    def _agent_for(self, task: Task) -> LoadedAgent:
        """The agent with chunks as short as the task wants them."""
        policy = self._training.agent.policy
        if task.chunk_tokens is None or task.chunk_tokens >= policy.chunk_tokens:
            return self._agent
        shorter = policy.model_copy(update={"chunk_tokens": task.chunk_tokens})
        return replace(self._agent, policy=make_policy(self._training.agent.model_copy(update={"policy": shorter})))


def report_failed(task: Task, reading: Reading) -> None:
    """Reports which reading failed and why; its sample has no response, and its rows say `failed`."""
    message = f"reading failed: document {task.document_id!r}, question {task.question_id!r}: {reading.error_message}"
    fields = {
        "document_id": task.document_id,
        "question_id": task.question_id,
        "error_type": reading.error_type,
    }
    log.warning(message, extra={"event": EventKind.READING_FAILED, **fields})


def write_step_rollouts(
    output: Location, read: Sequence[Read], *, training: TrainLoopConfig, sampler: Sampler, run_id: str
) -> None:
    """Rewards what was read and writes `rollouts/`, then `rollouts.json`."""
    maker = GroupMaker(training.agent, training.rollouts, run_id=run_id, reader=sampler.reader)
    groups = (maker.group(each.asked, each.samples) for each in read)
    try:
        (output / ROLLOUTS_FOLDER).delete()
        made = (group for group in groups if group is not None)
        files = list(write_rollouts(output, made, part=0, run_id=run_id))
    finally:
        maker.close()
    write_record(
        output, maker.counts, files, sampling=training.agent.sampling, rollouts=training.rollouts, run_id=run_id
    )


def reward_counts(read: Sequence[Read], *, training: TrainLoopConfig, sampler: Sampler) -> Mapping[str, float]:
    """Rewards what was read, and returns what was counted."""
    maker = GroupMaker(training.agent, training.rollouts, run_id="", reader=sampler.reader)
    try:
        for each in read:
            maker.group(each.asked, each.samples)
    finally:
        maker.close()
    return maker.counts
