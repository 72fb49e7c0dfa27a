"""Exporting rollouts: the table of `memagent collect` in, one Parquet file that another trainer reads out. No Ray."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.errors import InputError, SettingsError
from memagent_batch.store.location import Location
from memagent_batch.training.bridges import BRIDGES, READ_COLUMNS, learnable, samples_of
from memagent_batch.training.rollouts.table import read_groups, read_rollouts_record, require_logprobs


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
        """Counts a group of which the turns `learnt` are exported."""
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


def export(rollouts: Location, target: Location, *, to: str) -> Mapping[str, int]:
    """Writes a rollouts table as a file for the trainer `to`, whole or not at all; returns its counts.

    Raises:
        SettingsError: there is no such trainer.
        InputError: the table is not whole, lacks log-probabilities, or has nothing to learn from.
        StorageError: the file can't be written.
    """
    if to not in BRIDGES:
        raise SettingsError(f"--to: there is no bridge to {to!r}; choose one of {', '.join(BRIDGES)}")
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
