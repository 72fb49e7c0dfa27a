"""Readings of the loop: on one engine in this process, with the main job's policies, addresses and seeds."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.chunking import chunk_spans
from memagent_batch.engines.engine import Engine
from memagent_batch.errors import QuestionTooLongError, ReadingError, RunFailedError
from memagent_batch.files.location import Location
from memagent_batch.logs import EventKind
from memagent_batch.reading.documents import DocumentChunks
from memagent_batch.reading.generation import Recording
from memagent_batch.reading.logged_turns import engine_turn
from memagent_batch.settings import Settings
from memagent_batch.training.learner.tasks import Task
from memagent_batch.training.rollouts.groups import Asked, GroupMaker, Sample
from memagent_batch.training.rollouts.table import ROLLOUTS_FOLDER, write_record, write_rollouts
from memagent_batch.wiring import identify_reader, make_policy, make_prompt_tokens, make_tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A task with its samples."""

    asked: Asked
    """What was asked."""
    samples: list[Sample]
    """How it was read."""


class Sampler:
    """Reads tasks with an engine that has been started."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        """Takes the engine, and the settings whose model it serves and whose sampling it draws with."""
        self._engine = engine
        self._settings = settings
        self._tokenizer = make_tokenizer(settings)
        self._prompts = make_prompt_tokens(settings)
        self._policy = make_policy(settings)
        self.reader = identify_reader(settings)

    async def read(self, tasks: Sequence[Task]) -> list[Read]:
        """Reads each task `sampling.samples` times, as many readings at once as the settings allow.

        Raises:
            EngineDeadError: the engine can serve nothing more.
            RunFailedError: no sample could be read.
        """
        slots = asyncio.Semaphore(self._settings.pool.readings_in_flight)
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
            Sample(
                address=ReadingAddress(
                    document_hash=document_hash,
                    question_hash=text_hash(task.question),
                    sample=number,
                    reader_fingerprint=self.reader.fingerprint,
                )
            )
            for number in range(self._settings.sampling.samples)
        ]
        try:
            chunks, question = self._chunks(task), self._question(task)
        except ReadingError as error:
            warn_of_failed(task, error)
        else:
            await asyncio.gather(*[self._sample(sample, task, chunks, question, slots) for sample in samples])
        asked = Asked(
            document_id=task.document_id,
            document_hash=document_hash,
            question_id=task.question_id,
            references=list(task.references),
        )
        return Read(asked=asked, samples=samples)

    async def _sample(
        self, sample: Sample, task: Task, chunks: DocumentChunks, question: list[int], slots: asyncio.Semaphore
    ) -> None:
        ask = partial(engine_turn, self._engine, sample.address, seed=self._settings.sampling.seed)
        generate = Recording(generate=ask, record=lambda prompt, completion: sample.turns.append((prompt, completion)))
        async with slots:
            try:
                outcome = await self._policy.read(chunks, question, prompts=self._prompts, generate=generate)
            except ReadingError as error:
                warn_of_failed(task, error)
                return
        sample.response = outcome.response

    def _question(self, task: Task) -> list[int]:
        token_ids = self._tokenizer.encode(task.question)
        budget = self._settings.policy.question_tokens
        if len(token_ids) > budget:
            raise QuestionTooLongError(
                f"it has {len(token_ids)} tokens, policy.question_tokens is {budget}; shorten it or raise the knob"
            )
        return token_ids

    def _chunks(self, task: Task) -> DocumentChunks:
        policy = self._settings.policy
        tokens = self._tokenizer.encode_document(task.text)
        spans = chunk_spans(
            tokens.token_chars.data,
            num_chars=len(task.text),
            chunk_tokens=min(task.chunk_tokens or policy.chunk_tokens, policy.chunk_tokens),
            overlap_tokens=policy.overlap_tokens,
        )
        return DocumentChunks(tokens.token_ids, [asdict(span) for span in spans])


def warn_of_failed(task: Task, error: ReadingError) -> None:
    """Says which reading failed and why; its samples have no response, and their rows say `failed`."""
    message = f"reading failed: document {task.document_id!r}, question {task.question_id!r}: {error}"
    fields = {
        "document_id": task.document_id,
        "question_id": task.question_id,
        "error_type": type(error).__name__,
    }
    log.warning(message, extra={"event": EventKind.READING_FAILED, **fields})


def write_step_rollouts(
    output: Location, read: Sequence[Read], *, settings: Settings, sampler: Sampler, run_id: str
) -> dict[str, Any]:
    """Rewards what was read and writes `rollouts/`, then `rollouts.json`, which is returned."""
    maker = GroupMaker(settings, run_id=run_id, reader=sampler.reader)
    groups = (maker.group(each.asked, each.samples) for each in read)
    try:
        (output / ROLLOUTS_FOLDER).delete()
        made = (group for group in groups if group is not None)
        files = list(write_rollouts(output, made, part=0, run_id=run_id))
    finally:
        maker.close()
    return write_record(output, maker.counts, files, settings=settings, run_id=run_id)


def mean_reward_of(read: Sequence[Read], *, settings: Settings, sampler: Sampler) -> float:
    """Mean reward of what was read; a failed reading counts as 0."""
    maker = GroupMaker(settings, run_id="", reader=sampler.reader)
    try:
        for each in read:
            maker.group(each.asked, each.samples)
    finally:
        maker.close()
    return float(maker.counts["reward_sum"] / maker.counts["samples"])
