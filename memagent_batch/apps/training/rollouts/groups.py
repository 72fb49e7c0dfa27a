"""A group of samples as rows of `rollouts`: each rewarded, compared with its siblings, and written turn by turn."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict, cast

import numpy as np
import pyarrow as pa

from memagent_batch.apps.training.rollouts.reward_server import Reply
from memagent_batch.apps.training.rollouts.rewarder import Rewarder
from memagent_batch.apps.training.rollouts.rewards import group_advantages, rewards_are_equal
from memagent_batch.apps.training.rollouts.table import ROLLOUTS
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import Overlong, RolloutConfig
from memagent_batch.data.store.turn_log.index import Row
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuestion:
    """What the samples of a group were asked."""

    document_id: str
    document_hash: str
    """SHA-256 of its text; empty where it could not be read."""
    question_id: str
    references: Sequence[str] | None


class GroupMaker:
    """Makes the rows of groups, and counts them."""

    def __init__(self, agent: AgentConfig, rollouts: RolloutConfig, *, run_id: str, reader: ReaderIdentity) -> None:
        self._agent, self._rollouts = agent, rollouts
        self._constant = _constant_columns(agent, rollouts, run_id=run_id, reader=reader)
        self._reward = Rewarder(rollouts, extraction=agent.extraction)
        self.counts: dict[str, float] = dict.fromkeys(GROUP_COUNTS, 0)

    def close(self) -> None:
        """Ends what runs beside."""
        self._reward.close()

    def group(self, asked: GroupQuestion, samples: Sequence[GroupSample]) -> pa.Table | None:
        """The group's rows, a table of `ROLLOUTS`; None where it teaches nothing and is left out."""
        settings = self._rollouts
        rewarded_G = [self._rewarded(sample, asked) for sample in samples]
        rewards_G = [rewarded.get("reward") for rewarded in rewarded_G]
        advantages_G = group_advantages(rewards_G, kind=settings.advantage)
        dropped = settings.drop_equal and rewards_are_equal(rewards_G)
        self._count(samples, rewards_G, dropped=dropped)
        if dropped:
            return None
        shared = {
            **self._constant,
            "group_id": group_id(asked.document_id, asked.question_id),
            "document_id": asked.document_id,
            "question_id": asked.question_id,
            "ground_truth": asked.references,
            "document_hash": asked.document_hash or None,
        }
        rows = [
            {**shared, "reward": reward, "reward_error": rewarded.get("error"), "advantage": advantage, **row}
            for sample, rewarded, reward, advantage in zip(samples, rewarded_G, rewards_G, advantages_G, strict=True)
            for row in self._rows(sample, learnt=advantage is not None)
        ]
        self.counts["rows"] += len(rows)
        self.counts["tokens"] += sum(sum(row["response_mask"]) for row in rows)
        return pa.Table.from_pylist(rows, schema=ROLLOUTS)

    def _rewarded(self, sample: GroupSample, asked: GroupQuestion) -> Reply:
        overlong = self._rollouts.overlong
        if sample.response is None:
            is_worthless = sample.is_unanswered and not (sample.is_cut and overlong is Overlong.MASK)
            return Reply(reward=0.0) if is_worthless else Reply()
        if sample.is_cut and overlong is Overlong.MASK:
            return Reply(error="a turn was cut at its budget")
        rewarded = self._reward(sample.response, asked.references)
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

    def _count(self, samples: Sequence[GroupSample], rewards_G: Sequence[float | None], *, dropped: bool) -> None:
        failed = sum(sample.response is None and not sample.is_unanswered for sample in samples)
        self.counts["groups"] += 1
        self.counts["dropped_groups"] += dropped
        self.counts["samples"] += len(samples)
        self.counts["failed_samples"] += failed
        self.counts["samples_without_reward"] += sum(reward is None for reward in rewards_G) - failed
        self.counts["reward_sum"] += sum(reward for reward in rewards_G if reward is not None)


def group_id(document_id: str, question_id: str) -> str:
    """Id of the group of a document and a question, 16 hex digits."""
    return hashlib.sha256(json.dumps([document_id, question_id]).encode()).hexdigest()[:16]


def _constant_columns(agent: AgentConfig, rollouts: RolloutConfig, *, run_id: str, reader: ReaderIdentity) -> Row:
    return {
        "run_id": run_id,
        "data_source": rollouts.data_source,
        "model": agent.model,
        "weights_version": agent.weights_version or weights_version(reader.parts["model_sha256"]),
        "tokenizer_hash": reader.parts["tokenizer_sha256"],
        "chat_template_hash": reader.parts["chat_template_sha256"],
        "prompt_set": reader.parts["prompt_set"],
        **agent.sampling.model_dump(include={"temperature", "top_p", "top_k"}),
    }
