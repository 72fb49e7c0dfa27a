"""CPU tasks after sampling: replays each reading out of the log, so that prompts are the ones that the engine saw."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.generation import Recording, Replaying
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.errors import NotHeldError
from memagent_batch.ray_data.documents import DocumentChunks, PlannedDocument, planned_documents
from memagent_batch.ray_data.groups import COUNTS, Asked, GroupMaker, Sample
from memagent_batch.ray_data.logged_turns import held_turn
from memagent_batch.ray_data.tokenise import tokenise
from memagent_batch.settings import Settings
from memagent_batch.storage.asked import read_asked
from memagent_batch.storage.rollouts import write_rollouts
from memagent_batch.storage.turn_index import Row, read_turns, reading_key
from memagent_batch.wiring import ReaderIdentity, make_output, make_policy, make_prompt_tokens, make_tokenizer

REPORT = pa.schema(
    [pa.field("files", pa.list_(pa.string())), pa.field("reward_sum", pa.float64())]
    + [pa.field(name, pa.int64()) for name in COUNTS]
)
"""What a written part reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTask:
    """What every projecting task of a run knows."""

    settings: Settings
    """All knobs, as the readings had them."""
    run_id: str
    """The run that was collected."""
    reader: ReaderIdentity
    """Whose turns they are."""


def project_rollouts(part: pa.Table, *, task: RolloutTask) -> pa.Table:
    """Ray Data UDF: one part of the plan in, its files written, one row of `REPORT` out."""
    projector = Projector(task)
    number = part["part"][0].as_py()
    groups = projector.groups(part.drop_columns(["part"]))
    try:
        files = list(write_rollouts(make_output(task.settings), groups, part=number))
    finally:
        projector.maker.close()
    return pa.Table.from_pylist([{**projector.maker.counts, "files": files}], schema=REPORT)


class Projector:
    """Replays the samples of a run, one document at a time, and has their groups made."""

    def __init__(self, task: RolloutTask) -> None:
        """Loads tokeniser, prompts and the questions of the run."""
        settings = task.settings
        self._task = task
        self._tokenizer = make_tokenizer(settings)
        self._prompts = make_prompt_tokens(settings)
        self._policy = make_policy(settings)
        self._output = make_output(settings)
        self._questions = read_asked(self._output, run_id=task.run_id).to_pylist()
        self.maker = GroupMaker(settings, run_id=task.run_id, reader=task.reader)

    def groups(self, part: pa.Table) -> Iterator[pa.Table]:
        """The groups of a part, a table of `ROLLOUTS` each, in the order of its documents."""
        readable = part.filter(pc.is_null(part["error"]))
        for unread in part.filter(pc.is_valid(part["error"])).to_pylist():
            yield from self._document(_unread(unread), {})
        for document in chain.from_iterable(map(planned_documents, tokenise(readable, settings=self._task.settings))):
            turns = read_turns(
                self._output,
                document.turn_files,
                reader_fingerprint=self._task.reader.fingerprint,
                document_hashes=[document.document_hash],
            )
            yield from self._document(document, turns)

    def _document(
        self, document: PlannedDocument, turns: Mapping[tuple[str, str, int], Mapping[str, Row]]
    ) -> Iterator[pa.Table]:
        for number in dict.fromkeys(question for question, _ in document.readings):
            question = self._questions[number]
            samples = [
                self._replay(document, question, turns, sample=sample)
                for asked, sample in document.readings
                if asked == number
            ]
            about = Asked(
                document_id=document.document_id,
                document_hash=document.document_hash,
                question_id=question["question_id"],
                references=question["references"],
            )
            table = self.maker.group(about, samples)
            if table is not None:
                yield table

    def _replay(
        self,
        document: PlannedDocument,
        question: Row,
        turns: Mapping[tuple[str, str, int], Mapping[str, Row]],
        *,
        sample: int,
    ) -> Sample:
        address = ReadingAddress(
            document_hash=document.document_hash,
            question_hash=question["question_hash"],
            sample=sample,
            reader_fingerprint=self._task.reader.fingerprint,
        )
        replayed = Sample(address=address)
        held = {path: held_turn(row) for path, row in turns.get(reading_key(address), {}).items()}
        if not held:
            return replayed
        generate = Recording(
            generate=Replaying(generate=_refuse, held=held),
            record=lambda prompt, completion: replayed.turns.append((prompt, completion)),
        )
        token_ids = self._tokenizer.encode(question["question"])
        try:
            outcome = asyncio.run(
                self._policy.read(document.chunks, token_ids, prompts=self._prompts, generate=generate)
            )
        except NotHeldError:
            return replayed
        replayed.response = outcome.response
        return replayed


def _unread(row: Row) -> PlannedDocument:
    """A document that could not be read at all: its samples failed without a turn."""
    return PlannedDocument(
        document_id=row["document_id"],
        document_hash=row["document_hash"] or "",
        chunks=DocumentChunks(np.array([], np.int32), []),
        readings=[(reading["question"], reading["sample"]) for reading in row["readings"]],
        turn_files=[],
        error=row["error"],
    )


async def _refuse(prompt: Prompt) -> Completion:
    raise NotHeldError(prompt.path)
