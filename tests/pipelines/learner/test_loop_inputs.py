from pathlib import Path

import pytest
from loop_inputs import NAMES, loop_settings

from memagent_batch.errors import InputError, OutputError, SettingsError
from pipelines import train_loop as loop
from pipelines.learner.steps import claim_loop
from pipelines.learner.tasks import TableTasks


def test_table_tasks_take_every_question_once_an_epoch_and_never_a_held_out_one(tmp_path: Path) -> None:
    tasks = TableTasks(loop_settings(tmp_path, max_steps=1))
    epochs = [[task.document_id for step in steps for task in tasks(step)] for steps in ((1, 2), (3, 4), (5, 6))]
    assert all(sorted(names) == sorted(NAMES[:-1]) for names in epochs)
    assert len({tuple(names) for names in epochs}) > 1
    assert [task.text for task in tasks(1)] == [task.text for task in tasks(1)]


def test_table_tasks_fewer_questions_than_a_step_takes_are_refused(tmp_path: Path) -> None:
    settings = loop_settings(tmp_path, max_steps=1)
    wide = settings.model_copy(update={"learner": settings.learner.model_copy(update={"questions_per_step": 5})})
    with pytest.raises(InputError, match=r"4 questions.*a step takes 5"):
        TableTasks(wide)


def test_claim_loop_other_knobs_are_refused_by_name(tmp_path: Path) -> None:
    claim_loop(loop_settings(tmp_path, max_steps=1))
    claim_loop(loop_settings(tmp_path, max_steps=9))
    with pytest.raises(OutputError, match="other knobs in learner"):
        claim_loop(loop_settings(tmp_path, max_steps=1, learning_rate=1.0))


def test_train_loop_without_a_budget_is_refused(tmp_path: Path) -> None:
    settings = loop_settings(tmp_path, max_steps=1)
    endless = settings.model_copy(update={"loop": settings.loop.model_copy(update={"max_steps": None})})
    with pytest.raises(SettingsError, match="no budget"):
        loop.train_loop(endless, tasks=TableTasks(endless), held_out=[])
