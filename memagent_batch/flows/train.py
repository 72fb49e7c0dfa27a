"""`memagent train`: one epoch of Multi-Conv DAPO over a rollouts table; a whole model folder comes out."""

import json
import logging
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, TypedDict, cast

import pyarrow as pa
import pyarrow.compute as pc
import torch
from pydantic import JsonValue

from memagent_batch.config.training import TrainConfig
from memagent_batch.errors import InputError, LearningError, OutputError, SettingsError
from memagent_batch.logs import EventKind
from memagent_batch.masking import mask_url, redact_settings
from memagent_batch.models.weights import model_sha256, weights_version
from memagent_batch.runs.manifest import package_versions
from memagent_batch.store.location import Location
from memagent_batch.tokens.tokenizer import load_tokenizer
from memagent_batch.training.learner.batches import LEARNT_COLUMNS, conversations
from memagent_batch.training.learner.learner import (
    OPTIMISER_FILE,
    Learner,
    load_learner,
    require_memory,
    sync,
    write_model,
)
from memagent_batch.training.rollouts.table import RolloutsRecord, read_groups, read_rollouts_record, require_logprobs
from memagent_batch.wiring import resolve_model

log = logging.getLogger(__name__)

TRAINING_FORMAT = "memagent-training/1"
METRICS_FILE = "metrics.jsonl"
TRAINED_COLUMNS = (*LEARNT_COLUMNS, "group_id", "sample", "reward", "weights_version", "tokenizer_hash")


class ParentWeights(TypedDict):
    """The weights that were updated."""

    model: str
    model_sha256: str


class WeightsRecord(TypedDict):
    """`training.json`: where new weights come from."""

    format: str
    weights_version: str
    parent: ParentWeights
    rollouts: dict[str, Any]
    """Place, run and counts of the table that was learnt from."""
    num_steps: int
    settings: dict[str, JsonValue]
    versions: dict[str, str]
    finished_at: str


def train(training: TrainConfig) -> WeightsRecord:
    """Updates the weights and returns what `training.json` says.

    Raises:
        UsageError: the user's mistake, found before anything is learnt.
        LearningError: an update gave no finite number, or the rewards of every group are equal.
    """
    model, output = _model_folder(training.model), _local_folder(training.output)
    reference = _model_folder(training.reference) if training.reference else model
    if output.exists():
        raise OutputError(f"output: {output} is there already; choose a new folder, or remove it")
    require_memory(model, settings=training.learner)
    table = Location(uri=training.rollouts, storage_options=training.storage_options)
    collected = read_rollouts_record(table)
    groups = checked_groups(table, collected["files"], training=training, model=model)
    first = next(groups, None)
    if first is None:
        raise InputError(f"{table.uri} holds no rows: every group was left out, and nothing can be learnt")
    learner = load_learner(model, reference=reference, settings=training.learner)
    if training.keep_optimiser and (model / OPTIMISER_FILE).exists():
        learner.load_state(torch.load(model / OPTIMISER_FILE, map_location="cpu", weights_only=True))
    steps_before = learner.num_steps
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    metrics = partial / METRICS_FILE
    num_groups = collected["counts"]["groups"] - collected["counts"]["dropped_groups"]
    num_teaching = learn(learner, chain([first], groups), training=training, num_groups=num_groups, metrics=metrics)
    if not num_teaching:
        shutil.rmtree(partial)
    if learner.num_steps == steps_before:
        raise InputError(
            f"{table.uri}: no sample has an advantage and a response to learn from: all failed or have no reward; see "
            "status and reward_error in rollouts/, and collect again"
        )
    if not num_teaching:
        raise LearningError(
            f"{table.uri}: nothing to learn: the rewards of every group are equal (mean {collected['mean_reward']:g}), "
            "so every advantage is 0; no model was written. Collect more samples of each question, other questions, or "
            "with another reward"
        )
    record = _weights_record(training, model=model, collected=collected, num_steps=learner.num_steps - steps_before)
    if training.keep_optimiser:
        torch.save(learner.state(), partial / OPTIMISER_FILE)
    version = write_model(learner.network, partial, like=model, record=record)
    sync(partial)
    partial.rename(output)
    sync(output.parent)
    return cast("WeightsRecord", {"weights_version": version, **record})


def learn(
    learner: Learner, groups: Iterator[pa.Table], *, training: TrainConfig, num_groups: int, metrics: Path
) -> int:
    """One epoch, in the order of the table; a line of metrics for each step; counts conversations with an advantage."""
    num_read = num_teaching = 0
    for size in step_sizes(num_groups, most=training.learner.questions_per_optimiser_step):
        lot = list(islice(groups, size))
        num_read += len(lot)
        figures = learner.step([item for group in lot for item in conversations(group)])
        if figures is None:  # no sample has an advantage
            continue
        num_teaching += figures.num_nonzero_advantage
        line = {
            "step": learner.num_steps,
            "num_groups": len(lot),
            "mean_reward": mean_table_reward(pa.concat_tables(lot)),
            **{name: round(each, 9) if isinstance(each, float) else each for name, each in asdict(figures).items()},
        }
        with metrics.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        message = f"step {line['step']}: {step_text(line)}; {num_read} of {num_groups} questions"
        log.info(message, extra={"event": EventKind.PROGRESS, **line})
    return num_teaching


def step_sizes(num_groups: int, *, most: int) -> list[int]:
    """The number of groups of each step: as few steps as can be, of sizes that differ by one at most."""
    num_steps = math.ceil(num_groups / most)
    borders = [math.ceil(num_groups * number / num_steps) for number in range(num_steps + 1)]
    return [end - start for start, end in pairwise(borders)]


def step_text(line: Mapping[str, Any]) -> str:
    """A step's figures in one line, for people."""
    kl = "" if line["kl"] is None else f", kl {line['kl']:.5f}"
    equal = "" if line["num_nonzero_advantage"] else "; rewards of every question are equal, which teaches nothing"
    return (
        f"reward {line['mean_reward']:.3f}, loss {line['loss']:+.5f}{kl}, "
        f"clipped {line['clip_fraction']:.2%}, gradient {line['gradient_norm']:.3f}, {line['seconds']:.0f} s{equal}"
    )


def mean_table_reward(rows: pa.Table) -> float:
    """Mean reward of the samples that have one; `rows` are whole groups with `group_id`, `sample` and `reward`."""
    samples = rows.filter(pc.is_valid(rows["reward"])).group_by(["group_id", "sample"]).aggregate([("reward", "max")])
    return float(pc.mean(samples["reward_max"]).as_py())


def checked_groups(table: Location, files: Sequence[str], *, training: TrainConfig, model: Path) -> Iterator[pa.Table]:
    """The groups of a table, each checked to be of the model's weights and tokeniser before it is given.

    Raises:
        SettingsError: they are of others.
        InputError: they have no log-probabilities, or can't be read.
    """
    version = training.weights_version or weights_version(model_sha256(str(model)))
    tokenizer = load_tokenizer(str(model)).sha256
    for group in read_groups(table, files=files, columns=TRAINED_COLUMNS):
        named = group["weights_version"][0].as_py()
        if named != version and not training.allow_other_weights:
            raise SettingsError(
                f"the rollouts were drawn with weights {named!r}, {model} has {version!r}: give the model that they "
                "were drawn with, collect again with this one, or pass --allow-other-weights (or --weights-version, "
                "where they were given a name)"
            )
        if group["tokenizer_hash"][0].as_py() != tokenizer:
            raise SettingsError(f"the rollouts were written by another tokeniser than that of {model}; collect again")
        require_logprobs(group.filter(pc.greater(pc.list_value_length(group["response_token_ids"]), 0)))
        yield group


def _model_folder(model: str) -> Path:
    folder = Path(resolve_model(model))
    if not (folder / "config.json").is_file():
        raise SettingsError(f"model: {folder} is not a model folder (no config.json); download the model into a folder")
    return folder


def _local_folder(output: str) -> Path:
    if "://" in output:
        raise SettingsError(
            f"output: weights are written to a folder of this machine, not to {mask_url(output)}; copy them from there"
        )
    return Path(output)


def _weights_record(training: TrainConfig, *, model: Path, collected: RolloutsRecord, num_steps: int) -> dict[str, Any]:
    return {
        "format": TRAINING_FORMAT,
        "parent": {"model": training.model, "model_sha256": model_sha256(str(model))},
        "rollouts": {"uri": mask_url(training.rollouts), "run_id": collected["run_id"], "counts": collected["counts"]},
        "num_steps": num_steps,
        "settings": redact_settings(training.model_dump(mode="json", exclude={"storage_options"})),
        "versions": package_versions(),
        "finished_at": datetime.now(UTC).isoformat(),
    }
