"""The loop with a real engine, which every test gives its first weights back.

It begins with a policy that is less sure of itself than the shipped one, whose samples all do alike and teach nothing.
"""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import pytest_asyncio
from safetensors.torch import load_file, save_file

from memagent_batch.engines.vllm.engine import VllmEngine
from memagent_batch.errors import EngineDeadError
from memagent_batch.flows import train_loop as loop
from memagent_batch.logs import EventKind, kind_of
from memagent_batch.models.weights import model_sha256, weights_version
from memagent_batch.training.learner.sampling import TableTasks, read_held_out
from tests.training.learner.loop_inputs import loop_config

LOGITS_SCALE = 0.6
"""Of the policy that the loop begins with."""

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="session")
def unsure_model(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The shipped policy with all logits scaled down."""
    folder = tmp_path_factory.mktemp("unsure") / "model"
    shutil.copytree(tiny_model, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= LOGITS_SCALE
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest_asyncio.fixture(loop_scope="session")
async def engine(vllm_greedy: VllmEngine, tiny_model: str, unsure_model: str) -> AsyncIterator[VllmEngine]:
    await vllm_greedy.renew(unsure_model)
    yield vllm_greedy
    await vllm_greedy.renew(tiny_model)


async def run(folder: Path, engine: VllmEngine, model: str, *, max_steps: int, **learner: Any) -> dict[str, Any]:
    training = loop_config(folder, max_steps=max_steps, **learner)
    training = training.with_agent(training.agent.model_copy(update={"model": model}))
    return await loop.go_on(training, TableTasks(training), read_held_out(training), engine=engine)


def weights_of(output: Path) -> bytes:
    return (output / "model" / "model.safetensors").read_bytes()


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "loop" / "metrics.jsonl").read_text().splitlines()]


async def test_loop_collects_with_the_weights_that_it_learnt(
    tmp_path: Path, engine: VllmEngine, unsure_model: str
) -> None:
    said = await run(tmp_path, engine, unsure_model, max_steps=2, learning_rate=2e-3)
    output = tmp_path / "loop"
    first, second = (pq.read_table(output / "steps" / name / "rollouts").to_pylist() for name in ("00001", "00002"))
    assert {row["weights_version"] for row in first} == {weights_version(model_sha256(unsure_model))}
    assert {row["weights_version"] for row in second} != {weights_version(model_sha256(unsure_model))}
    lines = lines_of(tmp_path)
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert [line.get("held_out") for line in lines] == [1, None, 1]
    for line in lines[1:]:
        # what the learner computes of the draws is what the engine computed when it drew them
        assert line["engine_difference"] == line["max_logprob_change"] < 1e-3
        assert line["mean_ratio"] == pytest.approx(1.0, abs=1e-3)
        assert line["samples"] == 8
    assert 0 < lines[1]["mean_reward"] < 1
    assert lines[2]["kl"] > lines[1]["kl"]
    assert said["model"] == str(output / "model")
    assert model_sha256(str(output / "model")) == model_sha256(str(output / "steps" / "00002" / "model"))
    assert not (output / "steps" / "00001" / "model").exists()


async def test_loop_killed_while_it_wrote_weights_goes_on_with_the_rollouts_that_it_had(
    tmp_path: Path, engine: VllmEngine, unsure_model: str
) -> None:
    output, torn = tmp_path / "loop", tmp_path / "torn"
    await run(tmp_path, engine, unsure_model, max_steps=1)
    shutil.copytree(output, torn)
    await run(tmp_path, engine, unsure_model, max_steps=2)
    expected, lines = weights_of(output), lines_of(tmp_path)
    shutil.copytree(output / "steps" / "00002", torn / "steps" / "00002")
    shutil.rmtree(output)
    torn.rename(output)
    step = output / "steps" / "00002"
    for name in ("update.json", "evaluation.json", "state.pt"):
        (step / name).unlink()
    (step / "model" / "tokenizer.json").write_text("half")
    await engine.renew(str(output / "steps" / "00001" / "model"))
    await run(tmp_path, engine, unsure_model, max_steps=2)
    assert (step / "model" / "tokenizer.json").read_bytes() == (Path(unsure_model) / "tokenizer.json").read_bytes()
    assert weights_of(output) == expected
    assert [line.get("loss") for line in lines_of(tmp_path)] == [line.get("loss") for line in lines]


async def test_loop_engine_that_dies_leaves_the_step_to_the_next_try(
    tmp_path: Path, engine: VllmEngine, unsure_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: Any, **__: Any) -> None:
        raise EngineDeadError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(VllmEngine, "complete", die)
        with pytest.raises(EngineDeadError, match="gone"):
            await run(tmp_path, engine, unsure_model, max_steps=1)
    assert not list((tmp_path / "loop").glob("steps/*/rollouts.json"))
    await run(tmp_path, engine, unsure_model, max_steps=1)
    assert [line["step"] for line in lines_of(tmp_path)] == [0, 1]


@pytest.mark.slow
async def test_loop_warns_where_the_engine_still_draws_with_old_weights(
    tmp_path: Path,
    engine: VllmEngine,
    unsure_model: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def keep(*_: Any) -> None:
        pass

    with monkeypatch.context() as patch:
        patch.setattr(VllmEngine, "renew", keep)
        await run(tmp_path, engine, unsure_model, max_steps=2, learning_rate=5e-2, warmup_steps=1)
    warned = [record for record in caplog.records if kind_of(record) == EventKind.PROBABILITIES_DIFFER]
    assert [record.__dict__["step"] for record in warned] == [2]
