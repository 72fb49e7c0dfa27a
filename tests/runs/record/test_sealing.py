"""What a run records of its files, and what it takes over from the run before."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from memagent_batch.files.location import Location
from tests.runs.recorded_nights import Killed, Nights
from tests.verification.scan import found, verify_here

DOCUMENTS = {"a": "one", "b": "two"}
QUESTIONS = {"q": "Why?"}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(Location(uri=str(tmp_path / "run")))


def hashes(nights: Nights, names: Mapping[str, str]) -> dict[str, str]:
    return {name: sha256((nights.output / name).read_bytes()).hexdigest() for name in names}


def flip(nights: Nights, name: str) -> None:
    place = nights.output / name
    data = place.read_bytes()
    place.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])


def test_manifest_has_the_hash_of_every_file_and_of_the_manifest_before(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)
    second = nights.run({**DOCUMENTS, "c": "three"}, QUESTIONS)
    files = second["record"]["files"]
    assert files == hashes(nights, files)
    tables = {name for names in second["files"].values() for name in names}
    record = {f"runs/{second['run_id']}/{name}" for name in ("plan.parquet", "removed.parquet", "log.parquet")}
    assert files.keys() >= tables | record | {"run.json", f"log/questions/{second['run_id']}.parquet"}
    before = second["record"]["before"]
    assert before is not None
    assert before["run_id"] == first["run_id"]
    recorded = (nights.output / f"runs/{first['run_id']}/manifest.json").read_bytes()
    assert before["sha256"] == sha256(recorded).hexdigest()
    assert first["record"]["before"] is None


def test_hashes_of_unchanged_files_are_taken_over_so_that_damage_between_two_nights_is_found(nights: Nights) -> None:
    first = nights.run(DOCUMENTS, QUESTIONS)
    table = first["files"]["memories"][0]
    log = (nights.output / "log/outcomes").files()[0].removeprefix(f"{nights.output.path}/")
    flip(nights, table)
    second = nights.run(DOCUMENTS, QUESTIONS)
    assert second["files"]["memories"] == first["files"]["memories"]
    flip(nights, log)
    findings = verify_here(nights.output).findings
    assert {(each.where, each.since) for each in findings if each.kind == "changed"} == {
        (table, first["run_id"]),
        (log, first["run_id"]),
    }


def test_output_whose_last_run_had_no_hashes_gets_them_from_its_files(nights: Nights) -> None:
    nights.run(DOCUMENTS, QUESTIONS)
    for name in ("manifest.json", f"runs/{nights.last().run_id}/manifest.json"):
        manifest = json.loads((nights.output / name).read_bytes())
        del manifest["record"]
        (nights.output / name).write_bytes(json.dumps(manifest, indent=2, ensure_ascii=False).encode())
    for name in ("log.parquet", "projection.json", "card.md"):
        (nights.output / f"runs/{nights.last().run_id}/{name}").delete()
    second = nights.run(DOCUMENTS, QUESTIONS)
    assert second["record"]["files"] == hashes(nights, second["record"]["files"])
    result = verify_here(nights.output)
    assert (result.findings, result.num_runs) == ([], 2)


@pytest.mark.parametrize("killed_at", ["reading", "tables", "manifest"])
def test_chain_goes_on_over_runs_that_were_killed(nights: Nights, killed_at: str) -> None:
    nights.run(DOCUMENTS, QUESTIONS)
    with pytest.raises(Killed):
        nights.run({**DOCUMENTS, "c": "three"}, QUESTIONS, killed_at=killed_at)
    assert found(verify_here(nights.output)) == set()
    nights.run({**DOCUMENTS, "c": "three"}, QUESTIONS)
    result = verify_here(nights.output)
    assert (result.findings, result.unchecked, result.num_runs) == ([], [], 2)


def test_readings_that_were_not_read_follow_from_the_log_too(nights: Nights) -> None:
    nights.run({"a": "1 away", "b": "two"}, QUESTIONS, away=True)
    assert verify_here(nights.output).findings == []
