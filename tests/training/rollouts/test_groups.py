"""A group of samples as rows: what each sample is worth to the others."""

from memagent_batch.apps.training.rollouts.groups import GroupMaker, GroupQuestion, GroupSample
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import RolloutConfig
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
    asked = GroupQuestion(document_id="d", document_hash="d", question_id="q", references=["7"])
    group = maker.group(asked, [sample_of(0, response="\\boxed{7}"), silent, broken])
    assert group is not None
    rewards = {row["sample"]: (row["reward"], row["advantage"]) for row in group.to_pylist()}
    assert rewards == {0: (1.0, 0.5), 1: (0.0, -0.5), 2: (None, None)}
    assert maker.counts["failed_samples"] == 1
