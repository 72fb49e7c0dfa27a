"""Rollouts of policy `parallel`, whose turns are siblings and no chain, from the collection to each trainer's files."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.apps.training.collect import collect
from memagent_batch.loop.tokens.tokenizer import load_tokenizer
from tests.flows.training import drawing_engine
from tests.flows.training.collected import NOISE, rows_of, write_inputs
from tests.jobs import small_job

GROUP_SIZE = 8
CHUNK_TOKENS = 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, text_model: str) -> Path:
    folder = tmp_path_factory.mktemp("parallel")
    write_inputs(folder, {"d": NOISE * 2, "e": NOISE * 3}, references=[drawing_engine.RIGHT])
    inputs = {name: str(folder / f"{name}.parquet") for name in ("documents", "questions")}
    policy = {"kind": "parallel", "rounds": 2, "chunk_tokens": CHUNK_TOKENS, "break_at": "length"}
    own = {"engine": drawing_engine.KIND, "rollouts": {"group_size": GROUP_SIZE}, "allow_code": True}
    collect(small_job(folder, text_model, **inputs, **own, policy=policy))
    return folder


def samples_of(folder: Path) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Turns by group and sample, in the order of the table."""
    samples: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows_of(folder / "run"):
        samples[row["group_id"], row["sample"]].append(row)
    return samples


def test_rollouts_of_siblings_stand_in_the_order_of_asking_and_share_one_advantage(
    folder: Path, text_model: str
) -> None:
    samples, no_news = samples_of(folder), load_tokenizer(text_model).encode("none")
    assert len(samples) == 2 * GROUP_SIZE
    rewards: dict[str, list[float]] = defaultdict(list)
    for (group, _), turns in samples.items():
        assert [turn["turn"] for turn in turns] == list(range(len(turns)))
        starts = [turn["token_start"] for turn in turns if turn["kind"] == "read"]
        chunks = range(0, max(starts) + 1, CHUNK_TOKENS)
        assert starts in ([*chunks], [*chunks] * 2), "one round or two, each in the order of the document"
        first_round = turns[: len(chunks)]
        assert {turn["kind"] for turn in first_round} == {"read"}
        has_news = any(turn["response_token_ids"] != no_news for turn in first_round)
        assert has_news == ("merge" in {turn["kind"] for turn in turns})
        assert [turn["kind"] for turn in turns if turn["is_final"]] == ["answer"]
        (advantage,) = {turn["advantage"] for turn in turns}
        assert advantage == pytest.approx(turns[-1]["reward"] - mean_reward(samples, group))
        assert all(turn["response_mask"] == [1] * len(turn["response_logprobs"]) for turn in turns)
        rewards[group].append(turns[-1]["reward"])
    assert {reward for of_group in rewards.values() for reward in of_group} == {0.0, 1.0}


def mean_reward(samples: dict[tuple[str, int], list[dict[str, Any]]], group: str) -> float:
    rewards = [turns[-1]["reward"] for (name, _), turns in samples.items() if name == group]
    return float(sum(rewards) / len(rewards))
