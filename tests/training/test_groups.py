"""A group of samples as rows: what each sample is worth to the others."""

import pytest

from memagent_batch.apps.training.groups import GroupMaker, GroupSample, group_advantages, rewards_are_equal
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import Advantage, RolloutConfig
from memagent_batch.data.store.turn_log.question_list import AskedQuestion
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.run.wiring import identify_reader
from memagent_batch.types import Completion, FinishReason, Prompt


def sample_of(number: int, *, response: str | None) -> GroupSample:
    address = ReadingAddress(document_hash="d", question_hash="q", sample=number, fingerprint="r")
    prompt = Prompt(path="update/0", kind="update", token_ids=[5, 6, 7], max_tokens=4)
    completion = Completion(token_ids=[20, 2], text="", finish_reason=FinishReason.STOP, logprobs=[-5.0, -5.0])
    return GroupSample(address=address, turns=[(prompt, completion)], response=response)


def test_sample_whose_model_said_nothing_is_worth_nothing_to_its_group(tiny_model: str) -> None:
    agent = AgentConfig(model=tiny_model)
    maker = GroupMaker(agent, RolloutConfig(), run_id="run", reader=identify_reader(agent))
    silent, broken = sample_of(1, response=None), sample_of(2, response=None)
    silent.is_unanswered = True
    question = AskedQuestion(question_id="q", document_id=None, question="?", references=["7"], question_hash="q")
    samples = [sample_of(0, response="\\boxed{7}"), silent, broken]
    group = maker.group(question, samples, document_id="d", document_hash="d")
    assert group is not None
    rewards = {row["sample"]: (row["reward"], row["advantage"]) for row in group.to_pylist()}
    assert rewards == {0: (1.0, 0.5), 1: (0.0, -0.5), 2: (None, None)}
    assert maker.counts["failed_samples"] == 1


@pytest.mark.parametrize(
    ("kind", "advantages"),
    [
        (Advantage.CENTRED, [0.5, None, 0.0, -0.5]),
        (Advantage.STANDARDISED, [1.0, None, 0.0, -1.0]),
        (Advantage.LEAVE_ONE_OUT, [0.75, None, 0.0, -0.75]),
    ],
)
def test_advantages_of_a_group_with_a_failed_member_are_those_by_hand(
    kind: Advantage, advantages: list[float | None]
) -> None:
    rewards_G = [1.0, None, 0.5, 0.0]
    found = group_advantages(rewards_G, kind=kind)
    assert [each if each is None else round(each, 5) for each in found] == advantages
    assert not rewards_are_equal(rewards_G)


@pytest.mark.parametrize("kind", list(Advantage))
@pytest.mark.parametrize(
    ("rewards_G", "advantages_G"),
    [
        ([0.5], [0.0]),
        ([None, 0.5, None], [None, 0.0, None]),
        ([1.25, 1.25, 1.25], [0.0, 0.0, 0.0]),
        ([None, None], [None, None]),
        ([], []),
    ],
)
def test_group_without_a_difference_has_advantages_of_exactly_zero(
    kind: Advantage, rewards_G: list[float | None], advantages_G: list[float | None]
) -> None:
    assert group_advantages(rewards_G, kind=kind) == advantages_G
    assert rewards_are_equal(rewards_G)
