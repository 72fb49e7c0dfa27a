"""The pipeline that trains a model on its rollouts, with the packaged model `tiny`."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from memagent_batch.errors import InputError, OutputError, SettingsError
from memagent_batch.loop.models.shipped import TINY_MODEL
from memagent_batch.loop.models.weights import model_sha256, weights_version
from memagent_batch.loop.tokens.tokenizer import load_tokenizer
from pipelines.train_policy import OPTIMIZER_FILE, TrainSettings, Turn, load_network, loss_sums, train
from tests.training.rollout_tables import turn_row, write_table

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parents[2]
SETTINGS = TrainSettings(learning_rate=1e-4, warmup_steps=0, groups_per_step=2, device="cpu")
REWARDS: list[list[float | None]] = [[1.0, 0.0], [0.0, 1.0, 0.0], [1.0, None, 0.0], [0.0, 0.0, 1.0]]
"""Rewards of the samples of four groups; None is a sample that failed."""
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "


def logprobs_of(network: Any, row: dict[str, Any]) -> list[float]:
    """The log-probabilities of the response of a row, computed alone and without padding."""
    prompt, response = row["prompt_token_ids"], row["response_token_ids"]
    with torch.no_grad():
        logits = network(input_ids=torch.tensor([[*prompt, *response]])).logits[0]
    rows = torch.log_softmax(logits[len(prompt) - 1 : -1], -1)
    values: list[float] = rows[range(len(response)), response].tolist()
    return values


def write_rollouts(folder: Path, rewards: Sequence[Sequence[float | None]], *, model: Path = TINY_MODEL) -> str:
    """Writes a table with a group for each list of rewards, with the log-probabilities that the model gives."""
    network = AutoModelForCausalLM.from_pretrained(model)
    version = weights_version(model_sha256(str(model)))

    def drawn(row: dict[str, Any]) -> dict[str, Any]:
        return {"weights_version": version, "response_logprobs": logprobs_of(network, row)}

    return str(write_table(folder, rewards, changes=drawn))


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = load_file(folder / "model.safetensors")
    return weights


def test_train_makes_good_samples_likelier_and_bad_ones_less_likely(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rollouts, folder = write_rollouts(tmp_path / "rollouts", [[1.0, 0.0]]), tmp_path / "trained"
    settings = replace(SETTINGS, learning_rate=1e-5)
    [figures] = train(rollouts, model="tiny", output=str(folder), settings=settings)
    assert "steps: 1, groups: 1, turns: 6, device: cpu; a line" in capsys.readouterr().err
    assert figures["ratio"] == pytest.approx(1.0, abs=1e-5)
    assert figures["clipped"] == 0
    assert figures["kl"] == pytest.approx(0.0, abs=1e-6)
    assert figures["loss"] == pytest.approx(0.5 * (9 - 6) / (9 + 6), abs=1e-5)  # tokens of three turns, 3 and 2 each
    before, after = (AutoModelForCausalLM.from_pretrained(model) for model in (TINY_MODEL, folder))
    for sample, sign in ((0, 1), (1, -1)):
        rows = [turn_row("group-0", sample, turn, reward=None, advantage=None) for turn in range(3)]
        changes = [sum(logprobs_of(after, row)) - sum(logprobs_of(before, row)) for row in rows]
        assert sign * sum(changes) > 0, (sample, changes)
    [second] = train(rollouts, model=str(folder), output=f"{folder}-2", settings=settings, allow_other_weights=True)
    assert second["loss"] < figures["loss"]


def test_train_writes_a_model_folder_with_the_files_and_the_dtype_of_its_parent(tmp_path: Path) -> None:
    parent, folder = tmp_path / "parent", tmp_path / "trained"
    shutil.copytree(TINY_MODEL, parent)
    config = json.loads((parent / "config.json").read_text())
    (parent / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    halved = {name: weight.to(torch.bfloat16) for name, weight in weights_of(parent).items()}
    save_file(halved, parent / "model.safetensors", metadata={"format": "pt"})
    rollouts = write_rollouts(tmp_path / "rollouts", REWARDS, model=parent)
    train(rollouts, model=str(parent), output=str(folder), settings=SETTINGS)
    assert {weight.dtype for weight in weights_of(folder).values()} == {torch.float32}
    assert (folder / "config.json").read_text() == (parent / "config.json").read_text()
    assert load_tokenizer(str(folder)).sha256 == load_tokenizer(str(parent)).sha256
    assert not (folder / "README.md").exists()
    record = json.loads((folder / "training.json").read_text())
    assert record["weights_version"] == weights_version(model_sha256(str(parent)))
    assert [step["learnt_tokens"] for step in record["steps"]] == [3 * (2 + 3) + 3 * (2 + 3 + 4), 3 * (2 + 4) + 27]


def test_train_in_small_batches_gives_the_same_loss_and_gradient(tmp_path: Path) -> None:
    rollouts, steps = write_rollouts(tmp_path / "rollouts", REWARDS), []
    for batch_tokens in (1, 20, 10_000):
        settings = replace(SETTINGS, batch_tokens=batch_tokens)
        steps.append(train(rollouts, model="tiny", output=str(tmp_path / f"{batch_tokens}"), settings=settings))
    for name in ("loss", "kl", "nll", "gradient_norm"):
        figures = [[step[name] for step in each] for each in steps]
        assert figures[0] == pytest.approx(figures[2], rel=1e-3, abs=1e-6), name
        assert figures[1] == pytest.approx(figures[2], rel=1e-3, abs=1e-6), name


def test_train_continues_the_optimizer_of_the_model_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    parts = {"whole": REWARDS, "first": REWARDS[:2], "second": REWARDS[2:]}
    whole, first, second = (write_rollouts(tmp_path / name, rewards) for name, rewards in parts.items())
    shared: dict[str, Any] = {"reference": "tiny", "settings": SETTINGS, "allow_other_weights": True}
    train(whole, model="tiny", output=str(tmp_path / "at-once"), **shared)
    train(first, model="tiny", output=str(tmp_path / "policy-1"), **shared)
    [continued] = train(second, model=str(tmp_path / "policy-1"), output=str(tmp_path / "policy-2"), **shared)
    (tmp_path / "policy-1" / OPTIMIZER_FILE).unlink()
    train(second, model=str(tmp_path / "policy-1"), output=str(tmp_path / "fresh"), **shared)
    hashes = {name: model_sha256(str(tmp_path / name)) for name in ("at-once", "policy-2", "fresh")}
    assert hashes["policy-2"] == hashes["at-once"] != hashes["fresh"]
    assert continued["kl"] > 0


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "is_clipped"),
    [
        (1.1, 1.0, 1.1, False),
        (2.0, 1.0, 1.3, True),  # likelier than clip_high allows: nothing to gain
        (0.5, 1.0, 0.5, False),
        (0.5, -1.0, -0.8, True),
        (2.0, -1.0, -2.0, False),
        (9.0, -1.0, -3.0, True),  # the dual clip
    ],
)
def test_loss_clips_the_ratio_of_a_token(ratio: float, advantage: float, gain: float, is_clipped: bool) -> None:
    settings, network = replace(SETTINGS, clip_high=0.3, kl_weight=0.0), load_network(TINY_MODEL, device="cpu")
    row = {"prompt_token_ids": [5, 6, 7], "response_token_ids": [20, 30]}
    drawn = torch.tensor(logprobs_of(network, row)) - torch.tensor(ratio).log()
    places, tokens = torch.tensor([2, 3]), torch.tensor([5, 6, 7, 20])
    turn = Turn(text=tokens, sources=places, targets=torch.tensor([20, 30]), drawn_logprobs=drawn, advantage=advantage)
    sums = loss_sums(network, [turn], reference=None, settings=settings)
    assert sums["loss"].item() == pytest.approx(-2 * gain, rel=1e-4)
    assert float(sums["clipped"]) == 2 * is_clipped
    sums["loss"].backward()
    assert any(weight.grad.any() for weight in network.parameters()) != is_clipped


def test_loss_keeps_the_policy_near_the_reference(tmp_path: Path) -> None:
    rollouts, reference = write_rollouts(tmp_path / "rollouts", REWARDS), tmp_path / "reference"
    train(rollouts, model="tiny", output=str(reference), settings=replace(SETTINGS, learning_rate=1e-3))
    divergences = []
    for weight in (0.001, 10.0):
        settings = replace(SETTINGS, kl_weight=weight, groups_per_step=1, clip_norm=100.0)
        folder = str(tmp_path / f"weight-{weight}")
        steps = train(rollouts, model="tiny", output=folder, reference=str(reference), settings=settings)
        divergences.append(steps[-1]["kl"])
    assert divergences[1] < divergences[0]


def other_weights(row: dict[str, Any]) -> dict[str, Any]:
    return {"weights_version": "night-3"}


def no_logprobs(row: dict[str, Any]) -> dict[str, Any]:
    return {"weights_version": weights_version(model_sha256(str(TINY_MODEL))), "response_logprobs": [-1.0]}


@pytest.mark.parametrize(
    ("rewards", "changes", "message"),
    [
        ([1.0, 0.0], other_weights, r"drawn with weights night-3, and tiny has \w{16}; .*--allow-other-weights"),
        ([1.0, 0.0], no_logprobs, "group group-0, sample 0: a token has no log-probability"),
        ([1.0, 1.0], None, "the rewards of every group are equal"),
        ([None, None], None, "the rewards of every group are equal"),
    ],
)
def test_train_refuses_rollouts_that_teach_nothing_and_writes_no_model(
    rewards: list[float | None],
    changes: Callable[[dict[str, Any]], dict[str, Any]] | None,
    message: str,
    tmp_path: Path,
) -> None:
    if changes is None:
        write_rollouts(tmp_path / "rollouts", [rewards])
    else:
        write_table(tmp_path / "rollouts", [rewards], changes=changes)
    with pytest.raises(InputError, match=message):
        train(str(tmp_path / "rollouts"), model="tiny", output=str(tmp_path / "model"), settings=SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["rollouts"]
    with pytest.raises(OutputError, match="rollouts exists already"):
        train("absent", model="tiny", output=str(tmp_path / "rollouts"))
    with pytest.raises(SettingsError, match="gone is not a model folder"):
        train("absent", model="gone", output=str(tmp_path / "new"))


@pytest.mark.vllm
@pytest.mark.slow
def test_loop_of_the_page_learns_with_a_real_engine_and_continues_where_it_was_stopped(tmp_path: Path) -> None:
    policy = tmp_path / "loop" / "policy-0"
    shutil.copytree(TINY_MODEL, policy)
    weights = weights_of(policy)
    weights["model.norm.weight"] *= 0.6  # less sure of itself: samples that all do alike teach nothing
    save_file(weights, policy / "model.safetensors", metadata={"format": "pt"})
    write_inputs(tmp_path)
    run_loop(tmp_path, num_steps=1)
    first = model_sha256(str(tmp_path / "loop" / "policy-1"))
    run_loop(tmp_path, num_steps=2)
    assert model_sha256(str(tmp_path / "loop" / "policy-1")) == first
    records = [json.loads((tmp_path / "loop" / f"policy-{step}" / "training.json").read_text()) for step in (1, 2)]
    # what is computed of the samples is what the engine computed when it drew them
    assert all(record["steps"][0]["ratio"] == pytest.approx(1.0, abs=1e-3) for record in records)
    assert records[1]["weights_version"] == weights_version(first)
    assert records[1]["steps"][0]["kl"] > records[0]["steps"][0]["kl"]


def write_inputs(folder: Path) -> None:
    """Writes five documents with a number each, and the job file of the page."""
    (folder / "texts").mkdir()
    questions = []
    for number, name in enumerate(("copper-falcon", "silver-otter", "red-tower", "quiet-harbor", "golden-needle")):
        text = f"{NOISE * (4 * number)}The access code of {name} is {7318265 + number}. {NOISE * 5}"
        (folder / "texts" / f"{name}.txt").write_text(text)
        question = {"question_id": name, "document_id": f"{name}.txt", "references": [str(7318265 + number)]}
        questions.append(json.dumps({**question, "question": f"What is the access code of {name}?"}))
    (folder / "questions.jsonl").write_text("\n".join(questions))
    job = {
        "documents": "texts",
        "questions": "questions.jsonl",
        "window_tokens": 1024,
        "policy": {"chunk_tokens": 256, "question_tokens": 64, "memory_tokens": 64, "answer_tokens": 32},
        "vllm": {"enforce_eager": True, "dtype": "float32", "cpu_kv_cache_gib": 1},
        "rollouts": {"group_size": 4},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))


def run_loop(folder: Path, *, num_steps: int) -> None:
    """Runs the loop of docs/how-to/training.md up to a step, with a rate at which a divergence can be seen."""
    page = (ROOT / "docs" / "how-to" / "training.md").read_text()
    [script] = re.findall(r"```bash\n(set -e\n.*?)```", page, re.DOTALL)
    script = script.replace("seq 1 200", f"seq 1 {num_steps}")
    script = script.replace("python pipelines/train_policy.py", f"python {ROOT}/pipelines/train_policy.py")
    script = script.replace("--reference", "--learning-rate 1e-4 --reference")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", script], cwd=folder, check=True, env={**os.environ, "PATH": path})
