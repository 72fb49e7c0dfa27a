"""Collected rollouts on the simulated engine, whose responses are all the same: what becomes of each sample."""

from pathlib import Path
from typing import Any

import pytest
from collected import NOISE, rows_of, write_inputs

from memagent_batch.errors import InputError, SettingsError
from memagent_batch.settings import Settings
from pipelines.collect import collect

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]


def settings_of(folder: Path, model: str, **rollouts: Any) -> Settings:
    return Settings(
        documents=str(folder / "documents.parquet"),
        questions=str(folder / "questions.parquet"),
        output=str(folder / "run"),
        engine="simulated",
        model=model,
        window_tokens=1000,
        policy={"chunk_tokens": 50, "question_tokens": 60, "memory_tokens": 40, "answer_tokens": 40},
        log={"flush_seconds": 0.1},
        rollouts={"group_size": 3, **rollouts},
    )


def test_collect_with_a_reward_of_the_user_marks_the_samples_it_fails_on(tmp_path: Path, text_model: str) -> None:
    write_inputs(tmp_path, {"d": NOISE, "unread": None}, references=["x"])
    knobs = {"reward": "tests.ray_data.rewards_of_mine:raises", "allow_reward_code": True}
    record = collect(settings_of(tmp_path, text_model, **knobs))
    assert record["counts"] == {
        "groups": 2,
        "dropped_groups": 0,
        "samples": 6,
        "failed_samples": 3,
        "samples_without_reward": 3,
        "rows": 3 + sum(row["turn"] is not None for row in rows_of(tmp_path / "run")),
        "tokens": 0,
    }
    assert record["mean_reward"] is None
    ended = [row for row in rows_of(tmp_path / "run") if row["status"] == "ok"]
    assert {row["reward_error"] for row in ended} == {"KeyError: 'score'"}
    assert not any(any(row["response_mask"]) for row in ended)
    failed = [row for row in rows_of(tmp_path / "run") if row["status"] == "failed"]
    assert [(row["document_id"], row["sample"], row["turn"]) for row in failed] == [
        ("unread", sample, None) for sample in range(3)
    ]


def test_collect_leaves_out_groups_that_teach_nothing_where_asked(tmp_path: Path, text_model: str) -> None:
    write_inputs(tmp_path, {"d": NOISE, "e": NOISE * 2}, references=["simulated"])
    kept = collect(settings_of(tmp_path, text_model))
    assert (kept["counts"]["groups"], kept["counts"]["dropped_groups"], kept["mean_reward"]) == (2, 0, 1.0)
    assert {row["advantage"] for row in rows_of(tmp_path / "run")} == {0.0}
    dropped = collect(settings_of(tmp_path, text_model, drop_equal=True))
    assert (dropped["counts"]["dropped_groups"], dropped["counts"]["rows"], dropped["files"]) == (2, 0, [])
    assert not (tmp_path / "run" / "rollouts").exists()


@pytest.mark.parametrize(("overlong", "reward"), [("keep", 1.0), ("zero", 0.0), ("mask", None)])
def test_collect_rewards_cut_samples_as_asked(
    tmp_path: Path, text_model: str, overlong: str, reward: float | None
) -> None:
    write_inputs(tmp_path, {"d": NOISE}, references=["simulated"])
    settings = settings_of(tmp_path, text_model, overlong=overlong)
    cut = settings.policy.model_copy(update={"memory_tokens": 5})
    collect(settings.model_copy(update={"policy": cut}))
    rows = rows_of(tmp_path / "run")
    assert {row["reward"] for row in rows} == {reward}
    assert {mark for row in rows for mark in row["response_mask"]} == {0 if reward is None else 1}


def test_collect_without_any_reference_is_refused(tmp_path: Path, text_model: str) -> None:
    write_inputs(tmp_path, {"d": NOISE}, references=None)
    with pytest.raises(InputError, match="no question has references"):
        collect(settings_of(tmp_path, text_model))
    assert not (tmp_path / "run").exists()


def test_collect_at_another_temperature_is_refused(tmp_path: Path, text_model: str) -> None:
    write_inputs(tmp_path, {"d": NOISE}, references=["x"])
    settings = settings_of(tmp_path, text_model)
    warm = settings.model_copy(update={"sampling": settings.sampling.model_copy(update={"temperature": 0.7})})
    with pytest.raises(SettingsError, match=r"temperature 0\.7"):
        collect(warm)
