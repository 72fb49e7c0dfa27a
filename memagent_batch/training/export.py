"""Exporting rollouts: the table of `memagent collect` in, one Parquet file that another trainer reads out.

A row is a group (verl, SkyRL), or a turn (TRL).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.errors import InputError, SettingsError
from memagent_batch.store.location import Location
from memagent_batch.training.rollouts.table import read_groups, read_rollouts_record, require_logprobs

TOKENS, LOGPROBS, TOKEN_MASK = pa.list_(pa.int32()), pa.list_(pa.float32()), pa.list_(pa.int8())
TURN_COLUMNS = {
    "prompt_token_ids": TOKENS,
    "response_token_ids": TOKENS,
    "response_logprobs": LOGPROBS,
    "response_mask": TOKEN_MASK,
    "finish_reason": pa.string(),
}
"""What a turn has inside a row of a group: columns of `ROLLOUTS`."""
SAMPLES = pa.list_(pa.struct({"reward": pa.float64(), "turns": pa.list_(pa.struct(TURN_COLUMNS))}))
"""The samples of a group, in order."""
MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))
"""A chat, as data sets of trainers have it."""
REPLAY = "memagent_replay"
"""Name of the agent loop (verl) or environment (SkyRL) that a row asks for."""
GROUP_COLUMNS = ("group_id", "document_id", "question_id", "sample", "turn", "reward", "advantage")
READ_COLUMNS = (*GROUP_COLUMNS, *TURN_COLUMNS, "ground_truth", "data_source")
"""What an export needs of a row of `ROLLOUTS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """How one trainer's rows look."""

    schema: pa.Schema
    rows: Callable[[pa.Table], pa.Table]
    """Its rows of a group: the turns that can be learnt from, as in `ROLLOUTS`, by sample and turn."""


@dataclass(slots=True, kw_only=True)
class ExportCounts:
    """What became of the table's rows. Mutable: counted while they pass."""

    groups: int = 0
    samples: int = 0
    samples_left_out: int = 0
    """Samples without an advantage (they failed, or have no reward), and the only ones of their group."""
    turns: int = 0
    turns_left_out: int = 0
    """Turns of samples that are left out, or without a token in their response."""
    group_size: int = 0
    longest_prompt_tokens: int = 0
    longest_response_tokens: int = 0

    def add(self, group: pa.Table, learnt: pa.Table) -> None:
        """Counts a group; `learnt` are its turns that are exported."""
        num_samples = len(samples_of(learnt)) if learnt.num_rows else 0
        self.samples_left_out += len(samples_of(group)) - num_samples
        self.turns_left_out += group.num_rows - learnt.num_rows
        if not num_samples:
            return
        self.groups += 1
        self.samples += num_samples
        self.turns += learnt.num_rows
        self.group_size = max(self.group_size, num_samples)
        prompts, responses = (
            pc.max(pc.list_value_length(learnt[f"{name}_token_ids"])) for name in ("prompt", "response")
        )
        self.longest_prompt_tokens = max(self.longest_prompt_tokens, prompts.as_py())
        self.longest_response_tokens = max(self.longest_response_tokens, responses.as_py())


def samples_of(group: pa.Table) -> list[pa.Table]:
    """The samples of a group, each with its turns."""
    numbers = group["sample"].to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), group.num_rows]
    return [group.slice(start, stop - start) for start, stop in pairwise(starts)]


def _trl_rows(group: pa.Table) -> pa.Table:
    """Masks and log-probabilities are as long as the tokens, zero over the prompt."""
    prompts, responses = _cells(group["prompt_token_ids"]), _cells(group["response_token_ids"])
    blanks = [np.zeros(len(prompt), np.int8) for prompt in prompts]
    return pa.table(
        {
            "group_id": group["group_id"],
            "sample": group["sample"],
            "turn": group["turn"],
            "input_ids": _concatenated(prompts, responses),
            "completion_mask": _concatenated(blanks, _cells(group["response_mask"])),
            "old_log_probs": _concatenated(blanks, _cells(group["response_logprobs"])),
            "advantage": group["advantage"],
            "reward": group["reward"],
        },
        schema=TRL,
    )


def _verl_rows(group: pa.Table) -> pa.Table:
    samples, first = _samples(group), _first_row(group)
    row = {
        "data_source": first["data_source"],
        "agent_name": REPLAY,
        "prompt": _placeholder(first),
        "reward_model": {"style": "rule", "ground_truth": first["ground_truth"] or []},
    }
    extra = pa.StructArray.from_arrays([pa.array([first["group_id"]]), samples], names=["group_id", "samples"])
    columns = {name: pa.array([value], VERL.field(name).type) for name, value in row.items()}
    return pa.table({**columns, "extra_info": extra, "__rollout_n__": [len(samples[0])]}, schema=VERL)


def _skyrl_rows(group: pa.Table) -> pa.Table:
    first = _first_row(group)
    row = {
        "data_source": first["data_source"],
        "prompt": _placeholder(first),
        "env_class": REPLAY,
        "group_id": first["group_id"],
    }
    columns = {name: pa.array([value], SKYRL.field(name).type) for name, value in row.items()}
    return pa.table({**columns, "samples": _samples(group)}, schema=SKYRL)


def _samples(group: pa.Table) -> pa.ListArray:
    """One cell of `SAMPLES`: built in Arrow, since a group can have millions of tokens."""
    samples = samples_of(group)
    turns = pa.StructArray.from_arrays(
        [group[name].combine_chunks().cast(kind) for name, kind in TURN_COLUMNS.items()], names=list(TURN_COLUMNS)
    )
    ends = np.cumsum([0, *(sample.num_rows for sample in samples)])
    rewards = pa.array([sample["reward"][0].as_py() for sample in samples], pa.float64())
    turns_of_samples = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), turns)
    cell = pa.StructArray.from_arrays([rewards, turns_of_samples], names=["reward", "turns"])
    return pa.ListArray.from_arrays(pa.array([0, len(samples)], pa.int32()), cell)


def _first_row(group: pa.Table) -> Mapping[str, Any]:
    row: Mapping[str, Any] = group.slice(0, 1).drop_columns(list(TURN_COLUMNS)).to_pylist()[0]
    return row


def _placeholder(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """A chat that stands for the group's prompt; no model is shown it."""
    return [{"role": "user", "content": f"document {row['document_id']}, question {row['question_id']}"}]


def _cells(column: pa.ChunkedArray) -> list[np.ndarray[Any, Any]]:
    return [cell.values.to_numpy(zero_copy_only=False) for cell in column]


def _concatenated(before: Sequence[np.ndarray[Any, Any]], after: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
    return [np.concatenate(pair) for pair in zip(before, after, strict=True)]


def learnable(group: pa.Table) -> pa.Table:
    """The turns of a group that can be learnt from: with an advantage, and a response that is not empty.

    None of a group with one such sample: verl and SkyRL would take its reward for its advantage, which is 0.
    """
    has_response = pc.greater(pc.list_value_length(group["response_token_ids"]), 0)
    learnt = group.filter(pc.and_(pc.is_valid(group["advantage"]), has_response))
    return learnt if pc.count_distinct(learnt["sample"]).as_py() > 1 else learnt.slice(0, 0)


TRL = pa.schema(
    {
        "group_id": pa.string(),
        "sample": pa.int32(),
        "turn": pa.int32(),
        "input_ids": TOKENS,
        "completion_mask": TOKEN_MASK,
        "old_log_probs": LOGPROBS,
        "advantage": pa.float64(),
        "reward": pa.float64(),
    }
)
VERL = pa.schema(
    {
        "data_source": pa.string(),
        "agent_name": pa.string(),
        "prompt": MESSAGES,
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.list_(pa.string())}),
        "extra_info": pa.struct({"group_id": pa.string(), "samples": SAMPLES}),
        "__rollout_n__": pa.int64(),
    }
)
SKYRL = pa.schema(
    {
        "data_source": pa.string(),
        "prompt": MESSAGES,
        "env_class": pa.string(),
        "group_id": pa.string(),
        "samples": SAMPLES,
    }
)
BRIDGES: Mapping[str, Bridge] = {
    "verl": Bridge(schema=VERL, rows=_verl_rows),
    "trl": Bridge(schema=TRL, rows=_trl_rows),
    "skyrl": Bridge(schema=SKYRL, rows=_skyrl_rows),
}
"""Trainers that can be exported to."""


def export_rollouts(rollouts: Location, target: Location, *, to: str) -> Mapping[str, int]:
    """Writes a rollouts table as a file for the trainer `to`, whole or not at all; returns its counts.

    Raises:
        SettingsError: there is no such trainer.
        InputError: the table is not whole, lacks log-probabilities, or has nothing to learn from.
        StorageError: the file can't be written.
    """
    if to not in BRIDGES:
        raise SettingsError(f"--to: no rollouts can be written for {to!r}; choose one of {', '.join(BRIDGES)}")
    bridge, counts = BRIDGES[to], ExportCounts()
    files = read_rollouts_record(rollouts)["files"]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "export.parquet"
        with pq.ParquetWriter(file, bridge.schema, compression="zstd") as writer:
            for group in read_groups(rollouts, files=files, columns=READ_COLUMNS):
                learnt = learnable(group)
                require_logprobs(learnt)
                counts.add(group, learnt)
                if learnt.num_rows:
                    writer.write_table(bridge.rows(learnt))
        if not counts.samples:
            raise InputError(
                f"{rollouts.uri}: none of its {counts.samples_left_out} samples can be learnt from: all failed, have "
                "no reward, or are the only ones of their group; see error_message in answers/ and reward_error in "
                "rollouts/, and collect again with --retry-failed"
            )
        target.write_file(file)
    return asdict(counts)
