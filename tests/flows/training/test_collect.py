"""Rollouts collected with real vLLM; in `make test-all` also by a driver that is killed in the middle."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from memagent_batch.domain.addresses import token_hash
from tests.faults.killed_job import KilledJob, Role
from tests.flows.training.collected import NOISE, rows_of, write_inputs

pytestmark = [pytest.mark.ray, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1200)]

GROUP_SIZE = 4
NEEDLE = "The access code of copper-falcon is 7318265."


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
        job.kill(Role.DRIVER, job.require(Role.DRIVER))
        assert not (inputs / "killed" / "rollouts.json").exists()
        job.start()
        assert job.finish() == 0, job.last_words()
    return inputs / "killed"


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
