"""What the loop says and does where readings fail, with an engine that refuses them."""

from dataclasses import replace
from pathlib import Path

import pytest

from memagent_batch.config.training import TrainLoopConfig
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.errors import EngineRequestError, EngineUnavailableError, RunFailedError
from memagent_batch.flows.train_loop import at_step, sampled
from memagent_batch.training.learner.sampling import Sampler, TableTasks, Task, reward_counts
from memagent_batch.training.learner.steps import Step
from memagent_batch.training.rollouts.table import mean_reward
from tests.training.learner.loop_inputs import loop_config


class RefusingEngine:
    """Refuses the seeds that are odd, or all, or raises another error at these; answers others with one token."""

    def __init__(self, *, refuse_all: bool, error: Exception) -> None:
        self._refuse_all = refuse_all
        self._error = error

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        if self._refuse_all or seed % 2:
            raise self._error
        return Completion(token_ids=[5], text="\\boxed{x}", finish_reason=FinishReason.STOP, logprobs=[-0.5])


def sampler_of(training: TrainLoopConfig, *, refuse_all: bool = False, error: Exception | None = None) -> Sampler:
    current = sampled(at_step(training, Step(Path(training.output), 0)))
    return Sampler(RefusingEngine(refuse_all=refuse_all, error=error or EngineRequestError("no")), current)


@pytest.mark.asyncio
async def test_sampler_warns_of_readings_that_failed_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = loop_config(tmp_path, max_steps=1)
    tasks = TableTasks(training)(1)
    read = await sampler_of(training).read(tasks)
    samples = [sample for each in read for sample in each.samples]
    failed = [sample for sample in samples if sample.response is None]
    assert 0 < len(failed) < len(samples) == 8
    lines = [line for line in caplog.messages if line.endswith(": no")]
    assert len(lines) == len(failed)
    assert {line.split(chr(39))[1] for line in lines} <= {task.document_id for task in tasks}


@pytest.mark.asyncio
async def test_sampler_question_over_its_budget_is_logged_and_costs_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = loop_config(tmp_path, max_steps=1)
    tasks = TableTasks(training)(1)
    long = Task(document_id="d", text="text", question_id="long", question="why " * 200, references=("x",))
    read = await sampler_of(training).read([long, *tasks])
    assert [sample.response for sample in read[0].samples] == [None] * 4
    assert any(sample.response is not None for each in read[1:] for sample in each.samples)
    assert "question 'long' has" in caplog.text


@pytest.mark.asyncio
async def test_sampler_that_can_read_nothing_stops_the_loop(tmp_path: Path) -> None:
    training = loop_config(tmp_path, max_steps=1)
    with pytest.raises(RunFailedError, match="none of 8 samples could be read"):
        await sampler_of(training, refuse_all=True).read(TableTasks(training)(1))
    with pytest.raises(RunFailedError, match="none of 0 samples"):
        await sampler_of(training).read([])


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), EngineUnavailableError("away")])
async def test_sampler_stops_the_loop_at_what_is_no_error_of_a_reading(tmp_path: Path, error: Exception) -> None:
    training = loop_config(tmp_path, max_steps=1)
    with pytest.raises(type(error), match=str(error)):
        await sampler_of(training, error=error).read(TableTasks(training)(1))


@pytest.mark.asyncio
async def test_held_out_reward_is_the_mean_over_samples_that_have_one(tmp_path: Path) -> None:
    training = loop_config(tmp_path, max_steps=1)
    sampler = sampler_of(training)
    asked = [replace(task, references=("x",)) for task in TableTasks(training)(1)]
    counts = reward_counts(await sampler.read(asked), training=training, sampler=sampler)
    assert 0 < counts["failed_samples"] < counts["samples"]
    assert mean_reward(counts) == 1.0


def test_mean_reward_without_a_rewarded_sample_is_none() -> None:
    assert mean_reward({"samples": 2, "failed_samples": 1, "samples_without_reward": 1, "reward_sum": 0.0}) is None
