"""What the loop reads in each step: a function from the number of a step to its tasks, the same at every try."""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from memagent_batch.config.sources import SourceConfig
from memagent_batch.config.training import TrainLoopConfig
from memagent_batch.errors import DocumentMissingError, InputError, MemagentError, SettingsError
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import index_schema, require_unique_ids
from memagent_batch.inputs.documents import index_shard
from memagent_batch.inputs.questions import missing_documents, read_questions
from memagent_batch.inputs.shards import list_shards
from memagent_batch.inputs.texts import fetch_texts
from memagent_batch.logs import EventKind
from memagent_batch.runs.plan import Plan
from memagent_batch.wiring import make_documents, make_texts_place

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A document, a question about it, and its references."""

    document_id: str
    """Id of the document."""
    text: str
    """The document."""
    question_id: str
    """Id of the question."""
    question: str
    """The question."""
    references: tuple[str, ...]
    """Right answers."""
    chunk_tokens: int | None = None
    """Length of a chunk, where it is not that of the settings; shorter than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntQuestion:
    """A question with references, and the document that it is about; the text is not read yet."""

    document: Mapping[str, object]
    """Row of the document's index: where its text is."""
    document_id: str
    """Id of the document."""
    question_id: str
    """Id of the question."""
    question: str
    """The question."""
    references: tuple[str, ...]
    """Right answers."""

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


def read_held_out(training: TrainLoopConfig) -> list[Task]:
    """The tasks of the held-out question list; none where there is no such list."""
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


def fetch_tasks(asked: Sequence[LearntQuestion], *, sources: SourceConfig) -> list[Task]:
    """Tasks with their texts; those of a document that can't be read are logged and left out."""
    if not asked:
        return []
    rows = pa.Table.from_pylist([each.document for each in asked], schema=index_schema(sources.input))
    texts: dict[int, str] = {}
    for fetched in fetch_texts(rows, documents=make_texts_place(sources), settings=sources.input):
        if fetched.text is None:
            _warn_of_unread(asked[fetched.row].document_id, fetched.error)
        else:
            texts[fetched.row] = fetched.text
    return [
        Task(
            document_id=each.document_id,
            text=texts[place],
            question_id=each.question_id,
            question=each.question,
            references=each.references,
        )
        for place, each in enumerate(asked)
        if place in texts
    ]


def _warn_of_unread(document_id: str, error: MemagentError | None) -> None:
    message = f"document {document_id!r} can't be read, nothing is asked of it: {error}"
    log.warning(message, extra={"event": EventKind.READING_FAILED, "document_id": document_id})


def _asked(sources: SourceConfig, uri: str | None) -> list[LearntQuestion]:
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
    listed = plan.asked.table.to_pylist()
    return [
        LearntQuestion(
            document=document,
            document_id=document["document_id"],
            question_id=listed[row]["question_id"],
            question=listed[row]["question"],
            references=tuple(listed[row]["references"]),
        )
        for document in index.to_pylist()
        for row in plan.question_rows(document["document_id"])
        if listed[row]["references"]
    ]
