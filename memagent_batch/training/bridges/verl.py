"""The bridge to verl (v1 trainer): a replaying agent loop returns each sample as a list of outputs, one a turn.

verl makes the advantages itself, from the reward of each sample's last output.
"""

import pyarrow as pa

from memagent_batch.domain.scoring.advantages import Advantage
from memagent_batch.errors import SettingsError
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

AGENT_NAME = "memagent_replay"
AGENT_LOOP_FILE = "agent_loop.yaml"

_FIELDS = {
    "prompt_token_ids": "prompt_ids",
    "response_token_ids": "response_ids",
    "response_mask": "response_mask",
    "response_logprobs": "response_logprobs",
    "reward": "reward_score",
}
"""Columns of `ROLLOUTS` and the fields of verl's AgentLoopOutput."""


class VerlBridge:
    """Turns in the fields of verl's AgentLoopOutput; a data set that names the agent loop."""

    turns = pa.schema(
        [
            pa.field("group_id", pa.string()),
            pa.field("session_id", pa.int32()),
            pa.field("turn", pa.int32()),
            pa.field("prompt_ids", pa.list_(pa.int32())),
            pa.field("response_ids", pa.list_(pa.int32())),
            pa.field("response_mask", pa.list_(pa.int8())),
            pa.field("response_logprobs", pa.list_(pa.float32())),
            pa.field("reward_score", pa.float64()),
        ]
    )
    prompts = pa.schema(
        [
            pa.field("data_source", pa.string()),
            pa.field("agent_name", pa.string()),
            pa.field("prompt", MESSAGES),
            pa.field(
                "reward_model",
                pa.struct([pa.field("style", pa.string()), pa.field("ground_truth", pa.list_(pa.string()))]),
            ),
            pa.field("extra_info", LOCATOR),
            pa.field("__rollout_n__", pa.int64()),
        ]
    )

    def turn_rows(self, rows: pa.Table, *, group: int, sample: int) -> pa.Table:
        """See `Bridge`."""
        columns = {name: rows[column] for column, name in _FIELDS.items()}
        columns |= {"group_id": rows["group_id"], "turn": rows["turn"]}
        columns |= {"session_id": pa.array([sample] * rows.num_rows, pa.int32())}
        return pa.table({name: columns[name] for name in self.turns.names}, schema=self.turns)

    def prompt_row(self, group: Group) -> dict[str, object]:
        """See `Bridge`. `__rollout_n__` is how many sessions verl starts for the row."""
        return {
            "data_source": group.first_row["data_source"],
            "agent_name": AGENT_NAME,
            "prompt": user_message(group),
            "reward_model": {"style": "rule", "ground_truth": group.first_row["ground_truth"] or []},
            "extra_info": group.locator,
            "__rollout_n__": group.num_samples,
        }

    def settings(self, exported: Exported) -> dict[str, str]:
        """See `Bridge`."""
        if exported.advantage is Advantage.LEAVE_ONE_OUT:
            raise SettingsError(
                "--to verl: verl makes the advantages of samples of several turns itself, centred or standardised; "
                "collect again with --rollouts.advantage centred: the log answers, nothing is sampled again"
            )
        loop = f"- name: {AGENT_NAME}\n  _target_: memagent_batch.training.bridges.verl_replay.ReplayingAgentLoop\n"
        return {
            AGENT_LOOP_FILE: f"{loop}  export: {exported.uri}\n",
            OVERRIDES_FILE: override_lines(_verl_overrides(exported)),
        }


def _verl_overrides(exported: Exported) -> dict[str, object]:
    """What the table decides, and the objective of Multi-Conv DAPO (MemAgent, arXiv 2507.02259)."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return {
        "data.train_files": f"{exported.uri}/{PROMPTS_FILE}",
        "data.val_files": f"{exported.uri}/{PROMPTS_FILE}",
        "data.filter_overlong_prompts": False,
        "data.max_prompt_length": exported.longest_prompt_tokens,
        "data.max_response_length": exported.longest_response_tokens,
        f"{rollout}.agent.agent_loop_config_path": f"{exported.uri}/{AGENT_LOOP_FILE}",
        f"{rollout}.n": exported.group_size,
        f"{rollout}.calculate_log_probs": True,
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": exported.advantage is Advantage.STANDARDISED,
        "algorithm.rollout_correction.bypass_mode": True,
        f"{actor}.loss_agg_mode": "token-mean",
        f"{actor}.clip_ratio": 0.2,
        f"{actor}.use_kl_loss": True,
        f"{actor}.kl_loss_coef": 0.001,
        f"{actor}.kl_loss_type": "low_var_kl",
        f"{actor}.optim.lr": 1e-6,
        "trainer.use_v1": True,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
    }
