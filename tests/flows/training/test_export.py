"""Exporting rollouts: what the files hold, what is left out, what is refused. Trainers themselves: tests/bridges."""

import json
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.export import Export
from memagent_batch.cli.main import main
from memagent_batch.domain.scoring.advantages import Advantage
from memagent_batch.errors import InputError, OutputError, SettingsError
from memagent_batch.files.location import Location
from memagent_batch.flows.export import BRIDGES, export
from memagent_batch.inputs.formats import grouped
from memagent_batch.pages.spreadsheets import SpreadsheetFormat
from memagent_batch.training.bridges import exports
from memagent_batch.training.rollouts import table as rollouts
from tests.training.rollouts.rollout_tables import NUM_TURNS, write_table

TARGETS = list(BRIDGES)
GROUPS: list[list[float | None]] = [[1.0, 0.0, None, 0.5], [None, None], [0.25, None]]
"""A group with a failed sample, one of which all failed, one with a single reward."""


@pytest.mark.parametrize("to", TARGETS)
def test_export_of_failed_samples_counts_what_is_left_out(tmp_path: Path, to: str) -> None:
    record = run_export(write_table(tmp_path / "in", GROUPS), tmp_path / "out", to=to)

    assert record["counts"] == {
        "groups": 2,
        "groups_left_out": 1,
        "samples": 4,
        "samples_left_out": 4,
        "turns": 4 * NUM_TURNS,
        "turns_left_out": 0,
        "response_tokens": NUM_TURNS * (2 + 3 + 5 + 2),
        "group_size": 3,
        "longest_prompt_tokens": 6,
        "longest_response_tokens": 5,
        "longest_turn_tokens": 11,
    }
    assert json.loads((tmp_path / "out/export.json").read_text()) == record
    assert pq.read_table(tmp_path / "out/prompts.parquet").num_rows == 2


@pytest.mark.parametrize("to", ["verl", "skyrl"])
def test_export_locators_find_each_sample_of_their_group(tmp_path: Path, to: str) -> None:
    run_export(write_table(tmp_path / "in", GROUPS), tmp_path / "out", to=to)

    located = {
        (place["group_id"], number): exports.read_exported_turns(
            Location(uri=str(tmp_path / "out")), file=place["file"], row_group=place["first_row_group"] + number
        )
        for row in pq.read_table(tmp_path / "out/prompts.parquet").to_pylist()
        for place in [row.get("extra_info") or row["replay"]]
        for number in range(place["num_samples"])
    }

    assert {key: last_response(turns) for key, turns in located.items()} == {
        ("group-0", 0): [30, 31],
        ("group-0", 1): [130, 131, 132],
        ("group-0", 2): [330, 331, 332, 333, 334],  # sample 2 failed, so sample 3 is the third
        ("group-2", 0): [30, 31],
    }
    assert all(turns.num_rows == NUM_TURNS for turns in located.values())


def test_export_to_trl_puts_logprobs_and_mask_over_the_response_only(tmp_path: Path) -> None:
    run_export(write_table(tmp_path / "in", [[1.0, 0.0]]), tmp_path / "out", to="trl")

    rows = pq.read_table(tmp_path / "out/turns").to_pylist()

    assert rows[0]["input_ids"] == [1, 2, 3, 4, 10, 11]
    assert rows[0]["completion_mask"] == [0, 0, 0, 0, 1, 1]
    assert rows[0]["old_log_probs"] == [0, 0, 0, 0, -0.5, -1.0]
    assert [(row["group_id"], row["sample"], row["advantage"]) for row in rows] == [(0, 0, 0.5)] * 3 + [
        (0, 1, -0.5)
    ] * 3


def test_export_to_skyrl_puts_the_reward_on_the_last_token_of_the_last_step(tmp_path: Path) -> None:
    run_export(write_table(tmp_path / "in", [[1.0, 0.25]]), tmp_path / "out", to="skyrl")

    rows = pq.read_table(tmp_path / "out/turns").to_pylist()

    assert [row["is_last_step"] for row in rows] == [False, False, True] * 2
    assert [row["rewards"] for row in rows] == [[0, 0], [0, 0], [0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0.25]]


@pytest.mark.parametrize("to", TARGETS)
def test_export_in_small_batches_and_files_keeps_groups_whole(
    tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[list[float | None]] = [[1.0, 0.0, 0.5], [0.5, None, 1.0], [0.0, 1.0, 0.75]]
    run_export(write_table(tmp_path / "in", groups), tmp_path / "whole", to=to)
    monkeypatch.setattr(rollouts, "ROLLOUT_FILE_BYTES", 400)
    monkeypatch.setattr(grouped, "_BATCH_ROWS", 2)
    monkeypatch.setattr(exports, "EXPORT_FILE_BYTES", 400)
    monkeypatch.setattr(exports, "PROMPTS_BATCH", 1)

    record = run_export(write_table(tmp_path / "split", groups), tmp_path / "out", to=to)

    assert len(list((tmp_path / "split/rollouts").iterdir())) > 3
    assert len(record["files"]) == 3
    assert pq.read_table(tmp_path / "out/turns") == pq.read_table(tmp_path / "whole/turns")
    assert [pq.ParquetFile(tmp_path / "out" / name).num_row_groups for name in record["files"]] == [3, 2, 3]


def test_export_of_an_empty_response_leaves_the_turn_out(tmp_path: Path) -> None:
    table = write_table(tmp_path / "in", [[1.0, 0.0]])
    [file] = (table / "rollouts").iterdir()
    rows = pq.read_table(file).to_pylist()
    rows[1] |= {"response_token_ids": [], "response_logprobs": [], "response_mask": []}
    pq.write_table(pa.Table.from_pylist(rows, schema=rollouts.ROLLOUTS), file)

    record = run_export(table, tmp_path / "out", to="verl")

    assert (record["counts"]["turns"], record["counts"]["turns_left_out"]) == (5, 1)


def test_export_of_an_unfinished_table_names_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_table(tmp_path / "in", GROUPS)
    (table / "rollouts.json").unlink()

    code = main(["export", str(table), "--to", "verl", "--into", str(tmp_path / "out")])

    assert code == 2
    assert "there is no rollouts.json" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_export_to_an_unknown_trainer_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="verl, trl, skyrl"):
        run_export(write_table(tmp_path / "in", GROUPS), tmp_path / "out", to="openrlhf")


@pytest.mark.parametrize("logprobs", [None, [-0.5]])
def test_export_of_rows_without_logprobs_names_the_group(tmp_path: Path, logprobs: list[float] | None) -> None:
    table = write_table(tmp_path / "in", [[1.0, 0.0]], changes=lambda row: {"response_logprobs": logprobs})

    with pytest.raises(InputError, match=r"group group-0, sample 0: .* collect again with an engine"):
        run_export(table, tmp_path / "out", to="trl")


def test_export_of_failed_samples_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none of its 3 samples has an advantage"):
        run_export(write_table(tmp_path / "in", [[None, None, None]]), tmp_path / "out", to="skyrl")

    assert not (tmp_path / "out/export.json").exists()


def test_export_of_leave_one_out_to_verl_is_refused(tmp_path: Path) -> None:
    table = write_table(tmp_path / "in", GROUPS, advantage=Advantage.LEAVE_ONE_OUT)

    with pytest.raises(SettingsError, match=r"--rollouts\.advantage centred"):
        run_export(table, tmp_path / "out", to="verl")


def test_export_that_lost_a_file_is_refused(tmp_path: Path) -> None:
    table = write_table(tmp_path / "in", GROUPS)
    next((table / "rollouts").iterdir()).unlink()

    with pytest.raises(InputError, match=r"can.t be read: .*No such file.*; collect the rollouts again"):
        run_export(table, tmp_path / "out", to="verl")


def test_export_over_another_export_leaves_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as small_files:
        small_files.setattr(exports, "EXPORT_FILE_BYTES", 1)
        run_export(write_table(tmp_path / "in", [[1.0, 0.0]] * 2), tmp_path / "out", to="trl")
    run_export(write_table(tmp_path / "third", [[1.0, 0.0]]), tmp_path / "out", to="verl")
    run_export(write_table(tmp_path / "other", [[1.0, 0.0]]), tmp_path / "out", to="trl")

    assert {path.name for path in (tmp_path / "out").iterdir()} == {"turns", "prompts.parquet", "export.json"}
    assert pq.read_table(tmp_path / "out/turns").num_rows == 2 * NUM_TURNS


def test_export_that_fails_leaves_the_one_that_is_there(tmp_path: Path) -> None:
    run_export(write_table(tmp_path / "in", [[1.0, 0.0]]), tmp_path / "out", to="trl")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    table = write_table(tmp_path / "other", [[1.0, 0.0]], changes=lambda row: {"response_logprobs": None})
    with pytest.raises(InputError, match="collect again with an engine"):
        run_export(table, tmp_path / "out", to="verl")
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("theirs", ["turns/notes.txt", "prompts.parquet"])
def test_export_into_a_folder_of_other_things_is_refused_and_touches_nothing(tmp_path: Path, theirs: str) -> None:
    place = tmp_path / "mine" / theirs
    place.parent.mkdir(parents=True)
    place.write_text("mine")
    with pytest.raises(OutputError, match=r"holds other files .* and no export\.json; choose an empty folder"):
        run_export(write_table(tmp_path / "in", [[1.0, 0.0]]), tmp_path / "mine", to="verl")
    assert [path.read_text() for path in (tmp_path / "mine").rglob("*") if path.is_file()] == ["mine"]


@pytest.mark.s3
def test_export_in_object_store_is_the_one_on_disk(tmp_path: Path, s3_bucket: Location) -> None:
    table = write_table(tmp_path / "in", GROUPS)
    for file in [table / "rollouts.json", *(table / "rollouts").iterdir()]:
        (s3_bucket / f"in/{file.relative_to(table)}").write_bytes(file.read_bytes())
    run_export(table, tmp_path / "out", to="verl")

    record = export(s3_bucket / "in", s3_bucket / "out", to="verl")

    [turns] = (tmp_path / "out/turns").iterdir()
    assert (s3_bucket / "out" / record["files"][0]).read_bytes() == turns.read_bytes()
    assert f"export: {s3_bucket.uri}/out" in (s3_bucket / "out/agent_loop.yaml").read_bytes().decode()


def run_export(table: Path, output: Path, *, to: str) -> exports.ExportRecord:
    return export(Location(uri=str(table)), Location(uri=str(output)), to=to)


def last_response(turns: pa.Table) -> list[int]:
    response: list[int] = turns["response_ids"].to_pylist()[-1]
    return response


def test_export_command_names_every_trainer_and_format() -> None:
    names = get_args(Export.model_fields["to"].annotation)
    assert names == (*SpreadsheetFormat, *BRIDGES)
