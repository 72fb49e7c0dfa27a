from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import RolloutConfig
from memagent_batch.errors import InputError, OutputError, SettingsError
from memagent_batch.flows import train_loop as loop
from memagent_batch.training.learner.sampling import TableTasks, require_sources
from memagent_batch.training.learner.steps import Step, claim_loop
from tests.training.learner.loop_inputs import NAMES, loop_config


def test_table_tasks_take_every_question_once_an_epoch_and_never_a_held_out_one(tmp_path: Path) -> None:
    tasks = TableTasks(loop_config(tmp_path, max_steps=1))
    epochs = [[task.document_id for step in steps for task in tasks(step)] for steps in ((1, 2), (3, 4), (5, 6))]
    assert all(sorted(names) == sorted(NAMES[:-1]) for names in epochs)
    assert len({tuple(names) for names in epochs}) > 1
    assert [task.text for task in tasks(1)] == [task.text for task in tasks(1)]


def test_table_tasks_that_fill_no_step_wait_for_another_epoch(tmp_path: Path) -> None:
    training = loop_config(tmp_path, max_steps=1)
    loop = training.loop.model_copy(update={"questions_per_step": 3})
    tasks = TableTasks(training.model_copy(update={"loop": loop}))
    steps = [frozenset(task.document_id for task in tasks(step)) for step in range(1, 40)]
    assert {len(names) for names in steps} == {3}
    assert frozenset.union(*steps) == set(NAMES[:-1])


def test_table_tasks_of_an_unreadable_document_are_logged_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    training = loop_config(tmp_path, max_steps=1)
    path = tmp_path / "documents.parquet"
    rows = pq.read_table(path)
    gone = pc.if_else(pc.equal(rows["document_id"], NAMES[1]), pa.scalar(None, pa.string()), rows["text"])
    pq.write_table(rows.set_column(rows.column_names.index("text"), "text", gone), path)
    tasks = TableTasks(training)
    names = [task.document_id for step in (1, 2) for task in tasks(step)]
    assert sorted(names) == sorted({*NAMES[:-1]} - {NAMES[1]})
    assert f"document '{NAMES[1]}' can't be read, nothing is asked of it" in caplog.text


def test_table_tasks_of_fewer_questions_than_a_step_takes_are_all_of_them(tmp_path: Path) -> None:
    training = loop_config(tmp_path, max_steps=1)
    wide = training.model_copy(update={"loop": training.loop.model_copy(update={"questions_per_step": 128})})
    tasks = TableTasks(wide)
    assert [sorted(task.document_id for task in tasks(step)) for step in (1, 2)] == [sorted(NAMES[:-1])] * 2


def test_table_tasks_without_a_question_to_learn_from_are_refused(tmp_path: Path) -> None:
    training = loop_config(tmp_path, max_steps=1)
    held_out = training.loop.model_copy(update={"held_out": require_sources(training).questions})
    with pytest.raises(InputError, match="no question can be learnt from"):
        TableTasks(training.model_copy(update={"loop": held_out}))


def test_claim_loop_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    claim_loop(loop_config(tmp_path, max_steps=1))
    claim_loop(loop_config(tmp_path, max_steps=9))
    with pytest.raises(OutputError, match=r"other settings in learner\.clip_low, learner\.kl_weight;"):
        claim_loop(loop_config(tmp_path, max_steps=1, clip_low=0.5, kl_weight=0.0))


def test_claim_loop_what_helps_a_loop_that_failed_may_be_changed(tmp_path: Path) -> None:
    training = loop_config(tmp_path, max_steps=1)
    claim_loop(training)
    vllm = training.agent.vllm.model_copy(update={"gpu_memory_utilization": 0.4})
    pool = training.pool.model_copy(update={"readings_in_flight": 3})
    changed = loop_config(tmp_path, max_steps=1, learning_rate=1e-7, batch_tokens=64)
    agent = changed.agent.model_copy(update={"vllm": vllm})
    assert claim_loop(changed.model_copy(update={"agent": agent, "pool": pool})) == tmp_path / "loop"


def test_claim_loop_killed_while_it_wrote_its_record_is_claimed_again(tmp_path: Path) -> None:
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / ".tmp-loop.json").write_text("{")
    assert claim_loop(loop_config(tmp_path, max_steps=1)) == tmp_path / "loop"


def write_step(folder: Path, number: int, *, with_state: bool) -> Step:
    step = Step(folder, number)
    step.model.mkdir(parents=True)
    if with_state:
        step.state.write_bytes(b"state")
    step.write_update({"step": number, "step_seconds": 40.0})
    return step


def test_loop_killed_right_after_an_update_drops_the_weights_before_and_no_kept_ones(tmp_path: Path) -> None:
    folder = claim_loop(loop_config(tmp_path, max_steps=9))
    kept, left, last = (write_step(folder, number, with_state=number > 1) for number in (1, 2, 3))
    loop.drop_left_weights(loop_config(tmp_path, max_steps=9), folder)
    assert [step.model.exists() for step in (kept, left, last)] == [True, False, True]
    assert [step.state.exists() for step in (kept, left, last)] == [False, False, True]


def test_loop_minutes_are_those_of_steps_and_of_held_out_readings(tmp_path: Path) -> None:
    training = loop_config(tmp_path, max_steps=9)
    timed = training.model_copy(update={"loop": training.loop.model_copy(update={"max_minutes": 1.0})})
    folder = claim_loop(timed)
    step = write_step(folder, 1, with_state=True)
    assert not loop.is_spent(timed, folder)
    step.write_evaluation({"held_out_reward": 1.0, "held_out": 1, "held_out_failed": 0, "evaluation_seconds": 30.0})
    assert loop.is_spent(timed, folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output": "s3://bucket/loop"}, "a folder of this machine, not to s3://bucket/loop"),
        ({"agent": AgentConfig(engine="openai")}, "'openai' can't take new weights"),
        ({"agent": AgentConfig(window_tokens=100)}, "window_tokens"),
        ({"rollouts": RolloutConfig(reward="absent.module:score")}, "can't be imported"),
    ],
)
def test_train_loop_that_can_not_begin_leaves_no_output(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    training = loop_config(tmp_path, max_steps=1)
    with pytest.raises(SettingsError, match=said):
        loop.train_loop(training.model_copy(update=change), tasks=TableTasks(training), held_out=[])
    assert not (tmp_path / "loop").exists()


def test_train_loop_without_a_budget_is_refused(tmp_path: Path) -> None:
    training = loop_config(tmp_path, max_steps=1)
    endless = training.model_copy(update={"loop": training.loop.model_copy(update={"max_steps": None})})
    with pytest.raises(SettingsError, match="no budget"):
        loop.train_loop(endless, tasks=TableTasks(endless), held_out=[])
