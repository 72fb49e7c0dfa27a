"""Two attempts at one output: whatever their order, the tables are those of one of them, and whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.data.store.location import Location
from memagent_batch.run.claim import ANSWER_TABLES, unreferenced_files
from memagent_batch.run.tables import read_tables
from tests.flows.racing_attempt import DOCUMENTS, PARTS

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("racing_attempt.py")
RACES = 8
"""Outputs in a row, with other pauses each."""
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]


def race(output: Location, folder: Path, *, seed: int) -> list[list[dict[str, Any]]]:
    """How the two attempts at each output ended."""
    folder.mkdir()
    settings = {"uri": output.uri, "storage_options": dict(output.storage_options)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), name, str(RACES), str(seed), json.dumps(settings), str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for name in ("one", "two")
    ]
    said = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return [list(ends) for ends in zip(*map(json.loads, said), strict=True)]


def require_one_run(output: Location, ends: list[dict[str, Any]]) -> None:
    """The tables in an output are those of one run that was not superseded."""
    manifest = json.loads((output / "manifest.json").read_bytes())
    (winner,) = [end for end in ends if end["run_id"] == manifest["run_id"]]
    assert winner["superseded"] is None
    assert unreferenced_files(output, manifest, tables=ANSWER_TABLES) == []
    answers = read_tables(output, manifest["files"]["answers"]).to_pylist()
    assert sorted(row["document_id"] for row in answers) == [f"d{number}" for number in range(DOCUMENTS)]
    assert {row["run_id"] for row in answers} <= {end["run_id"] for end in ends if not end["superseded"]}
    assert len(manifest["files"]["answers"]) == PARTS
    assert manifest["counts"]["asked"] == manifest["counts"]["answers_rows"] == DOCUMENTS
    for end in ends:
        if end["superseded"]:
            assert f"claimed by a newer attempt, run {manifest['run_id']}" in end["superseded"]


def require_one_run_each(outputs: Location, races: list[list[dict[str, Any]]]) -> None:
    for number, ends in enumerate(races):
        require_one_run(outputs / str(number), ends)
    assert sum(bool(end["superseded"]) for end in races[0]) == 1  # both had claimed the first output


@pytest.mark.parametrize("seed", SEEDS)
def test_two_attempts_on_a_disk_leave_the_tables_of_one(tmp_path: Path, seed: int) -> None:
    output = Location(uri=str(tmp_path / "outputs"))
    require_one_run_each(output, race(output, tmp_path / "meeting", seed=seed))


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_attempts_in_a_bucket_leave_the_tables_of_one(s3_bucket: Location, tmp_path: Path, seed: int) -> None:
    output = s3_bucket / "outputs"
    require_one_run_each(output, race(output, tmp_path / "meeting", seed=seed))
