"""CPU tasks after sampling: replays each reading out of the log, so that prompts are the ones that the engine saw."""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.advantages import group_advantages, rewards_are_equal
from memagent_batch.domain.answers import extract_answer
from memagent_batch.domain.generation import Recording, Replaying
from memagent_batch.domain.readings import Status
from memagent_batch.domain.rewards import Overlong
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.errors import NotHeldError
from memagent_batch.ray_data.documents import DocumentChunks, PlannedDocument, planned_documents
from memagent_batch.ray_data.logged_turns import held_turn
from memagent_batch.ray_data.rewarder import Rewarded, Rewarder
from memagent_batch.ray_data.tokenise import tokenise
from memagent_batch.settings import Settings
from memagent_batch.storage.asked import read_asked
from memagent_batch.storage.rollouts import ROLLOUTS, write_rollouts
from memagent_batch.storage.turn_index import Row, read_turns, reading_key
from memagent_batch.wiring import ReaderIdentity, make_output, make_policy, make_prompt_tokens, make_tokenizer

COUNTS = ("groups", "dropped_groups", "samples", "failed_samples", "samples_without_reward", "rows", "tokens")
"""What a part counts; `groups` are all, the dropped ones among them; `tokens` are those that are learnt from."""

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


@dataclass(slots=True, kw_only=True)
class Sample:
    """One sample of a group. Mutable: its turns are added as they are replayed."""

    address: ReadingAddress
    """Where the log keeps it."""
    turns: list[tuple[Prompt, Completion]] = field(default_factory=list)
    """Its conversations, in the order in which the policy asked."""
    response: str | None = None
    """The last response; None where the sample failed."""

    @property
    def is_cut(self) -> bool:
        """Whether any turn was cut at its budget."""
        return any(completion.finish_reason == FinishReason.LENGTH for _, completion in self.turns)


def project_rollouts(part: pa.Table, *, task: RolloutTask) -> pa.Table:
    """Ray Data UDF: one part of the plan in, its files written, one row of `REPORT` out."""
    projector = Projector(task)
    number = part["part"][0].as_py()
    groups = projector.groups(part.drop_columns(["part"]))
    try:
        files = list(write_rollouts(make_output(task.settings), groups, part=number))
    finally:
        projector.close()
    return pa.Table.from_pylist([{**projector.counts, "files": files}], schema=REPORT)


class Projector:
    """Makes the rows of groups, one document at a time, and counts them."""

    def __init__(self, task: RolloutTask) -> None:
        """Loads tokeniser, prompts and the questions of the run."""
        settings = task.settings
        self._task = task
        self._tokenizer = make_tokenizer(settings)
        self._prompts = make_prompt_tokens(settings)
        self._policy = make_policy(settings)
        self._output = make_output(settings)
        self._questions = read_asked(self._output, run_id=task.run_id).to_pylist()
        self._reward = Rewarder(settings.rollouts, extraction=settings.extraction)
        self._constant = _constant_columns(task)
        self.counts: dict[str, Any] = {**dict.fromkeys(COUNTS, 0), "reward_sum": 0.0}

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

    def close(self) -> None:
        """Ends what runs beside."""
        self._reward.close()

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
            table = self._group(document, question, samples)
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

    def _group(self, document: PlannedDocument, question: Row, samples: Sequence[Sample]) -> pa.Table | None:
        knobs = self._task.settings.rollouts
        rewarded_G = [self._rewarded(sample, question) for sample in samples]
        rewards_G = [rewarded.reward for rewarded in rewarded_G]
        advantages_G = group_advantages(rewards_G, kind=knobs.advantage)
        dropped = knobs.drop_equal and rewards_are_equal(rewards_G)
        self._count(samples, rewards_G, dropped=dropped)
        if dropped:
            return None
        shared = {
            **self._constant,
            "group_id": group_id(document.document_id, question["question_id"]),
            "document_id": document.document_id,
            "question_id": question["question_id"],
            "ground_truth": question["references"],
            "document_hash": document.document_hash or None,
        }
        rows = [
            {**shared, "reward": rewarded.reward, "reward_error": rewarded.error, "advantage": advantage, **row}
            for sample, rewarded, advantage in zip(samples, rewarded_G, advantages_G, strict=True)
            for row in self._rows(sample, learnt=advantage is not None)
        ]
        self.counts["rows"] += len(rows)
        self.counts["tokens"] += sum(sum(row["response_mask"]) for row in rows)
        return pa.Table.from_pylist(rows, schema=ROLLOUTS)

    def _rewarded(self, sample: Sample, question: Row) -> Rewarded:
        if sample.response is None:
            return Rewarded()
        overlong = self._task.settings.rollouts.overlong
        if sample.is_cut and overlong is Overlong.MASK:
            return Rewarded(error="a turn was cut at its budget")
        rewarded = self._reward(sample.response, question["references"])
        if sample.is_cut and overlong is Overlong.ZERO and rewarded.reward is not None:
            return replace(rewarded, reward=0.0)
        return rewarded

    def _rows(self, sample: Sample, *, learnt: bool) -> Iterator[Row]:
        settings = self._task.settings
        ended = sample.response is not None
        shared = {
            "sample": sample.address.sample,
            "num_turns": len(sample.turns),
            "answer": extract_answer(sample.response or "", extraction=settings.extraction),
            "status": Status.OK if ended else Status.FAILED,
        }
        if not sample.turns:
            empty = dict.fromkeys(["prompt_token_ids", "response_token_ids", "response_mask"], ())
            yield {**shared, **empty, "is_final": False}
        for number, (prompt, completion) in enumerate(sample.turns):
            yield {
                **shared,
                "turn": number,
                "is_final": ended and number == len(sample.turns) - 1,
                "kind": prompt.kind,
                "prompt_token_ids": prompt.token_ids,
                "response_token_ids": completion.token_ids,
                "response_logprobs": completion.logprobs,
                "response_mask": [int(learnt)] * len(completion.token_ids),
                "finish_reason": completion.finish_reason,
                "max_tokens": prompt.max_tokens,
                "seed": sample.address.turn_seed(prompt.path, seed=settings.sampling.seed),
                "token_start": prompt.span and prompt.span.token_start,
                "token_end": prompt.span and prompt.span.token_end,
            }

    def _count(self, samples: Sequence[Sample], rewards_G: Sequence[float | None], *, dropped: bool) -> None:
        failed = sum(sample.response is None for sample in samples)
        self.counts["groups"] += 1
        self.counts["dropped_groups"] += dropped
        self.counts["samples"] += len(samples)
        self.counts["failed_samples"] += failed
        self.counts["samples_without_reward"] += sum(reward is None for reward in rewards_G) - failed
        self.counts["reward_sum"] += sum(reward for reward in rewards_G if reward is not None)


def group_id(document_id: str, question_id: str) -> str:
    """Id of the group of a document and a question, 16 hex digits."""
    return hashlib.sha256(json.dumps([document_id, question_id]).encode()).hexdigest()[:16]


def _constant_columns(task: RolloutTask) -> dict[str, Any]:
    settings, parts = task.settings, task.reader.parts
    return {
        "run_id": task.run_id,
        "data_source": settings.rollouts.data_source,
        "model": settings.model,
        "weights_version": settings.weights_version or parts["model_sha256"][:16],
        "tokenizer_hash": parts["tokenizer_sha256"],
        "chat_template_hash": parts["chat_template_sha256"],
        "prompt_set": parts["prompt_set"],
        **settings.sampling.model_dump(include={"temperature", "top_p", "top_k"}),
    }


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
