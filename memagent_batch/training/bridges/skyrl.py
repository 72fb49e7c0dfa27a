"""The bridge to SkyRL: step-wise trajectories, the steps of a trajectory side by side, the reward on its last step.

SkyRL makes the advantages itself, from the last step of each trajectory.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.scoring.advantages import Advantage
from memagent_batch.training.bridges.bridge import (
    LOCATOR,
    MESSAGES,
    OVERRIDES_FILE,
    Exported,
    Group,
    override_lines,
    user_message,
)
from memagent_batch.training.bridges.exports import PROMPTS_FILE


class SkyrlBridge:
    """Turns in the fields of SkyRL's GeneratorOutput."""

    turns = pa.schema(
        [
            pa.field("instance_id", pa.string()),
            pa.field("repetition_id", pa.int32()),
            pa.field("prompt_token_ids", pa.list_(pa.int32())),
            pa.field("response_ids", pa.list_(pa.int32())),
            pa.field("rewards", pa.list_(pa.float32())),
            pa.field("loss_masks", pa.list_(pa.int8())),
            pa.field("stop_reasons", pa.string()),
            pa.field("rollout_logprobs", pa.list_(pa.float32())),
            pa.field("is_last_step", pa.bool_()),
        ]
    )
    prompts = pa.schema(
        [
            pa.field("data_source", pa.string()),
            pa.field("prompt", MESSAGES),
            pa.field("env_class", pa.string()),
            pa.field("replay", LOCATOR),
        ]
    )

    def turn_rows(self, rows: pa.Table, *, group: int, sample: int) -> pa.Table:
        """See `Bridge`. Rewards are one for each token: all zero but the last of the last step."""
        rewards = [
            np.zeros(length, np.float32) for length in pc.list_value_length(rows["response_token_ids"]).to_pylist()
        ]
        rewards[-1][-1] = rows["reward"][0].as_py()
        columns = {
            "instance_id": rows["group_id"],
            "repetition_id": [sample] * rows.num_rows,
            "prompt_token_ids": rows["prompt_token_ids"],
            "response_ids": rows["response_token_ids"],
            "rewards": rewards,
            "loss_masks": rows["response_mask"],
            "stop_reasons": rows["finish_reason"],
            "rollout_logprobs": rows["response_logprobs"],
            "is_last_step": [False] * (rows.num_rows - 1) + [True],
        }
        return pa.table(columns, schema=self.turns)

    def prompt_row(self, group: Group) -> dict[str, object]:
        """See `Bridge`."""
        return {
            "data_source": group.first_row["data_source"],
            "prompt": user_message(group),
            "env_class": "memagent_replay",
            "replay": group.locator,
        }

    def settings(self, exported: Exported) -> dict[str, str]:
        """See `Bridge`."""
        return {OVERRIDES_FILE: override_lines(_skyrl_overrides(exported))}


def _skyrl_overrides(exported: Exported) -> dict[str, object]:
    """What the table decides, and the objective of Multi-Conv DAPO (MemAgent, arXiv 2507.02259)."""
    algorithm = "trainer.algorithm"
    return {
        "data.train_data": f"['{exported.uri}/{PROMPTS_FILE}']",
        "generator.step_wise_trajectories": "true",
        "generator.n_samples_per_prompt": exported.group_size,
        f"{algorithm}.advantage_estimator": "rloo" if exported.advantage is Advantage.LEAVE_ONE_OUT else "grpo",
        f"{algorithm}.grpo_norm_by_std": str(exported.advantage is Advantage.STANDARDISED).lower(),
        f"{algorithm}.loss_reduction": "token_mean",
        f"{algorithm}.eps_clip_low": 0.2,
        f"{algorithm}.eps_clip_high": 0.2,
        f"{algorithm}.use_kl_loss": "true",
        f"{algorithm}.kl_loss_coef": 0.001,
        "trainer.policy.optimizer_config.lr": 1e-6,
        "trainer.eval_interval": -1,
        "trainer.eval_before_train": "false",
    }
