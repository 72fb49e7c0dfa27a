"""verl's own settings, data set, agent-loop worker and advantages take an export; no model runs.

TransferQueue, which carries turns between processes, is a dictionary here; all else is verl's.
"""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from verl import DataProto
from verl.trainer.ppo.v1 import agent_loop_tq
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

from memagent_batch.config.job import Advantage
from tests.bridges.exported import (
    TINY_MODEL,
    Groups,
    block_of_page,
    export_groups,
    module_of_page,
    settings_of_page,
    tiny_tokenizer,
)

GROUPS: Groups = [[1.0, 0.0, None, 0.25], [0.5, None, 0.0], [0.75, None]]
LONE_GROUP = "group-2"
"""Its only sample is left out."""


class Queue:
    """TransferQueue's key-value part in this process."""

    def __init__(self) -> None:
        self.status: dict[str, str] = {}
        self.turns: dict[str, Any] = {}
        self.tags: dict[str, dict[str, Any]] = {}

    def init(self) -> None:
        """Nothing to set up."""

    async def async_kv_put(self, *, key: str, partition_id: str, tag: dict[str, str]) -> None:
        assert partition_id == "train"
        self.status[key] = tag["status"]

    async def async_kv_batch_put(self, *, keys: list[str], fields: Any, tags: list[Any], partition_id: str) -> None:
        assert partition_id == "train"
        self.turns |= {key: fields[number] for number, key in enumerate(keys)}
        self.tags |= dict(zip(keys, tags, strict=True))


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue()
    monkeypatch.setattr(agent_loop_tq, "tq", queue)
    return queue


@pytest.mark.parametrize("advantage", [Advantage.CENTRED, Advantage.STANDARDISED])
def test_verl_makes_of_the_replayed_rewards_the_advantages_of_the_table(
    tmp_path: Path, queue: Queue, advantage: Advantage
) -> None:
    export = export_groups(tmp_path, GROUPS, to="verl", advantage=advantage)
    config = verl_config(export, norm_adv_by_std_in_grpo=advantage is Advantage.STANDARDISED)

    asyncio.run(replay(export, config))
    data = stored(queue)
    data = compute_advantage_for_multi_trajectories(
        data,
        batch_keys=list(queue.turns),
        adv_estimator=config.algorithm.adv_estimator,
        num_repeat=config.actor_rollout_ref.rollout.n,
        norm_adv_by_std_in_grpo=config.algorithm.norm_adv_by_std_in_grpo,
        config=config.algorithm,
    )

    assert set(queue.status.values()) == {"finished"}
    made = {
        key: row[mask.bool()]
        for key, row, mask in zip(queue.turns, data.batch["advantages"], data.batch["response_mask"], strict=True)
    }
    expected = table_rows(export, column="advantage")
    assert made.keys() == expected.keys()
    for key, (value, tokens) in expected.items():
        assert made[key].tolist() == pytest.approx([value] * tokens, abs=1e-5)


def test_verl_keeps_tokens_masks_and_logprobs_of_each_turn(tmp_path: Path, queue: Queue) -> None:
    export = export_groups(tmp_path, GROUPS, to="verl")

    asyncio.run(replay(export, verl_config(export)))

    for column, field in {
        "prompt_token_ids": "prompts",
        "response_token_ids": "responses",
        "response_mask": "response_mask",
        "response_logprobs": "rollout_log_probs",
    }.items():
        assert {key: turn[field].tolist() for key, turn in queue.turns.items()} == {
            key: value for key, (value, _) in table_rows(export, column=column).items()
        }
    assert all(tag["min_global_steps"] == 7 for tag in queue.tags.values())


def verl_config(export: Path, **changes: object) -> DictConfig:
    """verl's own defaults with the settings of the page, as `python -m verl.trainer.main_ppo` composes them."""
    module_of_page("replay_verl.py")
    loops = export.parent / "replay_verl.yaml"
    loops.write_text(block_of_page("replay_verl.yaml"))
    places = {"train_files": export, "val_files": export, "path": TINY_MODEL, "agent_loop_config_path": loops}
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=settings_of_page("verl", **places, n=3, **changes))


async def replay(export: Path, config: DictConfig) -> None:
    """verl's worker runs all prompts of the export's data set at step 7, as in its v1 trainer."""
    data = RLHFDataset(str(export), tiny_tokenizer(), config.data)
    rows = collate_fn([data[number] for number in range(len(data))])
    rows["uid"] = np.array([row["group_id"] for row in rows["extra_info"]], dtype=object)
    batch = tu.get_tensordict(rows)
    tu.assign_non_tensor_data(batch, "global_steps", 7)
    worker = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class(config, llm_client=None)
    await worker.generate_sequences(batch)
    await asyncio.gather(*worker.background_tasks)


def stored(queue: Queue) -> DataProto:
    """What the v1 trainer reads from the queue to make advantages."""
    turns = list(queue.turns.values())
    fields = {
        name: torch.nn.utils.rnn.pad_sequence([turn[name] for turn in turns], batch_first=True)
        for name in ("response_mask", "rm_scores")
    }
    data = DataProto.from_single_dict(fields)
    data.batch["token_level_rewards"] = data.batch["rm_scores"]
    data.non_tensor_batch["uid"] = np.array([key.rsplit("_", 2)[0] for key in queue.turns], dtype=object)
    return data


def table_rows(export: Path, *, column: str) -> dict[str, tuple[Any, int]]:
    """Of the table's rows that can be learnt from: a column and the number of response tokens, by verl's key."""
    sessions: dict[str, list[int]] = {}
    found = {}
    for row in pq.read_table(export.parent / "rollouts/rollouts").to_pylist():
        if row["advantage"] is not None and row["group_id"] != LONE_GROUP:
            samples = sessions.setdefault(row["group_id"], [])
            samples += [row["sample"]] if row["sample"] not in samples else []
            key = f"{row['group_id']}_{samples.index(row['sample'])}_{row['turn']}"
            found[key] = (row[column], len(row["response_token_ids"]))
    return found
