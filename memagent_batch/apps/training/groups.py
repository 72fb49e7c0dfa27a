"""A group of samples as rows of `rollouts`: each rewarded, compared with its siblings, and written turn by turn."""

import hashlib
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, cast

import numpy as np
import pyarrow as pa

from memagent_batch.apps.training.reward_server import Reply
from memagent_batch.apps.training.rewards import Rewarder
from memagent_batch.apps.training.rollouts_table import ROLLOUTS
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import Advantage, Overlong, RolloutConfig
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.data.store.turn_log.question_list import AskedQuestion
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.loop.completions import extract_answer
from memagent_batch.loop.models.weights import weights_version
from memagent_batch.run.wiring import ReaderIdentity
from memagent_batch.types import Completion, FinishReason, Prompt, Status


class GroupCounts(TypedDict):
    """What a part counts; `groups` are all, the dropped ones among them; `tokens` are those that are learnt from."""

    groups: int
    dropped_groups: int
    samples: int
    failed_samples: int
    samples_without_reward: int
    rows: int
    tokens: int
    reward_sum: float


GROUP_COUNTS = tuple(GroupCounts.__annotations__)
EPSILON = 1e-6
"""Added to the standard deviation before it divides, as trainers do."""


@dataclass(slots=True, kw_only=True)
class GroupSample:
    """One sample of a group. Mutable: its turns are added as they are replayed."""

    address: ReadingAddress
    turns: list[tuple[Prompt, Completion]] = field(default_factory=list)
    """Its conversations, in the order in which the policy asked."""
    response: str | None = None
    """The last response; None where the sample failed."""
    is_unanswered: bool = False
    """Whether it failed by what the model wrote: nothing, a thought alone, or a refusal."""

    def add_turn(self, prompt: Prompt, completion: Completion) -> None:
        """Takes a turn; its prompt at 4 bytes a token, since a group holds the prompts of all its samples at once."""
        token_ids = cast("Sequence[int]", np.asarray(prompt.token_ids, dtype=np.int32))
        self.turns.append((replace(prompt, token_ids=token_ids), completion))

    @property
    def is_cut(self) -> bool:
        """Whether any turn was cut at its budget."""
        return any(completion.finish_reason == FinishReason.LENGTH for _, completion in self.turns)


class GroupMaker:
    """Makes the rows of groups, and counts them."""

    def __init__(self, agent: AgentConfig, rollouts: RolloutConfig, *, run_id: str, reader: ReaderIdentity) -> None:
        self._agent, self._rollouts = agent, rollouts
        self._constant: Row = {
            "run_id": run_id,
            "data_source": rollouts.data_source,
            "model": agent.model,
            "weights_version": agent.weights_version or weights_version(reader.parts["model_sha256"]),
            "tokenizer_hash": reader.parts["tokenizer_sha256"],
            "chat_template_hash": reader.parts["chat_template_sha256"],
            "prompt_set": reader.parts["prompt_set"],
            **agent.sampling.model_dump(include={"temperature", "top_p", "top_k"}),
        }
        self._reward = Rewarder(rollouts, extraction=agent.extraction)
        self.counts: dict[str, float] = dict.fromkeys(GROUP_COUNTS, 0)

    def close(self) -> None:
        """Ends what runs beside."""
        self._reward.close()

    def group(
        self, question: AskedQuestion, samples: Sequence[GroupSample], *, document_id: str, document_hash: str | None
    ) -> pa.Table | None:
        """The rows of the samples of a question, a table of `ROLLOUTS`; None where they teach nothing and are left out.

        Args:
            question: What was asked.
            samples: All samples of the question and the document.
            document_id: The document.
            document_hash: SHA-256 of its text; None where it could not be read.
        """
        references = question["references"]
        rewarded_G = [self._rewarded(sample, references) for sample in samples]
        rewards_G = [rewarded.get("reward") for rewarded in rewarded_G]
        advantages_G = group_advantages(rewards_G, kind=self._rollouts.advantage)
        is_dropped = self._rollouts.drop_equal and rewards_are_equal(rewards_G)
        num_failed = sum(sample.response is None and not sample.is_unanswered for sample in samples)
        self.counts["groups"] += 1
        self.counts["dropped_groups"] += is_dropped
        self.counts["samples"] += len(samples)
        self.counts["failed_samples"] += num_failed
        self.counts["samples_without_reward"] += rewards_G.count(None) - num_failed
        self.counts["reward_sum"] += sum(reward for reward in rewards_G if reward is not None)
        if is_dropped:
            return None
        shared = {
            **self._constant,
            "group_id": group_id(document_id, question["question_id"]),
            "document_id": document_id,
            "question_id": question["question_id"],
            "ground_truth": references,
            "document_hash": document_hash,
        }
        rows = [
            {**shared, "reward": reward, "reward_error": rewarded.get("error"), "advantage": advantage, **row}
            for sample, rewarded, reward, advantage in zip(samples, rewarded_G, rewards_G, advantages_G, strict=True)
            for row in self._rows(sample, learnt=advantage is not None)
        ]
        self.counts["rows"] += len(rows)
        self.counts["tokens"] += sum(sum(row["response_mask"]) for row in rows)
        return pa.Table.from_pylist(rows, schema=ROLLOUTS)

    def _rewarded(self, sample: GroupSample, references: Sequence[str] | None) -> Reply:
        overlong = self._rollouts.overlong
        if sample.response is None:
            is_worthless = sample.is_unanswered and not (sample.is_cut and overlong is Overlong.MASK)
            return Reply(reward=0.0) if is_worthless else Reply()
        if sample.is_cut and overlong is Overlong.MASK:
            return Reply(error="a turn was cut at its budget")
        rewarded = self._reward(sample.response, references)
        if sample.is_cut and overlong is Overlong.ZERO and "reward" in rewarded:
            return Reply(reward=0.0)
        return rewarded

    def _rows(self, sample: GroupSample, *, learnt: bool) -> Iterator[Row]:
        ended = sample.response is not None
        shared = {
            "sample": sample.address.sample,
            "num_turns": len(sample.turns),
            "answer": extract_answer(sample.response or "", extraction=self._agent.extraction),
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
                "seed": sample.address.turn_seed(prompt.path, seed=self._agent.sampling.seed),
                "token_start": prompt.span and prompt.span.token_start,
                "token_end": prompt.span and prompt.span.token_end,
            }


def group_id(document_id: str, question_id: str) -> str:
    """Id of the group of a document and a question, 16 hex digits."""
    return hashlib.sha256(json.dumps([document_id, question_id]).encode()).hexdigest()[:16]


def group_advantages(rewards_G: Sequence[float | None], *, kind: Advantage) -> list[float | None]:
    """The advantages of a group, shape [G]; those of `centred` and `leave_one_out` sum to zero.

    A member without a reward (its reading failed, or its reward did) has no advantage, and the others are compared
    among themselves. If all rewards are equal, or there is only one, all advantages are exactly zero. (The official
    code gives the only member its reward: an update without a baseline.)
    """
    known = [reward for reward in rewards_G if reward is not None]
    if len(set(known)) <= 1:
        return [None if reward is None else 0.0 for reward in rewards_G]
    mean = statistics.fmean(known)
    match kind:
        case Advantage.CENTRED:
            scale = 1.0
        case Advantage.STANDARDISED:
            scale = 1.0 / (statistics.stdev(known) + EPSILON)
        case Advantage.LEAVE_ONE_OUT:
            scale = len(known) / (len(known) - 1)
    return [None if reward is None else (reward - mean) * scale for reward in rewards_G]


def rewards_are_equal(rewards_G: Sequence[float | None]) -> bool:
    """Whether a group teaches nothing: fewer than two rewards, or all the same."""
    return len({reward for reward in rewards_G if reward is not None}) <= 1
