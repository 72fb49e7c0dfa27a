"""The table `rollouts`: what a trainer learns from. A projection of the turn log and the inputs, like `answers`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.config.job import RolloutConfig
from memagent_batch.data.documents.source_listing import into_batches
from memagent_batch.data.store.columns import column
from memagent_batch.data.store.delta import OutputTable, TableFile, write_table_files
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import read_parquet
from memagent_batch.data.store.turn_log.rows import RUN_ID, SAMPLE
from memagent_batch.errors import InputError
from memagent_batch.run.tables import DOCUMENT_ID, QUESTION_ID, ROLLOUTS_TABLE

ROLLOUTS_FORMAT = "memagent-rollouts/2"
"""Changes with every change of layout that an older version can't read."""
RECORD = "record"
"""Text of the table's history with counts and settings of a collection, as JSON."""
ROLLOUT_FILE_BYTES = 64 * 1024 * 1024
"""Rows of one file, as Arrow holds them: what a writing task keeps in memory at once."""

ROLLOUTS = pa.schema(
    [
        RUN_ID,
        column("group_id", pa.string(), "group of the samples of one document and question, hex"),
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        column("turn", pa.int32(), "position of the turn in its sample, from 0; null if no turn ended", nullable=True),
        column("num_turns", pa.int32(), "turns of the sample that ended", unit="turns"),
        column("is_final", pa.bool_(), "whether this turn gave the answer, which is scored"),
        column("kind", pa.string(), "kind of turn, as in `memories`", nullable=True),
        column("prompt_token_ids", pa.list_(pa.int32()), "exactly what the engine saw, chat template included"),
        column("response_token_ids", pa.list_(pa.int32()), "exactly what it returned, an end token included"),
        column(
            "response_logprobs",
            pa.list_(pa.float32()),
            "log-probability of each when it was drawn, at temperature 1 and top_p 1",
            nullable=True,
        ),
        column("response_mask", pa.list_(pa.int8()), "1 if a token is learnt from, else 0"),
        column("finish_reason", pa.string(), "why the turn ended: stop or length", nullable=True),
        column("reward", pa.float64(), "reward of the sample, on each of its turns", nullable=True),
        column("reward_error", pa.string(), "why an answered sample has no reward", nullable=True),
        column("advantage", pa.float64(), "advantage of the sample in its group, on each of its turns", nullable=True),
        column("ground_truth", pa.list_(pa.string()), "references of the question", nullable=True),
        column("answer", pa.string(), "the answer taken out of the last response", nullable=True),
        column("data_source", pa.string(), "what the user calls these data"),
        column("model", pa.string(), "the model that was sampled"),
        column("weights_version", pa.string(), "its weights: their given name, or the start of their hash"),
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
        column("status", pa.string(), "ok, or failed if the sample did not end"),
    ]
)
"""One row for each conversation (turn) of each sample; a failed sample without any turn has one row."""


class RolloutsRecord(TypedDict):
    """What the history of the table says of a collection."""

    format: str
    run_id: str
    counts: dict[str, int]
    mean_reward: float | None
    rollouts: dict[str, JsonValue]
    sampling: dict[str, JsonValue]
    finished_at: str


def write_rollouts(output: Location, groups: Iterable[pa.Table], *, part: int, run_id: str) -> Iterator[TableFile]:
    """Writes the groups (tables of `ROLLOUTS`) in files of about `ROLLOUT_FILE_BYTES`; yields the files."""
    folder = OutputTable(output=output, name=ROLLOUTS_TABLE).place
    pieces = (
        pa.Table.from_batches([rows])
        for group in groups
        for rows in group.to_batches(
            max_chunksize=max(int(ROLLOUT_FILE_BYTES * group.num_rows / max(group.nbytes, 1)), 1)
        )
    )
    batches = into_batches(pieces, size=lambda rows: rows.nbytes, max_size=ROLLOUT_FILE_BYTES)
    for number, batch in enumerate(batches):
        yield from write_table_files(folder, pa.concat_tables(batch), stem=f"part-{part:05d}-{number:04d}-{run_id}")


def rollouts_record(
    counts: Mapping[str, Any], *, sampling: SamplingConfig, rollouts: RolloutConfig, run_id: str
) -> RolloutsRecord:
    """What the history of the table says of a collection."""
    shown_counts = {name: count for name, count in counts.items() if name != "reward_sum"}
    num_rewarded = counts["samples"] - counts["failed_samples"] - counts["samples_without_reward"]
    return RolloutsRecord(
        format=ROLLOUTS_FORMAT,
        run_id=run_id,
        counts=shown_counts,
        mean_reward=counts["reward_sum"] / num_rewarded if num_rewarded else None,
        rollouts=rollouts.model_dump(mode="json"),
        sampling=sampling.model_dump(mode="json"),
        finished_at=datetime.now(UTC).isoformat(),
    )


def read_rollouts_record(output: Location) -> RolloutsRecord:
    """What the last collection says of the table `rollouts` of an output.

    Raises:
        InputError: there is no such table.
    """
    table = OutputTable(output=output, name=ROLLOUTS_TABLE)
    records = (each[RECORD] for each in table.history(since=0) if RECORD in each) if table.exists() else iter(())
    text = next(records, None)
    if text is None:
        raise InputError(
            f"{output}: there is no table `rollouts`; give the output of `memagent collect`, or run that command again "
            "to its end: it goes on from where it stopped"
        )
    record: RolloutsRecord = json.loads(text)
    if record["format"] != ROLLOUTS_FORMAT:
        raise InputError(
            f"{output}: `rollouts` has the layout {record['format']!r}, this version reads {ROLLOUTS_FORMAT!r}; "
            "collect again with this version: the log answers, nothing is sampled again"
        )
    return record


def read_groups(output: Location, *, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Streams the groups of a table, each with all rows of its samples; holds a file.

    Raises:
        InputError: a file is not there, or is not part of such a table.
    """
    schema = pa.schema([ROLLOUTS.field(name) for name in dict.fromkeys(["group_id", *columns])])
    table = OutputTable(output=output, name=ROLLOUTS_TABLE)
    with table_errors(table.place.uri, remedy="collect the rollouts again", kind=InputError):
        places = [table.place / path for path in sorted(table.files())]
    last_group = schema.empty_table()  # it may go on in the next file
    for place in places:
        with table_errors(place.uri, remedy="collect the rollouts again", kind=InputError):
            rows = pa.concat_tables([last_group, read_parquet(place, columns=schema.names).cast(schema)])
        group_ids = rows["group_id"].to_pylist()
        starts = [row for row in range(len(group_ids)) if row == 0 or group_ids[row] != group_ids[row - 1]]
        *groups, last_group = [rows.slice(start, end - start) for start, end in pairwise([*starts, len(group_ids)])]
        yield from groups
    if last_group.num_rows:
        yield last_group


def require_logprobs(learnt: pa.Table) -> None:
    """Refuses turns with a token that has no log-probability; `learnt` has responses, `group_id` and `sample`.

    Raises:
        InputError: names the first one's sample.
    """
    known = pc.fill_null(pc.list_value_length(learnt["response_logprobs"]), -1)
    short = learnt.filter(pc.not_equal(known, pc.list_value_length(learnt["response_token_ids"])))
    if short.num_rows:
        row = short.select(["group_id", "sample"]).slice(0, 1).to_pylist()[0]
        raise InputError(
            f"group {row['group_id']}, sample {row['sample']}: not every token of its responses has a log-probability, "
            "without which nothing can be learnt; collect again with an engine that returns log-probabilities"
        )
