"""What the loop reads in each step, and its readings: on one engine in this process, as the main job reads.

The tasks of a step are a function of its number, the same at every try.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from memagent_batch.config.sources import SourceConfig
from memagent_batch.config.training import TrainLoopConfig
from memagent_batch.documents.document_index import index_schema, require_unique_ids
from memagent_batch.documents.indexing import index_shard
from memagent_batch.documents.questions import missing_documents, read_questions
from memagent_batch.documents.shards import list_shards
from memagent_batch.documents.texts import fetch_texts
from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.document import Document
from memagent_batch.domain.readings import Question, Status
from memagent_batch.engines.engine import Completer
from memagent_batch.errors import (
    DocumentError,
    DocumentMissingError,
    InputError,
    MemagentError,
    ReadingError,
    RunFailedError,
    SettingsError,
)
from memagent_batch.logs import EventKind
from memagent_batch.reading.agent import make_agent
from memagent_batch.reading.documents import unreadable, with_breaks
from memagent_batch.reading.read import Reading, read
from memagent_batch.reading.turns import ReadingTurns
from memagent_batch.runs.plan import Plan
from memagent_batch.store.location import Location
from memagent_batch.training.rollouts.groups import GroupMaker, GroupQuestion, GroupSample
from memagent_batch.training.rollouts.table import ROLLOUTS_FOLDER, write_rollouts, write_rollouts_record
from memagent_batch.wiring import identify_reader, make_documents, make_texts_place, make_tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A document, a question about it, and its references."""

    document_id: str
    question_id: str
    question: str
    references: tuple[str, ...]
    text: str = ""
    """The document; it is read when its step comes."""
    place: Mapping[str, object] = field(default_factory=dict)
    """Row of the documents' index: where the text is."""

    @property
    def key(self) -> tuple[str, str]:
        """By this it is held out, whatever its id in the other list."""
        return (self.document_id, self.question)


Tasks = Callable[[int], Sequence[Task]]
"""The tasks of a step, counted from 1."""


class TableTasks:
    """Tasks out of documents and a question list, in random order: each at most once an epoch, epochs without end.

    An epoch has whole steps only. What is left over is another lot in each epoch.
    """

    def __init__(self, training: TrainLoopConfig) -> None:
        """Reads the questions and indexes the documents; texts are read when their step comes.

        Raises:
            InputError: they can't be read, or none of the questions that may be learnt from has references.
        """
        self._sources, self._seed = require_sources(training), training.loop.seed
        held_out = {each.key for each in _asked(self._sources, training.loop.held_out)}
        self._asked = [each for each in _asked(self._sources, self._sources.questions) if each.key not in held_out]
        if not self._asked:
            raise InputError(
                "no question can be learnt from: none has references, or all are held out; add a column `references` "
                "(a text or a list of texts) to the question list, or take questions out of loop.held_out"
            )
        self._size = min(training.loop.questions_per_step, len(self._asked))

    def __call__(self, step: int) -> list[Task]:
        """The tasks of a step."""
        whole_steps = len(self._asked) // self._size
        epoch, part = divmod(step - 1, whole_steps)
        order = random.Random(f"{self._seed} {epoch}").sample(range(len(self._asked)), len(self._asked))
        chosen = [self._asked[place] for place in order[part * self._size : (part + 1) * self._size]]
        return fetch_tasks(chosen, sources=self._sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTask:
    """A task with its samples."""

    asked: GroupQuestion
    samples: list[GroupSample]


class Sampler:
    """Reads tasks with an engine that has been started."""

    def __init__(self, engine: Completer, training: TrainLoopConfig) -> None:
        self._engine = engine
        self._training = training
        self._tokenizer = make_tokenizer(training.agent)
        self._agent = make_agent(training.agent)
        self.reader = identify_reader(training.agent)

    async def read(self, tasks: Sequence[Task]) -> list[SampledTask]:
        """Reads each task `sampling.samples` times, as many readings at once as the pool allows.

        Raises:
            EngineDeadError: the engine can serve nothing more.
            RunFailedError: no sample could be read.
            Exception: what else ends a reading and is not a ReadingError, such as a defect of a policy or an engine.
        """
        slots = asyncio.Semaphore(self._training.pool.readings_in_flight)
        read = list(await asyncio.gather(*[self._task(task, slots) for task in tasks]))
        samples = [sample for each in read for sample in each.samples]
        if all(sample.response is None for sample in samples):
            raise RunFailedError(
                f"none of {len(samples)} samples could be read, the lines above say why; the same command goes on"
            )
        return read

    async def _task(self, task: Task, slots: asyncio.Semaphore) -> SampledTask:
        document_hash = text_hash(task.text)
        samples = [
            GroupSample(
                address=ReadingAddress(
                    document_hash=document_hash,
                    question_hash=text_hash(task.question),
                    sample=number,
                    fingerprint=self.reader.fingerprint,
                )
            )
            for number in range(self._training.agent.sampling.samples)
        ]
        document = self._document(task)
        await asyncio.gather(*[self._sample(sample, task, document, slots) for sample in samples])
        asked = GroupQuestion(
            document_id=task.document_id,
            document_hash=document_hash,
            question_id=task.question_id,
            references=list(task.references),
        )
        return SampledTask(asked=asked, samples=samples)

    async def _sample(self, sample: GroupSample, task: Task, document: Document, slots: asyncio.Semaphore) -> None:
        turns = ReadingTurns(
            engine=self._engine,
            address=sample.address,
            seed=self._training.agent.sampling.seed,
            observe=lambda prompt, completion: sample.turns.append((prompt, completion)),
        )
        question = Question(question_id=task.question_id, text=task.question)
        async with slots:
            reading = await read(document, question, agent=self._agent, turns=turns)
        if reading.error is not None and not isinstance(reading.error, ReadingError):
            raise reading.error  # a reward for it would teach the model a defect
        sample.response = reading.response
        if reading.status is not Status.OK:
            _warn_of_failed(task, reading)

    def _document(self, task: Task) -> Document:
        try:
            return with_breaks(self._tokenizer.document(task.text), task.text, agent=self._training.agent)
        except DocumentError as error:
            return unreadable(error)


def read_held_out(training: TrainLoopConfig) -> list[Task]:
    """The tasks of the held-out question list; none if there is no such list."""
    if training.loop.held_out is None:
        return []
    sources = require_sources(training)
    return fetch_tasks(_asked(sources, training.loop.held_out), sources=sources)


def require_sources(training: TrainLoopConfig) -> SourceConfig:
    """The documents and the question list.

    Raises:
        SettingsError: one of them is missing.
    """
    if training.sources is None or training.sources.questions is None:
        raise SettingsError("questions: missing; give a question list with references")
    return training.sources


def fetch_tasks(asked: Sequence[Task], *, sources: SourceConfig) -> list[Task]:
    """Tasks with their texts; those of a document that can't be read are logged and left out."""
    if not asked:
        return []
    rows = pa.Table.from_pylist([each.place for each in asked], schema=index_schema(sources.input))
    texts: dict[int, str] = {}
    for fetched in fetch_texts(rows, documents=make_texts_place(sources), settings=sources.input):
        if fetched.text is None:
            _warn_of_unread(asked[fetched.row].document_id, fetched.error)
        else:
            texts[fetched.row] = fetched.text
    return [replace(each, text=texts[row]) for row, each in enumerate(asked) if row in texts]


def _warn_of_unread(document_id: str, error: MemagentError | None) -> None:
    message = f"document {document_id!r} can't be read, nothing is asked of it: {error}"
    log.warning(message, extra={"event": EventKind.READING_FAILED, "document_id": document_id})


def _asked(sources: SourceConfig, uri: str | None) -> list[Task]:
    """Each question of a list that has references with each document that it is asked of."""
    if uri is None:
        return []
    documents = make_documents(sources)
    shards = list_shards(*documents, settings=sources.input)
    index = pa.concat_tables(
        [
            table
            for shard in shards
            for table in index_shard(shard, settings=sources.input, storage_options=sources.storage_options)
        ]
    )
    require_unique_ids(index, documents=documents[0])
    questions = read_questions(Location(uri=uri, storage_options=sources.storage_options), ask=())
    for document_id in missing_documents(questions, index):
        _warn_of_unread(document_id, DocumentMissingError("no document has this id"))
    plan = Plan(index, questions, samples=1)
    listed, documents = plan.asked.table.to_pylist(), index.to_pylist()
    asked = [(documents[row["document"]], listed[row["question"]]) for row in plan.asked_readings().to_pylist()]
    return [
        Task(
            place=document,
            document_id=document["document_id"],
            question_id=question["question_id"],
            question=question["question"],
            references=tuple(question["references"]),
        )
        for document, question in asked
        if question["references"]
    ]


def _warn_of_failed(task: Task, reading: Reading) -> None:
    message = f"reading failed: document {task.document_id!r}, question {task.question_id!r}: {reading.error_message}"
    fields = {
        "document_id": task.document_id,
        "question_id": task.question_id,
        "error_type": reading.error_type,
    }
    log.warning(message, extra={"event": EventKind.READING_FAILED, **fields})


def write_step_rollouts(
    output: Location, read: Sequence[SampledTask], *, training: TrainLoopConfig, sampler: Sampler, run_id: str
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
    write_rollouts_record(
        output, maker.counts, files, sampling=training.agent.sampling, rollouts=training.rollouts, run_id=run_id
    )


def reward_counts(read: Sequence[SampledTask], *, training: TrainLoopConfig, sampler: Sampler) -> Mapping[str, float]:
    """Rewards what was read, and returns what was counted."""
    maker = GroupMaker(training.agent, training.rollouts, run_id="", reader=sampler.reader)
    try:
        for each in read:
            maker.group(each.asked, each.samples)
    finally:
        maker.close()
    return maker.counts
