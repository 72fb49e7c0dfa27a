"""Small rollouts tables, written as a collection writes them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from memagent_batch.apps.training.groups import group_advantages
from memagent_batch.apps.training.rollouts_table import RECORD, ROLLOUTS, ROLLOUTS_FORMAT, write_rollouts
from memagent_batch.config.job import Advantage
from memagent_batch.data.store.delta import OutputTable, RunNumber
from memagent_batch.data.store.location import Location
from memagent_batch.run.tables import ROLLOUTS_TABLE

NUM_TURNS = 3


def write_table(
    folder: Path,
    groups: Sequence[Sequence[float | None]],
    *,
    advantage: Advantage = Advantage.CENTRED,
    changes: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: {},
) -> Path:
    """A table of groups, each the rewards of its samples; None is a sample that failed in its second turn.

    Of each row, `changes` gives columns that are to be otherwise.
    """
    tables = [
        group_table(f"group-{number}", rewards_G, advantage=advantage, changes=changes)
        for number, rewards_G in enumerate(groups)
    ]
    output = Location(uri=str(folder))
    files = list(write_rollouts(output, iter(tables), part=0, run_id="run"))
    record = {"format": ROLLOUTS_FORMAT, "run_id": "r", "rollouts": {"advantage": advantage}}
    run = RunNumber(number=1, run_id="r")
    table = OutputTable(output=output, name=ROLLOUTS_TABLE)
    table.commit(run=run, schema=ROLLOUTS, add=files, replaces_all=True, metadata={RECORD: json.dumps(record)})
    return folder


def group_table(
    group_id: str,
    rewards_G: Sequence[float | None],
    *,
    advantage: Advantage,
    changes: Callable[[dict[str, Any]], dict[str, Any]],
) -> pa.Table:
    advantages_G = group_advantages(rewards_G, kind=advantage)
    rows = [
        turn_row(group_id, sample, turn, reward=rewards_G[sample], advantage=advantages_G[sample])
        for sample in range(len(rewards_G))
        for turn in range(1 if rewards_G[sample] is None else NUM_TURNS)
    ]
    return pa.Table.from_pylist([row | changes(row) for row in rows], schema=ROLLOUTS)


def turn_row(group_id: str, sample: int, turn: int, *, reward: float | None, advantage: float | None) -> dict[str, Any]:
    """A turn whose tokens tell which one it is: prompts of 4 + turn tokens, responses of 2 + sample tokens."""
    first = 10 + 100 * sample + 10 * turn
    response = list(range(first, first + 2 + sample))
    return {
        "run_id": "r",
        "group_id": group_id,
        "document_id": f"document of {group_id}",
        "question_id": "q",
        "sample": sample,
        "turn": turn,
        "num_turns": NUM_TURNS,
        "is_final": reward is not None and turn == NUM_TURNS - 1,
        "kind": "update",
        "prompt_token_ids": list(range(1, 5 + turn)),
        "response_token_ids": response,
        "response_logprobs": [-0.5 * (1 + place) for place in range(len(response))],
        "response_mask": [int(advantage is not None)] * len(response),
        "finish_reason": "stop",
        "reward": reward,
        "advantage": advantage,
        "ground_truth": ["42"],
        "data_source": "needles",
        "model": "m",
        "weights_version": "w",
        "tokenizer_hash": "t",
        "chat_template_hash": "c",
        "prompt_set": "default",
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "status": "failed" if reward is None else "ok",
    }
