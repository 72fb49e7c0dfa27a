"""The table `rollouts`: what a trainer learns from. A projection of the turn log and the inputs, like `answers`."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict

import pyarrow as pa
from pydantic import JsonValue

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.config.job import RolloutConfig
from memagent_batch.files.columns import column
from memagent_batch.files.json_files import write_json
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.log.schemas import RUN_ID, SAMPLE
from memagent_batch.runs.claim import TableSet
from memagent_batch.runs.tables.schemas import DOCUMENT_ID, QUESTION_ID

ROLLOUTS_FOLDER = "rollouts"
ROLLOUTS_FILE = "rollouts.json"
"""Counts, files and knobs of the table. Written last: without it the table is not whole."""

ROLLOUTS_FORMAT = "memagent-rollouts/1"
"""Changes with every change of layout that an older version can't read."""

ROLLOUT_TABLES = TableSet(record=ROLLOUTS_FILE, folders=(ROLLOUTS_FOLDER,))

ROLLOUT_FILE_BYTES = 64 * 1024 * 1024
"""Rows of one file, as Arrow holds them: what a writing task keeps in memory at once."""

ROLLOUTS = pa.schema(
    [
        RUN_ID,
        column("group_id", pa.string(), "the samples of one document and question form a group, hex"),
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        column("turn", pa.int32(), "position of the turn in its sample, from 0; null where none ended", nullable=True),
        column("num_turns", pa.int32(), "turns of the sample that ended", unit="turns"),
        column("is_final", pa.bool_(), "whether the answer was given in this turn, by which the sample is scored"),
        column("kind", pa.string(), "kind of turn, as in `memories`", nullable=True),
        column("prompt_token_ids", pa.list_(pa.int32()), "exactly what the engine saw, chat template included"),
        column("response_token_ids", pa.list_(pa.int32()), "exactly what it returned, an end token included"),
        column(
            "response_logprobs",
            pa.list_(pa.float32()),
            "log-probability of each, when it was sampled, at temperature 1 and top_p 1",
            nullable=True,
        ),
        column("response_mask", pa.list_(pa.int8()), "1 where a token is learnt from, else 0"),
        column("finish_reason", pa.string(), "why the turn ended: stop or length", nullable=True),
        column("reward", pa.float64(), "reward of the sample, on each of its turns", nullable=True),
        column("reward_error", pa.string(), "why there is no reward, where the answer was given", nullable=True),
        column("advantage", pa.float64(), "advantage of the sample in its group, on each of its turns", nullable=True),
        column("ground_truth", pa.list_(pa.string()), "references of the question", nullable=True),
        column("answer", pa.string(), "the answer taken out of the last response", nullable=True),
        column("data_source", pa.string(), "what the user calls these data"),
        column("model", pa.string(), "the model that was sampled"),
        column("weights_version", pa.string(), "its weights: as the user calls them, else the start of their hash"),
        column("tokenizer_hash", pa.string(), "SHA-256 of the tokeniser's files, hex"),
        column("chat_template_hash", pa.string(), "SHA-256 of the chat template, hex"),
        column("prompt_set", pa.string(), "name of the prompt set"),
        column("temperature", pa.float64(), "sampling temperature"),
        column("top_p", pa.float64(), "nucleus"),
        column("top_k", pa.int32(), "tokens to draw from; -1 for all"),
        column("max_tokens", pa.int32(), "budget of the turn", unit="tokens", nullable=True),
        column("seed", pa.int64(), "seed of the turn's draws", nullable=True),
        column("token_start", pa.int64(), "first token of the chunk in the document", unit="tokens", nullable=True),
        column("token_end", pa.int64(), "token after its last one", unit="tokens", nullable=True),
        column("document_hash", pa.string(), "SHA-256 of the document's text in UTF-8, hex", nullable=True),
        column("status", pa.string(), "ok, or failed where the sample did not end"),
    ]
)
"""One row for each conversation (turn) of each sample; a failed sample without any turn has one row."""


class RolloutsRecord(TypedDict):
    """`rollouts.json`."""

    format: str
    run_id: str
    counts: dict[str, int]
    mean_reward: float | None
    rollouts: dict[str, JsonValue]
    sampling: dict[str, JsonValue]
    files: list[str]
    finished_at: str


def write_rollouts(output: Location, groups: Iterator[pa.Table], *, part: int, run_id: str) -> Iterator[str]:
    """Writes the groups (tables of `ROLLOUTS`) in files of about `ROLLOUT_FILE_BYTES`; yields their names.

    A part has the same file names at every try, so a repeated task replaces its own files; two runs share no name.
    """
    held: list[pa.Table] = []
    number = 0
    name = f"part-{part:05d}-{run_id}"
    for group in groups:
        for rows in group.to_batches(max_chunksize=_rows_of_a_file(group)):
            held.append(pa.Table.from_batches([rows]))
            if sum(table.nbytes for table in held) >= ROLLOUT_FILE_BYTES:
                yield _write_file(output, held, name=f"{name}-{number:04d}.parquet")
                held, number = [], number + 1
    if held:
        yield _write_file(output, held, name=f"{name}-{number:04d}.parquet")


def write_record(
    output: Location,
    counts: Mapping[str, Any],
    files: Sequence[str],
    *,
    sampling: SamplingConfig,
    rollouts: RolloutConfig,
    run_id: str,
) -> None:
    """Writes `rollouts.json` into a place where nobody else writes; see `rollouts_record`."""
    record = rollouts_record(counts, files, sampling=sampling, rollouts=rollouts, run_id=run_id)
    write_json(output / ROLLOUTS_FILE, record)


def rollouts_record(
    counts: Mapping[str, Any], files: Sequence[str], *, sampling: SamplingConfig, rollouts: RolloutConfig, run_id: str
) -> RolloutsRecord:
    """What `rollouts.json` says, without which the table is not whole.

    Args:
        counts: what was counted of its groups, `reward_sum` among it.
        files: names of all its files.
        sampling: how the samples were drawn.
        rollouts: how they were rewarded.
        run_id: the run.
    """
    shown_counts = {name: count for name, count in counts.items() if name != "reward_sum"}
    return RolloutsRecord(
        format=ROLLOUTS_FORMAT,
        run_id=run_id,
        counts=shown_counts,
        mean_reward=mean_reward(counts),
        rollouts=rollouts.model_dump(mode="json"),
        sampling=sampling.model_dump(mode="json"),
        files=list(files),
        finished_at=datetime.now(UTC).isoformat(),
    )


def mean_reward(counts: Mapping[str, Any]) -> float | None:
    """Mean reward of the samples that have one; None where none has."""
    num_rewarded = counts["samples"] - counts["failed_samples"] - counts["samples_without_reward"]
    return counts["reward_sum"] / num_rewarded if num_rewarded else None


def _rows_of_a_file(group: pa.Table) -> int:
    return max(int(ROLLOUT_FILE_BYTES * group.num_rows / max(group.nbytes, 1)), 1)


def _write_file(output: Location, tables: list[pa.Table], *, name: str) -> str:
    place = f"{ROLLOUTS_FOLDER}/{name}"
    (output / place).write_bytes(parquet_bytes(pa.concat_tables(tables)))
    return place
