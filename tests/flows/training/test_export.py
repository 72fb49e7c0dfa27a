"""Exporting rollouts: what the file holds, what is left out, what is refused. Trainers themselves: tests/bridges."""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.apps.training import rollouts_table as rollouts
from memagent_batch.apps.training.export import BRIDGES, export_rollouts
from memagent_batch.cli.export import Export
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, SettingsError
from tests.training.rollout_tables import NUM_TURNS, write_table

TARGETS = list(BRIDGES)
GROUPS: list[list[float | None]] = [[1.0, 0.0, None, 0.5], [None, None], [0.25, 0.75], [1.0, None]]
"""A group with a failed sample, one whose samples all failed, one with all rewards, one with a single reward."""


@pytest.mark.parametrize("to", TARGETS)
def test_export_of_failed_samples_counts_what_is_left_out(tmp_path: Path, to: str) -> None:
    counts = run_export(write_table(tmp_path / "in", GROUPS), tmp_path / "out.parquet", to=to)

    taken = {"groups": 2, "samples": 5, "turns": 5 * NUM_TURNS, "group_size": 3}
    left_out = {"samples_left_out": 5, "turns_left_out": 4 + NUM_TURNS}
    assert counts == {**taken, **left_out, "longest_prompt_tokens": 6, "longest_response_tokens": 5}
    rows = pq.read_table(tmp_path / "out.parquet")
    assert rows.num_rows == (5 * NUM_TURNS if to == "trl" else 2)


def test_export_to_trl_puts_logprobs_and_mask_over_the_response_only(tmp_path: Path) -> None:
    run_export(write_table(tmp_path / "in", [[1.0, 0.0]]), tmp_path / "out.parquet", to="trl")

    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()

    assert rows[0]["input_ids"] == [1, 2, 3, 4, 10, 11]
    assert rows[0]["completion_mask"] == [0, 0, 0, 0, 1, 1]
    assert rows[0]["old_log_probs"] == [0, 0, 0, 0, -0.5, -1.0]
    assert [(row["sample"], row["turn"], row["advantage"]) for row in rows] == [
        (sample, turn, 0.5 - sample) for sample in range(2) for turn in range(NUM_TURNS)
    ]


@pytest.mark.parametrize("to", ["verl", "skyrl"])
def test_export_of_groups_holds_each_sample_with_its_turns(tmp_path: Path, to: str) -> None:
    run_export(write_table(tmp_path / "in", GROUPS), tmp_path / "out.parquet", to=to)

    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    if to == "verl":
        assert [row["__rollout_n__"] for row in rows] == [3, 2]
        assert rows[0]["reward_model"] == {"style": "rule", "ground_truth": ["42"]}
    first, second = (row.get("extra_info") or row for row in rows)
    assert (first["group_id"], second["group_id"]) == ("group-0", "group-2")
    assert [sample["reward"] for sample in first["samples"]] == [1.0, 0.0, 0.5]
    begins = [[turn["response_token_ids"][0] for turn in sample["turns"]] for sample in first["samples"]]
    assert begins == [[10, 20, 30], [110, 120, 130], [310, 320, 330]]
    lower, _ = second["samples"]
    assert lower["turns"][2] == {
        "prompt_token_ids": [1, 2, 3, 4, 5, 6],
        "response_token_ids": [30, 31],
        "response_logprobs": [-0.5, -1.0],
        "response_mask": [1, 1],
        "finish_reason": "stop",
    }


@pytest.mark.parametrize("to", TARGETS)
def test_export_of_many_small_files_and_batches_is_that_of_one(
    tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[list[float | None]] = [[1.0, 0.0, 0.5], [0.5, None, 1.0], [0.0, 1.0, 0.75]]
    run_export(write_table(tmp_path / "in", groups), tmp_path / "whole.parquet", to=to)
    monkeypatch.setattr(rollouts, "ROLLOUT_FILE_BYTES", 400)

    run_export(write_table(tmp_path / "split", groups), tmp_path / "out.parquet", to=to)

    assert len(list((tmp_path / "split/rollouts").glob("*.parquet"))) > 3
    assert pq.read_table(tmp_path / "out.parquet") == pq.read_table(tmp_path / "whole.parquet")
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == len(groups)


def test_export_of_an_empty_response_leaves_the_turn_out(tmp_path: Path) -> None:
    table = write_table(tmp_path / "in", [[1.0, 0.0]])
    [file] = (table / "rollouts").glob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    rows[1] |= {"response_token_ids": [], "response_logprobs": [], "response_mask": []}
    pq.write_table(pa.Table.from_pylist(rows, schema=rollouts.ROLLOUTS), file)

    counts = run_export(table, tmp_path / "out.parquet", to="verl")

    assert (counts["turns"], counts["turns_left_out"]) == (5, 1)


@pytest.mark.parametrize("logprobs", [None, [-0.5]])
def test_export_of_rows_without_logprobs_names_the_group_and_leaves_the_file_that_is_there(
    tmp_path: Path, logprobs: list[float] | None
) -> None:
    (tmp_path / "out.parquet").write_text("the export before")
    table = write_table(tmp_path / "in", [[1.0, 0.0]], changes=lambda row: {"response_logprobs": logprobs})

    with pytest.raises(InputError, match=r"group group-0, sample 0: .* collect again with an engine"):
        run_export(table, tmp_path / "out.parquet", to="trl")

    assert (tmp_path / "out.parquet").read_text() == "the export before"


def test_export_that_can_not_be_made_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of its 3 samples can be learnt from"):
        run_export(write_table(tmp_path / "failed", [[None, None, None]]), tmp_path / "out.parquet", to="skyrl")
    table = write_table(tmp_path / "in", GROUPS)
    with pytest.raises(SettingsError, match="verl, trl, skyrl"):
        run_export(table, tmp_path / "out.parquet", to="openrlhf")
    next((table / "rollouts").glob("*.parquet")).unlink()
    with pytest.raises(InputError, match=r"can.t be read: .*No such file.*; collect the rollouts again"):
        run_export(table, tmp_path / "out.parquet", to="verl")
    assert not (tmp_path / "out.parquet").exists()


def run_export(table: Path, target: Path, *, to: str) -> Mapping[str, int]:
    return export_rollouts(Location(uri=str(table)), Location(uri=str(target)), to=to)


def test_export_command_names_every_trainer_and_format() -> None:
    names = get_args(Export.model_fields["to"].annotation)
    assert names == ("xlsx", "csv", *BRIDGES)
