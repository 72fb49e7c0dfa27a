"""SkyRL's own settings, data set, validation and advantages take an export and the page's code; no model runs."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.dataset.dataset import PromptDataset
from skyrl.train.generators.utils import prepare_generator_input
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.trainer_utils import validate_generator_output

from memagent_batch.config.job import Advantage
from tests.bridges.exported import Groups, export_groups, module_of_page, settings_of_page, tiny_tokenizer

GROUPS: Groups = [[1.0, 0.0, None, 0.25], [0.5, None, 0.0], [0.75, None]]
LONE_GROUP = "group-2"
"""Its only sample is left out."""


@pytest.mark.parametrize("advantage", list(Advantage))
def test_skyrl_makes_of_the_replayed_rewards_the_advantages_of_the_table(tmp_path: Path, advantage: Advantage) -> None:
    export = export_groups(tmp_path, GROUPS, to="skyrl", advantage=advantage)
    settings = settings_of_page(
        "skyrl",
        train_data=f"['{export}']",
        n_samples_per_prompt=3,
        advantage_estimator="rloo" if advantage is Advantage.LEAVE_ONE_OUT else "grpo",
        grpo_norm_by_std=str(advantage is Advantage.STANDARDISED).lower(),
    )
    config = SkyRLTrainConfig.from_cli_overrides(settings)
    config.trainer.train_batch_size = config.trainer.policy_mini_batch_size = 2
    trainer = SimpleNamespace(
        cfg=config, tokenizer=tiny_tokenizer(), all_metrics={}, dispatch=SimpleNamespace(get_lcm_dp_size=lambda: 1)
    )

    generated = replay(export, samples=config.generator.n_samples_per_prompt)
    validate_generator_output(2, generated, step_wise=True)
    uids = [trajectory.instance_id for trajectory in generated["trajectory_ids"]]
    generated, uids = RayPPOTrainer.postprocess_generator_output(trainer, generated, uids)
    batch = RayPPOTrainer.convert_to_training_input(trainer, generated, uids)
    batch["values"] = None
    batch = RayPPOTrainer.compute_advantages_and_returns(trainer, batch)

    table = [
        row
        for row in pq.read_table(export.parent / "rollouts/rollouts").to_pylist()
        if row["advantage"] is not None and row["group_id"] != LONE_GROUP
    ]
    for row, advantages, mask in zip(table, batch["advantages"], batch["response_mask"], strict=True):
        learnt = advantages[mask.bool()]
        assert learnt.tolist() == pytest.approx([row["advantage"]] * len(row["response_token_ids"]), abs=1e-4)
    assert torch.equal(batch["loss_mask"].bool(), batch["response_mask"].bool())


def test_skyrl_generator_keeps_tokens_and_logprobs_of_each_step(tmp_path: Path) -> None:
    export = export_groups(tmp_path, GROUPS[:1], to="skyrl")

    generated = replay(export, samples=3)

    table = [row for row in pq.read_table(export.parent / "rollouts/rollouts").to_pylist() if row["status"] == "ok"]
    assert generated["prompt_token_ids"] == [row["prompt_token_ids"] for row in table]
    assert generated["response_ids"] == [row["response_token_ids"] for row in table]
    assert generated["rollout_logprobs"] == [row["response_logprobs"] for row in table]
    assert [trajectory.repetition_id for trajectory in generated["trajectory_ids"]] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def replay(export: Path, *, samples: int) -> Any:
    """What SkyRL's trainer gets when it asks the generator for all prompts of the export's data set."""
    data = PromptDataset(str(export), tiny_tokenizer(), max_prompt_length=1024, num_workers=1)
    prompts = data.collate_fn([data[number] for number in range(len(data))])
    asked, _ = prepare_generator_input(prompts, samples, {"logprobs": 0}, "none", "train", 0)
    return asyncio.run(module_of_page("replay_skyrl.py").Replay().generate(asked))
