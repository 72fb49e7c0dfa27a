"""Exporting rollouts: the table of `memagent collect` in, one Parquet file that another trainer reads out.

A row is a group (verl, SkyRL), or a turn (TRL).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.apps.training.rollouts_table import read_groups, read_rollouts_record, require_logprobs
from memagent_batch.data.store.database import run_query
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, SettingsError

TURN_COLUMNS = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_mask", "finish_reason")
"""What a turn has inside a row of a group: columns of `ROLLOUTS`."""
GROUP_COLUMNS = ("group_id", "document_id", "question_id", "sample", "turn", "reward", "advantage")
READ_COLUMNS = (*GROUP_COLUMNS, *TURN_COLUMNS, "ground_truth", "data_source")
REPLAY = "memagent_replay"
"""Name of the agent loop (verl) or environment (SkyRL) that a row asks for."""
SAMPLES = f"""(
    select
        sample, any_value(reward) as reward, any_value(group_id) as group_id, any_value(data_source) as data_source,
        any_value(ground_truth) as ground_truth,
        format('document {{}}, question {{}}', any_value(document_id), any_value(question_id)) as about,
        list({{{", ".join(f"'{name}': {name}" for name in TURN_COLUMNS)}}} order by turn) as turns
    from turns group by sample
)"""
SAMPLE_LIST = "list({'reward': reward, 'turns': turns} order by sample)"
PLACEHOLDER = "[{'role': 'user', 'content': any_value(about)}]"
"""A chat that stands for the group's prompt; no model is shown it."""
BRIDGES: Mapping[str, str] = {
    "verl": f"""
        select
            any_value(data_source) as data_source, '{REPLAY}' as agent_name, {PLACEHOLDER} as prompt,
            {{'style': 'rule', 'ground_truth': coalesce(any_value(ground_truth), [])}} as reward_model,
            {{'group_id': any_value(group_id), 'samples': {SAMPLE_LIST}}} as extra_info, count(*) as __rollout_n__
        from {SAMPLES}
    """,
    "trl": """
        select
            group_id, sample, turn, prompt_token_ids || response_token_ids as input_ids,
            list_resize([]::tinyint[], len(prompt_token_ids), 0) || response_mask as completion_mask,
            list_resize([]::float[], len(prompt_token_ids), 0) || response_logprobs as old_log_probs,
            advantage, reward
        from turns order by sample, turn
    """,
    "skyrl": f"""
        select
            any_value(data_source) as data_source, {PLACEHOLDER} as prompt, '{REPLAY}' as env_class,
            any_value(group_id) as group_id, {SAMPLE_LIST} as samples
        from {SAMPLES}
    """,
}
"""Trainers that can be exported to, each with the query that makes its rows of the `turns` of a group."""


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
        num_samples = pc.count_distinct(learnt["sample"]).as_py()
        self.samples_left_out += pc.count_distinct(group["sample"]).as_py() - num_samples
        self.turns_left_out += group.num_rows - learnt.num_rows
        self.groups += num_samples > 0
        self.samples += num_samples
        self.turns += learnt.num_rows
        self.group_size = max(self.group_size, num_samples)
        prompts, responses = (
            pc.max(pc.list_value_length(learnt[f"{name}_token_ids"])).as_py() or 0 for name in ("prompt", "response")
        )
        self.longest_prompt_tokens = max(self.longest_prompt_tokens, prompts)
        self.longest_response_tokens = max(self.longest_response_tokens, responses)


def learnable(group: pa.Table) -> pa.Table:
    """The turns of a group that can be learnt from: with an advantage, and a response that is not empty.

    None of a group with one such sample: verl and SkyRL would take its reward for its advantage, which is 0.
    """
    has_response = pc.greater(pc.list_value_length(group["response_token_ids"]), 0)
    learnt = group.filter(pc.and_(pc.is_valid(group["advantage"]), has_response))
    return learnt if pc.count_distinct(learnt["sample"]).as_py() > 1 else learnt.slice(0, 0)


def export_rollouts(rollouts: Location, target: Location, *, to: str) -> Mapping[str, int]:
    """Writes a rollouts table as a file for the trainer `to`, whole or not at all; returns its counts.

    Raises:
        SettingsError: there is no such trainer.
        InputError: the table is not whole, lacks log-probabilities, or has nothing to learn from.
        StorageError: the file can't be written.
    """
    if to not in BRIDGES:
        raise SettingsError(f"to: no rollouts can be written for {to!r}; choose one of {', '.join(BRIDGES)}")
    counts, writer = ExportCounts(), None
    read_rollouts_record(rollouts)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "export.parquet"
        for group in read_groups(rollouts, columns=READ_COLUMNS):
            learnt = learnable(group)
            require_logprobs(learnt)
            counts.add(group, learnt)
            if learnt.num_rows:
                rows = run_query(BRIDGES[to], {"turns": learnt})
                writer = writer or pq.ParquetWriter(file, rows.schema, compression="zstd")
                writer.write_table(rows)
        if writer is None:
            raise InputError(
                f"{rollouts.uri}: none of its {counts.samples_left_out} samples can be learnt from: all failed, have "
                "no reward, or are the only ones of their group; see error_message in answers/ and reward_error in "
                "rollouts/, and collect again with retry_failed"
            )
        writer.close()
        target.write_file(file)
    return asdict(counts)
