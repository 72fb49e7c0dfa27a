"""TRL's own AsyncGRPOTrainer learns from an export on CPU: two real optimiser steps of the tiny policy."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing

from tests.bridges.exported import TINY_MODEL, Groups, export_groups, module_of_page

GROUPS: Groups = [[1.0, 0.0], [0.5, None, 0.0], [1.0, 0.25]]
BATCH = 6
"""Turns of an optimiser step. The export has three steps' worth, and the trainer fetches one ahead."""


class AttentionOnCpu:
    """What TRL takes from a GPU kernel, in plain torch: attention over sequences laid end to end."""

    @staticmethod
    def flash_attn_varlen_func(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        query_starts: torch.Tensor,
        key_starts: torch.Tensor,
        longest_query: int,
        longest_key: int,
        *,
        softmax_scale: float,
        causal: bool,
        window_size: tuple[int, int],
    ) -> torch.Tensor:
        assert causal
        assert window_size == (-1, -1)
        heads = query.shape[1] // key.shape[1]
        parts = []
        for number in range(len(query_starts) - 1):
            queries = query[query_starts[number] : query_starts[number + 1]].transpose(0, 1)
            keys, values = (
                cells[key_starts[number] : key_starts[number + 1]].transpose(0, 1).repeat_interleave(heads, 0)
                for cells in (key, value)
            )
            hidden = keys.shape[1] - queries.shape[1]
            seen = torch.ones(queries.shape[1], keys.shape[1], dtype=torch.bool).tril(hidden)
            scores = (queries @ keys.transpose(1, 2) * softmax_scale).masked_fill(~seen, float("-inf"))
            parts.append((scores.softmax(-1) @ values).transpose(0, 1))
        return torch.cat(parts)


@pytest.fixture
def attention_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_flash_attn", AttentionOnCpu)
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda accelerator, dtype: None)  # asks CUDA


@pytest.fixture(scope="module")
def policy() -> Any:
    return AutoModelForCausalLM.from_pretrained(TINY_MODEL, dtype="float32")


def test_trl_trainer_finds_the_logprobs_of_the_sampled_tokens_and_takes_a_step(
    tmp_path: Path, policy: Any, attention_on_cpu: None
) -> None:
    export = export_groups(
        tmp_path, GROUPS, to="trl", changes=lambda row: {"response_logprobs": sampled_logprobs(policy, row)}
    )
    before = [weights.detach().clone() for weights in policy.parameters()]

    trainer = make_trainer(export, TINY_MODEL, output=tmp_path / "run", max_steps=2)
    trainer.train()

    first, second = trainer.state.log_history[:2]
    assert first["ratio"] == pytest.approx(1.0, abs=1e-4)  # masks, tokens and log-probabilities stand in line
    assert first["kl"] == pytest.approx(0.0, abs=1e-4)
    assert second["ratio"] != pytest.approx(1.0, abs=1e-4)  # the step has changed the policy
    assert first["reward"] == pytest.approx((0.5 + 0.25) / 2)  # the first batch's, and that of the one fetched ahead
    assert first["batch/samples_per_row"] == BATCH
    assert any(not torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))


def test_trl_trainer_that_asks_for_more_turns_than_there_are_is_told(tmp_path: Path, attention_on_cpu: None) -> None:
    export = export_groups(tmp_path, GROUPS, to="trl")

    trainer = make_trainer(export, TINY_MODEL, output=tmp_path / "run", max_steps=3)

    with pytest.raises(RuntimeError, match=r"no turns are left in .*trl\.parquet: lower max_steps"):
        trainer.train()


def make_trainer(export: Path, model: str, *, output: Path, max_steps: int) -> AsyncGRPOTrainer:
    """As docs/how-to/training.md says, with settings for a CPU."""
    page = module_of_page("replay_trl.py")
    return AsyncGRPOTrainer(
        model=model,
        args=AsyncGRPOConfig(
            output_dir=str(output),
            max_steps=max_steps,
            per_device_train_batch_size=BATCH,
            token_budget=0,
            max_staleness=max_steps,
            learning_rate=1e-3,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
        ),
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": ""}]]}),
        rollout_worker=page.Replay(str(export)),
        weight_transfer=page.NoWeightTransfer(),
    )


def sampled_logprobs(policy: Any, row: dict[str, Any]) -> list[float]:
    """The log-probabilities that the policy gives the row's response: those of a draw at temperature 1."""
    prompt, response = row["prompt_token_ids"], row["response_token_ids"]
    with torch.no_grad():
        logits = policy(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    chosen: list[float] = logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0].tolist()
    return chosen
