"""The shell loop of `docs/how-to/training.md`, run with a real engine."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file, save_file

from memagent_batch.models.weights import model_sha256

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "training.md"
LOGITS_SCALE = 0.6
"""Makes the shipped policy less sure of itself: samples that all do alike teach nothing."""
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
JOB = {
    "documents": "texts",
    "questions": "questions.jsonl",
    "window_tokens": 1024,
    "policy": {"chunk_tokens": 256, "question_tokens": 64, "memory_tokens": 64, "answer_tokens": 32},
    "vllm": {"dtype": "float32", "cpu_kv_cache_gib": 1},
    "rollouts": {"group_size": 4},
}


@pytest.mark.vllm
@pytest.mark.slow
def test_loop_of_the_page_learns_and_goes_on_where_it_was_stopped(tmp_path: Path, tiny_model: str) -> None:
    policy = tmp_path / "loop" / "policy-0"
    shutil.copytree(tiny_model, policy)
    weights = load_file(policy / "model.safetensors")
    weights["model.norm.weight"] *= LOGITS_SCALE
    save_file(weights, policy / "model.safetensors", metadata={"format": "pt"})
    write_inputs(tmp_path)

    run_loop(tmp_path, num_steps=1)
    first = model_sha256(str(tmp_path / "loop" / "policy-1"))
    run_loop(tmp_path, num_steps=2)

    assert model_sha256(str(tmp_path / "loop" / "policy-1")) == first
    steps = [metrics(tmp_path / "loop" / f"policy-{step}") for step in (1, 2)]
    # what the learner computes of the draws is what the engine computed when it drew them
    assert all(lines[0]["mean_ratio"] == pytest.approx(1.0, abs=1e-3) for lines in steps)
    assert all(lines[0]["max_logprob_change"] < 1e-3 for lines in steps)
    assert steps[1][0]["step"] == steps[0][-1]["step"] + 1
    assert steps[1][0]["kl"] > steps[0][0]["kl"]
    record = json.loads((tmp_path / "loop" / "policy-2" / "training.json").read_text())
    assert record["parent"]["model_sha256"] == first


def write_inputs(folder: Path) -> None:
    """Five documents with a number each, and the job file of the page."""
    (folder / "texts").mkdir()
    questions = []
    for place, name in enumerate(("copper-falcon", "silver-otter", "red-tower", "quiet-harbor", "golden-needle")):
        text = f"{NOISE * (4 * place)}The access code of {name} is {7318265 + place}. {NOISE * 5}"
        (folder / "texts" / f"{name}.txt").write_text(text)
        question = {"question_id": name, "document_id": f"{name}.txt", "references": [str(7318265 + place)]}
        questions.append(json.dumps({**question, "question": f"What is the access code of {name}?"}))
    (folder / "questions.jsonl").write_text("\n".join(questions))
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB))


def run_loop(folder: Path, *, num_steps: int) -> None:
    """Runs the page's loop to a step."""
    [script] = re.findall(r"```bash\n(set -e\n.*?)```", PAGE.read_text(), re.DOTALL)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", "-c", script.replace("seq 1 200", f"seq 1 {num_steps}")]
    rate = {"MEMAGENT_LEARNER__LEARNING_RATE": "1e-4"}  # the usual one changes too little for a divergence
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, **rate, "PATH": path})


def metrics(policy: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (policy / "metrics.jsonl").read_text().splitlines()]
