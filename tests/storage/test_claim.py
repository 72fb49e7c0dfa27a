import json
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.errors import StorageError, SupersededError
from memagent_batch.storage.claim import clear_tables, publish_manifest, remove_tables, require_claim
from memagent_batch.storage.location import Location

OWN, OTHER = "20260101T000001.000Z.aaaa", "20260101T000002.000Z.bbbb"
FILES = [f"answers/part-00000-{OWN}.parquet", f"memories/part-00000-{OWN}.parquet"]
MANIFEST: dict[str, Any] = {"run_id": OWN, "files": FILES}


def output_of(folder: Path, *, claimed_by: str = OWN) -> Location:
    output = Location(uri=str(folder))
    claim(output, claimed_by)
    return output


def claim(output: Location, run_id: str) -> None:
    (output / "run.json").write_bytes(json.dumps({"run_id": run_id}).encode())


def put(output: Location, *names: str) -> None:
    for name in names:
        (output / name).write_bytes(b"rows")


def names_in(output: Location) -> set[str]:
    return {path.removeprefix(f"{output.path}/") for path in output.files()} - {"run.json"}


def test_require_claim_after_a_newer_attempt_names_it_and_the_way_on(tmp_path: Path) -> None:
    output = output_of(tmp_path)
    require_claim(output, run_id=OWN)
    claim(output, OTHER)
    with pytest.raises(SupersededError, match=f"newer attempt, run {OTHER}; this one, run {OWN}, leaves.*in the log"):
        require_claim(output, run_id=OWN)


def test_require_claim_whose_record_was_removed_is_lost(tmp_path: Path) -> None:
    with pytest.raises(SupersededError, match=r"run\.json was removed"):
        require_claim(Location(uri=str(tmp_path)), run_id=OWN)


def test_clear_tables_of_a_superseded_attempt_removes_nothing(tmp_path: Path) -> None:
    output = output_of(tmp_path, claimed_by=OTHER)
    put(output, "manifest.json", *FILES)
    with pytest.raises(SupersededError):
        clear_tables(output, run_id=OWN)
    assert names_in(output) == {"manifest.json", *FILES}


def test_publish_manifest_takes_the_place_of_an_older_attempts_and_clears_its_files(tmp_path: Path) -> None:
    output = output_of(tmp_path)
    put(output, "manifest.json", "answers/part-00007-older.parquet", *FILES)
    publish_manifest(output, MANIFEST, run_id=OWN, files=FILES)
    assert json.loads((output / "manifest.json").read_bytes()) == MANIFEST
    assert names_in(output) == {"manifest.json", *FILES}


def test_publish_manifest_of_a_superseded_attempt_leaves_the_newer_ones(tmp_path: Path) -> None:
    output = output_of(tmp_path, claimed_by=OTHER)
    put(output, "manifest.json", f"answers/part-00000-{OTHER}.parquet")
    with pytest.raises(SupersededError):
        publish_manifest(output, MANIFEST, run_id=OWN, files=FILES)
    assert names_in(output) == {"manifest.json", f"answers/part-00000-{OTHER}.parquet"}
    assert (output / "manifest.json").read_bytes() == b"rows"


@pytest.mark.parametrize("run_id", [OWN, OTHER])
def test_remove_tables_takes_the_files_and_the_manifest_of_one_run(tmp_path: Path, run_id: str) -> None:
    output = output_of(tmp_path)
    put(output, *FILES, f"answers/part-00000-{OTHER}.parquet")
    (output / "manifest.json").write_bytes(json.dumps(MANIFEST).encode())
    remove_tables(output, run_id=run_id)
    left = {*FILES, "manifest.json"} if run_id == OTHER else {f"answers/part-00000-{OTHER}.parquet"}
    assert names_in(output) == left


@pytest.mark.parametrize("kind", ["disk", pytest.param("bucket", marks=pytest.mark.s3)])
def test_create_writes_once_and_knows_its_own_file_again(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    folder = Location(uri=str(tmp_path)) if kind == "disk" else request.getfixturevalue("s3_bucket")
    place = folder / "below" / "file"
    assert place.create(b"first")
    assert not place.create(b"second")
    assert place.create(b"first")
    assert place.read_bytes() == b"first"
    assert len(folder.files()) == 1


def test_create_where_nothing_can_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="can't be written"):
        (Location(uri=str(tmp_path)) / "file" / "below").create(b"data")


def test_publish_manifest_that_loses_the_claim_to_a_finished_attempt_leaves_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, create = output_of(tmp_path), Location.create

    def create_late(place: Location, data: bytes) -> bool:
        """The newer attempt comes and ends between the claim's answer and the manifest."""
        claim(output, OTHER)
        put(output, "manifest.json")
        return create(place, data)

    monkeypatch.setattr(Location, "create", create_late)
    with pytest.raises(SupersededError):
        publish_manifest(output, MANIFEST, run_id=OWN, files=FILES)
    assert (output / "manifest.json").read_bytes() == b"rows"
