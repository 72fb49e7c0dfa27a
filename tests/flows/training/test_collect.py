"""Rollouts collected with real vLLM; in `make test-all` also by a driver that is killed in the middle."""

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memagent_batch.domain.addresses import token_hash
from memagent_batch.training.rollouts.table import ROLLOUTS
from tests.faults.killed_job import KilledJob, Role
from tests.flows.training.collected import NOISE, rows_of, write_inputs

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1200)]

Row = dict[str, Any]

GROUP_SIZE = 4
NEEDLE = "The access code of copper-falcon is 7318265."


def groups_of(rows: list[Row]) -> dict[str, dict[int, list[Row]]]:
    """Turns by sample by group."""
    groups: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["group_id"]][row["sample"]].append(row)
    return groups


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    texts = {f"d{size}": NOISE * size + NEEDLE + " " + NOISE * size for size in (3, 20, 40)}
    write_inputs(folder, {**texts, "unread": None}, references=["7318265"])
    return folder


@pytest.fixture(scope="module")
def left_alone(inputs: Path, tiny_model: str) -> Path:
    with collecting(inputs, output=inputs / "alone", model=tiny_model) as job:
        job.start()
        assert job.finish() == 0, job.last_words()
    return inputs / "alone"


@pytest.fixture(scope="module")
def killed(inputs: Path, tiny_model: str) -> Path:
    with collecting(inputs, output=inputs / "killed", model=tiny_model) as job:
        job.start()
        assert job.wait_until(lambda: any((inputs / "killed" / "log" / "turns").glob("*.parquet")))
        driver = job.find(Role.DRIVER)
        assert driver is not None
        job.kill(Role.DRIVER, driver, patience=60)
        assert not (inputs / "killed" / "rollouts.json").exists()
        job.start()
        assert job.finish() == 0, job.last_words()
    return inputs / "killed"


def test_collect_keeps_whole_groups_side_by_side(left_alone: Path) -> None:
    table = pq.read_table(left_alone / "rollouts")
    assert table.schema.equals(ROLLOUTS)
    rows = table.to_pylist()
    order = [(row["group_id"], row["sample"], row["turn"] or 0) for row in rows]
    starts = list(dict.fromkeys(group for group, _, _ in order))
    assert order == sorted(order, key=lambda key: (starts.index(key[0]), key[1], key[2]))
    groups = groups_of(rows)
    assert len(groups) == 4
    assert all(list(samples) == list(range(GROUP_SIZE)) for samples in groups.values())
    for row in rows:
        turns = groups[row["group_id"]][row["sample"]]
        assert row["num_turns"] == len([turn for turn in turns if turn["turn"] is not None])
        assert row["is_final"] == (row["kind"] == "answer")


def test_collect_advantages_are_rewards_minus_their_mean_on_every_turn(left_alone: Path) -> None:
    rewards = set()
    for samples in groups_of(rows_of(left_alone)).values():
        known = [turns[0]["reward"] for turns in samples.values() if turns[0]["reward"] is not None]
        for turns in samples.values():
            for turn in turns:
                rewards.add(turn["reward"])
                assert turn["reward"] == turns[0]["reward"]
                if turn["reward"] is None:
                    assert (turn["status"], turn["advantage"], turn["response_mask"]) == ("failed", None, [])
                else:
                    expected = turn["reward"] - math.fsum(known) / len(known)
                    assert turn["advantage"] == pytest.approx(expected, abs=1e-9)
                    assert turn["response_mask"] == [1] * len(turn["response_token_ids"])
    assert rewards == {0.0, 1.0, None}


def test_collect_prompts_and_responses_are_those_of_the_engine(left_alone: Path) -> None:
    logged = {
        (row["document_hash"], row["sample"], row["prompt_hash"]): (row["token_ids"], row["logprobs"])
        for row in pq.read_table(left_alone / "log" / "turns").to_pylist()
    }
    told = {
        (row["document_hash"], row["sample"], token_hash(row["prompt_token_ids"])): (
            row["response_token_ids"],
            row["response_logprobs"],
        )
        for row in rows_of(left_alone)
        if row["turn"] is not None
    }
    assert told == logged
    assert len(told) > 4 * GROUP_SIZE


@pytest.mark.usefixtures("one_thread")
def test_collect_logprobs_equal_those_of_transformers(left_alone: Path, tiny_model: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    worst = 0.0
    for row in rows_of(left_alone):
        if row["turn"] is None:
            continue
        prompt, response = row["prompt_token_ids"], row["response_token_ids"]
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        logprobs = logits.log_softmax(-1)[torch.arange(len(response)), torch.tensor(response)]
        worst = max(worst, float((logprobs - torch.tensor(row["response_logprobs"])).abs().max()))
    assert worst < 1e-4


def test_collect_killed_in_the_middle_ends_with_the_same_rows(left_alone: Path, killed: Path) -> None:
    first, second = ([{**row, "run_id": ""} for row in rows_of(output)] for output in (left_alone, killed))
    assert first == second
    records = [json.loads((output / "rollouts.json").read_text()) for output in (left_alone, killed)]
    assert records[0]["counts"] == records[1]["counts"]


def collecting(inputs: Path, *, output: Path, model: str) -> KilledJob:
    """`memagent collect`, one turn at a time: what else is in a batch moves draws that hang by a hair."""
    arguments = [
        *("--documents", str(inputs / "documents.parquet"), "--questions", str(inputs / "questions.parquet")),
        *("--output", str(output), "--model", model, "--rollouts.group-size", str(GROUP_SIZE)),
        *("--policy.chunk-tokens", "256", "--policy.overlap-tokens", "32", "--policy.question-tokens", "64"),
        *("--policy.memory-tokens", "64", "--policy.answer-tokens", "32", "--pool.readings-in-flight", "1"),
        *("--window-tokens", "1024"),
        *("--log.flush-seconds", "0.5", "--vllm.dtype", "float32", "--vllm.cpu-kv-cache-gib", "1"),
        *("--vllm.engine-args", json.dumps({"enable_prefix_caching": False})),
    ]
    return KilledJob(arguments, output=output, command="collect")
