"""The bridge to TRL (experimental AsyncGRPOTrainer): every turn is a row of its own, with the table's advantage."""

from typing import Any

import numpy as np
import pyarrow as pa

from memagent_batch.training.bridges.bridge import MESSAGES, Exported, Group, user_message


class TrlBridge:
    """Turns in the fields of TRL's RolloutSample."""

    turns = pa.schema(
        [
            pa.field("group_id", pa.int64()),
            pa.field("sample", pa.int32()),
            pa.field("turn", pa.int32()),
            pa.field("input_ids", pa.list_(pa.int64())),
            pa.field("completion_mask", pa.list_(pa.int8())),
            pa.field("old_log_probs", pa.list_(pa.float32())),
            pa.field("advantage", pa.float64()),
            pa.field("reward", pa.float64()),
        ]
    )
    prompts = pa.schema([pa.field("prompt", MESSAGES)])

    def turn_rows(self, rows: pa.Table, *, group: int, sample: int) -> pa.Table:
        """See `Bridge`. Masks and log-probabilities are as long as the tokens, zero over the prompt."""
        prompts, responses = _cell_arrays(rows["prompt_token_ids"]), _cell_arrays(rows["response_token_ids"])
        blanks = [np.zeros(len(prompt), np.int8) for prompt in prompts]
        columns = {
            "group_id": [group] * rows.num_rows,
            "sample": [sample] * rows.num_rows,
            "turn": rows["turn"],
            "input_ids": _joined_arrays(prompts, responses),
            "completion_mask": _joined_arrays(blanks, _cell_arrays(rows["response_mask"])),
            "old_log_probs": _joined_arrays(blanks, _cell_arrays(rows["response_logprobs"])),
            "advantage": rows["advantage"],
            "reward": rows["reward"],
        }
        return pa.table(columns, schema=self.turns)

    def prompt_row(self, group: Group) -> dict[str, object]:
        """See `Bridge`. The trainer asks for a data set, and with a replay reads nothing of it but its length."""
        return {"prompt": user_message(group)}

    def settings(self, exported: Exported) -> dict[str, str]:
        """See `Bridge`. They are arguments of the trainer, in the user's own script."""
        return {}


def _cell_arrays(column: pa.ChunkedArray) -> list[np.ndarray[Any, Any]]:
    return [cell.values.to_numpy(zero_copy_only=False) for cell in column]


def _joined_arrays(before: list[np.ndarray[Any, Any]], after: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    return [np.concatenate(pair) for pair in zip(before, after, strict=True)]
