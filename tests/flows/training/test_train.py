"""Whole `memagent train` runs over small tables, made by the project's own writer."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import RolloutConfig
from memagent_batch.config.training import LearnerConfig, TrainConfig
from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.errors import InputError, LearningError, SettingsError
from memagent_batch.flows.train import step_sizes, train
from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.models.weights import model_sha256, weights_version
from memagent_batch.store.json_files import write_json
from memagent_batch.store.location import Location
from memagent_batch.training.rollouts.groups import GroupMaker, GroupQuestion, GroupSample
from memagent_batch.training.rollouts.table import ROLLOUTS, ROLLOUTS_FILE, rollouts_record, write_rollouts
from memagent_batch.wiring import identify_reader

pytestmark = pytest.mark.usefixtures("one_thread")

GROUPS = RolloutConfig()
RIGHT, WRONG = "\\boxed{7}", "\\boxed{8}"


def sample_of(number: int, *, response: str | None) -> GroupSample:
    address = ReadingAddress(document_hash="d", question_hash="q", sample=number, fingerprint="r")
    turns = []
    for turn in range(2):
        prompt = Prompt(path=f"update/{turn}", kind="update", token_ids=[5, 6, 7 + turn], max_tokens=4)
        said = Completion(token_ids=[20 + number, 30 + turn, 2], text="", finish_reason=FinishReason.STOP)
        turns.append((prompt, replace(said, logprobs=[-5.0, -5.0, -5.0])))
    return GroupSample(address=address, turns=turns, response=response)


def write_table(
    folder: Path, groups: Sequence[Sequence[str | None]], *, rollouts: RolloutConfig = GROUPS, **settings: Any
) -> Path:
    """A table with a group for each list of responses; None for a sample that failed."""
    agent = AgentConfig(**settings)
    maker = GroupMaker(agent, rollouts, run_id="run", reader=identify_reader(agent))
    made = []
    for number, responses in enumerate(groups):
        asked = GroupQuestion(document_id=f"d{number}", document_hash="d", question_id="q", references=["7"])
        made.append(maker.group(asked, [sample_of(place, response=said) for place, said in enumerate(responses)]))
    output = Location(uri=str(folder))
    files = list(write_rollouts(output, (group for group in made if group is not None), part=0, run_id="run"))
    record = rollouts_record(maker.counts, files, sampling=agent.sampling, rollouts=rollouts, run_id="run")
    write_json(output / ROLLOUTS_FILE, record)
    return folder


def test_sample_whose_model_said_nothing_is_worth_nothing_to_its_group(tmp_path: Path, tiny_model: str) -> None:
    agent = AgentConfig(model=tiny_model)
    maker = GroupMaker(agent, GROUPS, run_id="run", reader=identify_reader(agent))
    silent, broken = sample_of(1, response=None), sample_of(2, response=None)
    silent.is_unanswered = True
    asked = GroupQuestion(document_id="d", document_hash="d", question_id="q", references=["7"])
    group = maker.group(asked, [sample_of(0, response=RIGHT), silent, broken])
    assert group is not None
    rewards = {row["sample"]: (row["reward"], row["advantage"]) for row in group.to_pylist()}
    assert rewards == {0: (1.0, 0.5), 1: (0.0, -0.5), 2: (None, None)}
    assert maker.counts["failed_samples"] == 1


def settings_of(rollouts: Path, output: Path, **settings: Any) -> TrainConfig:
    own = settings.pop("learner", {})
    learner = LearnerConfig(questions_per_optimiser_step=2, learning_rate=1e-4, device="cpu", **own)
    return TrainConfig(rollouts=str(rollouts), model="tiny", output=str(output), learner=learner, **settings)


def test_train_writes_a_whole_model_with_metrics_and_a_record(tmp_path: Path, tiny_model: str) -> None:
    table = write_table(tmp_path / "table", [[RIGHT, WRONG, None], [WRONG, RIGHT], [RIGHT, RIGHT, WRONG]])
    record = train(settings_of(table, tmp_path / "model"))
    lines = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["num_groups"], line["num_conversations"]) for line in lines] == [(1, 2, 8), (2, 1, 6)]
    assert [line["mean_reward"] for line in lines] == pytest.approx([0.5, 2 / 3])
    assert [line["num_learnt_tokens"] for line in lines] == [24, 18]
    assert lines[0]["kl"] == pytest.approx(0.0, abs=1e-9)
    assert lines[1]["kl"] > 0
    assert record["weights_version"] == weights_version(model_sha256(str(tmp_path / "model")))
    assert record["parent"]["model_sha256"] == model_sha256(tiny_model) != model_sha256(str(tmp_path / "model"))
    assert not (tmp_path / "model.partial").exists()
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "model").iterdir()}
    assert modes["model.safetensors"] == modes["training.json"] == (Path(tiny_model) / "config.json").stat().st_mode


def test_train_rollouts_of_other_weights_are_refused_unless_allowed(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table", [[RIGHT, WRONG]], weights_version="night-3")
    with pytest.raises(SettingsError, match=r"weights 'night-3'.*--allow-other-weights"):
        train(settings_of(table, tmp_path / "model"))
    assert not (tmp_path / "model").exists()
    assert train(settings_of(table, tmp_path / "named", weights_version="night-3"))["num_steps"] == 1
    assert train(settings_of(table, tmp_path / "allowed", allow_other_weights=True))["num_steps"] == 1


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        ({}, r"16 bytes for each and 4 for the reference \(none with .*\): 163\d\d GB before activations, and this"),
        ({"kl_weight": 0}, r"16 bytes for each: 131\d\d GB before activations, and this machine has \d+ GB"),
    ],
)
def test_train_model_that_does_not_fit_the_memory_is_refused_before_anything_is_read(
    tmp_path: Path, learner: dict[str, Any], said: str
) -> None:
    model = tmp_path / "huge"
    shutil.copytree(TINY_MODEL, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"vocab_size": 6_400_000_000}))
    training = settings_of(tmp_path / "absent", tmp_path / "out", learner=learner)
    with pytest.raises(SettingsError, match=rf"{model} has 819\.\d billion weights; training takes {said}"):
        train(training.model_copy(update={"model": str(model)}))


@pytest.mark.parametrize(
    ("groups", "rollouts", "error", "said"),
    [
        ([[RIGHT, RIGHT]], RolloutConfig(drop_equal=True), InputError, "every group was left out"),
        ([[None, None]], GROUPS, InputError, "no sample has an advantage and a response"),
        ([[RIGHT, RIGHT], [WRONG, WRONG, None]], GROUPS, LearningError, r"the rewards of every group .*mean 0\.5"),
    ],
)
def test_train_table_that_teaches_nothing_is_refused_and_no_model_is_written(
    tmp_path: Path, groups: list[list[str | None]], rollouts: RolloutConfig, error: type[Exception], said: str
) -> None:
    table = write_table(tmp_path / "table", groups, rollouts=rollouts)
    with pytest.raises(error, match=said):
        train(settings_of(table, tmp_path / "model"))
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


@given(num_groups=st.integers(1, 500), most=st.integers(1, 64))
def test_step_sizes_are_equal_but_for_one_and_as_few_as_can_be(num_groups: int, most: int) -> None:
    sizes = step_sizes(num_groups, most=most)
    assert sum(sizes) == num_groups
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert (len(sizes) - 1) * most < num_groups


def test_train_makes_optimiser_steps_of_about_as_many_questions_each(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table", [[RIGHT, WRONG]] * 17)
    defaults = LearnerConfig(device="cpu")
    training = settings_of(table, tmp_path / "model").model_copy(update={"learner": defaults})
    assert train(training)["num_steps"] == 3
    lines = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["num_groups"], line["num_nonzero_advantage"]) for line in lines] == [(6, 24), (6, 24), (5, 20)]


def test_train_that_keeps_its_optimiser_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    groups = [[RIGHT, WRONG], [WRONG, RIGHT, WRONG], [RIGHT, WRONG, WRONG], [WRONG, WRONG, RIGHT]]
    lots = {"whole": groups, "first": groups[:2], "second": groups[2:]}
    whole, first, second = (write_table(tmp_path / name, lot) for name, lot in lots.items())
    kept = {"keep_optimiser": True, "reference": "tiny", "allow_other_weights": True}
    train(settings_of(whole, tmp_path / "at-once", **kept))
    train(settings_of(first, tmp_path / "policy-1", **kept))
    going_on = {"model": str(tmp_path / "policy-1")}
    train(settings_of(second, tmp_path / "policy-2", **kept).model_copy(update=going_on))
    train(settings_of(second, tmp_path / "fresh", **kept | {"keep_optimiser": False}).model_copy(update=going_on))
    assert model_sha256(str(tmp_path / "policy-2")) == model_sha256(str(tmp_path / "at-once"))
    assert model_sha256(str(tmp_path / "fresh")) != model_sha256(str(tmp_path / "at-once"))
    assert not (tmp_path / "fresh" / "optimiser.state").exists()
    lines = (tmp_path / "policy-2" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2]


def test_train_turn_without_all_its_logprobs_is_refused_by_name(tmp_path: Path) -> None:
    table = write_table(tmp_path / "table", [[RIGHT, WRONG]])
    [file] = (table / "rollouts").iterdir()
    rows = pq.read_table(file).to_pylist()
    rows[-1]["response_logprobs"] = [-5.0]
    pq.write_table(pa.Table.from_pylist(rows, schema=ROLLOUTS), file)
    with pytest.raises(InputError, match=r"sample 1: not every token of its responses has a log-probability"):
        train(settings_of(table, tmp_path / "model"))


def test_train_into_an_object_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a folder of this machine, not to s3://bucket/model"):
        train(settings_of(tmp_path / "table", tmp_path).model_copy(update={"output": "s3://bucket/model"}))
