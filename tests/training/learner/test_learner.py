from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memagent_batch.config.training import LearnerConfig
from memagent_batch.errors import LearningError
from memagent_batch.models.weights import model_sha256, weights_version
from memagent_batch.tokens.tokenizer import load_tokenizer
from memagent_batch.training.learner.batches import Conversation, batches
from memagent_batch.training.learner.learner import Learner, load_learner, response_logprobs, write_model

pytestmark = pytest.mark.usefixtures("one_thread")
GENTLE = LearnerConfig(learning_rate=1e-3, kl_weight=0.0, warmup_steps=0, device="cpu")


@pytest.fixture
def tiny_learner(tiny_model: str) -> Learner:
    return load_learner(Path(tiny_model), reference=Path(tiny_model), settings=GENTLE)


def samples(network: Any = None) -> list[Conversation]:
    """One response that did well and one that did not, to the same prompt; drawn by the network, if one is given."""
    rng = np.random.default_rng(0)
    prompt, logprobs, mask = rng.integers(10, 900, 20), np.full(4, -6.0, np.float32), np.ones(4, np.int8)
    responses = {advantage: rng.integers(10, 900, 4) for advantage in (0.5, -0.5)}
    made = [
        Conversation(prompt=prompt, response=response, logprobs=logprobs, mask=mask, advantage=advantage)
        for advantage, response in responses.items()
    ]
    if network is None:
        return made
    with torch.no_grad():
        drawn = [response_logprobs(network, next(batches([item], batch_tokens=1)))[0].numpy() for item in made]
    return [replace(item, logprobs=row) for item, row in zip(made, drawn, strict=True)]


def weights(learner: Learner) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in learner.network.parameters()]).clone()


def test_step_makes_the_better_sample_likelier(tiny_learner: Learner) -> None:
    better, worse = items = samples(tiny_learner.network)
    before = [tiny_learner.accumulate([item])["nll"] for item in items]
    tiny_learner.network.zero_grad()
    figures = tiny_learner.step(items)
    assert figures is not None
    assert figures.mean_ratio == pytest.approx(1.0, abs=1e-5)
    assert (figures.kl, figures.clip_fraction) == (None, 0.0)
    assert tiny_learner.accumulate([better])["nll"] < before[0]
    assert tiny_learner.accumulate([worse])["nll"] > before[1]


def test_step_that_gives_no_number_leaves_the_weights(tiny_learner: Learner) -> None:
    before = weights(tiny_learner)
    good, bad = samples()
    with pytest.raises(LearningError, match="step 1: loss nan"):
        tiny_learner.step([good, replace(bad, advantage=float("nan"))])
    assert torch.equal(weights(tiny_learner), before)
    assert tiny_learner.step([good]) is not None
    assert torch.isfinite(weights(tiny_learner)).all()


@pytest.mark.parametrize("place", ["_sums", "_optimiser"])
def test_step_without_room_on_the_gpu_names_the_settings(
    tiny_learner: Learner, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out(*_: Any) -> None:
        raise torch.OutOfMemoryError("tried to allocate 7 GiB")

    if place == "_sums":
        monkeypatch.setattr(tiny_learner, "_sums", run_out)
    else:
        monkeypatch.setattr(tiny_learner._optimiser, "step", run_out)
    with pytest.raises(LearningError, match=r"7 GiB; lower learner\.batch_tokens, or vllm\.gpu_memory_utilization"):
        tiny_learner.step(samples())


def test_step_warms_up_to_its_learning_rate(tiny_model: str) -> None:
    settings = GENTLE.model_copy(update={"warmup_steps": 2, "learning_rate": 3e-6})
    learner = load_learner(Path(tiny_model), reference=Path(tiny_model), settings=settings)
    rates = [figures.learning_rate for _ in range(4) if (figures := learner.step(samples())) is not None]
    assert rates == pytest.approx([1e-6, 2e-6, 3e-6, 3e-6])


def test_state_another_learner_goes_on_just_so(tiny_learner: Learner, tiny_model: str, tmp_path: Path) -> None:
    tiny_learner.step(samples())
    torch.save(tiny_learner.state(), tmp_path / "state.pt")
    other = load_learner(Path(tiny_model), reference=Path(tiny_model), settings=GENTLE)
    other.load_state(torch.load(tmp_path / "state.pt", weights_only=True))
    tiny_learner.step(samples())
    other.step(samples())
    assert torch.equal(weights(other), weights(tiny_learner))
    assert other.num_steps == 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_write_model_is_a_whole_folder_in_the_number_format_of_its_parent(
    dtype: str, tiny_learner: Learner, tiny_model: str, tmp_path: Path
) -> None:
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM

    parent, folder = tmp_path / "parent", tmp_path / "new"
    AutoModelForCausalLM.from_pretrained(tiny_model, dtype=getattr(torch, dtype)).save_pretrained(parent)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "README.md"):
        (parent / name).write_bytes((Path(tiny_model) / name).read_bytes())
    tiny_learner.step(samples())
    version = write_model(tiny_learner.network, folder, like=parent, record={"num_steps": 1})
    assert version == weights_version(model_sha256(str(folder))) != weights_version(model_sha256(str(parent)))
    assert load_tokenizer(str(folder)).sha256 == load_tokenizer(tiny_model).sha256
    assert not (folder / "README.md").exists()
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        names: list[Any] = list(file.keys())
        assert {file.get_tensor(name).dtype for name in names} == {getattr(torch, dtype)}
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    expected = tiny_learner.network.state_dict()
    for name, weight in again.state_dict().items():
        assert torch.equal(weight, expected[name].to(getattr(torch, dtype)).float())
