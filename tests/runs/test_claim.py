import errno
import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from memagent_batch.errors import StorageError, StorageOutageError, SupersededError
from memagent_batch.runs.claim import ANSWER_TABLES, publish, remove_leftovers, removed_on_failure, require_claim
from memagent_batch.store.json_files import read_json
from memagent_batch.store.location import Location

LAST, OWN, OTHER = "20260101T000000.000Z.9999", "20260101T000001.000Z.aaaa", "20260101T000002.000Z.bbbb"
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


def show(output: Location, run_id: str) -> list[str]:
    files = [f"answers/part-00000-{run_id}.parquet", f"memories/part-00000-{run_id}.parquet"]
    put(output, *files)
    (output / "manifest.json").write_bytes(json.dumps({"run_id": run_id, "files": files}).encode())
    return files


def record_of(output: Location) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((output / "manifest.json").read_bytes())
    return record


def names_in(output: Location) -> set[str]:
    return {path.removeprefix(f"{output.path}/") for path in output.files(temporary=True)} - {"run.json"}


def test_require_claim_after_a_newer_attempt_names_it_and_the_way_on_and_without_its_record_is_lost(
    tmp_path: Path,
) -> None:
    output = output_of(tmp_path)
    require_claim(output, run_id=OWN)
    claim(output, OTHER)
    with pytest.raises(SupersededError, match=f"newer attempt, run {OTHER}; this one, run {OWN}, leaves.*in the log"):
        require_claim(output, run_id=OWN)
    (output / "run.json").delete()
    with pytest.raises(SupersededError, match=r"run\.json was removed"):
        require_claim(output, run_id=OWN)


def test_remove_leftovers_takes_what_no_record_names_and_spares_what_is_shown(tmp_path: Path) -> None:
    output = output_of(tmp_path)
    shown = show(output, LAST)
    put(output, f"answers/part-00000-{OTHER}.parquet", "memories/.tmp-half-written")
    remove_leftovers(output, tables=ANSWER_TABLES, run_id=OWN)
    assert names_in(output) == {"manifest.json", *shown}
    assert record_of(output)["run_id"] == LAST


def test_remove_leftovers_keeps_an_older_attempt_from_publishing_what_was_removed(tmp_path: Path) -> None:
    output = output_of(tmp_path, claimed_by=OTHER)
    shown = show(output, LAST)
    put(output, *FILES)
    version = (output / "manifest.json").version()  # the older attempt stalls here, its claim stood
    remove_leftovers(output, tables=ANSWER_TABLES, run_id=OTHER)
    assert not (output / "manifest.json").replace(json.dumps(MANIFEST).encode(), version=version)
    assert names_in(output) == {"manifest.json", *shown}


def test_superseded_attempt_removes_nothing_and_publishes_nothing(tmp_path: Path) -> None:
    output = output_of(tmp_path, claimed_by=OTHER)
    show(output, LAST)
    put(output, *FILES)
    before = names_in(output)
    with pytest.raises(SupersededError):
        remove_leftovers(output, tables=ANSWER_TABLES, run_id=OWN)
    with pytest.raises(SupersededError):
        publish(output, MANIFEST, tables=ANSWER_TABLES, run_id=OWN)
    assert names_in(output) == before
    assert record_of(output)["run_id"] == LAST


def test_publish_takes_the_place_of_what_was_shown_and_removes_its_files(tmp_path: Path) -> None:
    output = output_of(tmp_path)
    show(output, LAST)
    put(output, *FILES)
    publish(output, MANIFEST, tables=ANSWER_TABLES, run_id=OWN)
    assert record_of(output) == MANIFEST
    assert names_in(output) == {"manifest.json", *FILES}


def test_block_that_fails_takes_its_own_files_and_nothing_that_is_shown(tmp_path: Path) -> None:
    output = output_of(tmp_path)
    shown = show(output, LAST)

    def fail() -> None:
        with removed_on_failure(output, tables=ANSWER_TABLES, run_id=OWN):
            put(output, *FILES, f"answers/part-00000-{OTHER}.parquet")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert names_in(output) == {"manifest.json", f"answers/part-00000-{OTHER}.parquet", *shown}


@pytest.mark.s3
@pytest.mark.parametrize("name", ["scan[12]", "scan*"])
def test_tables_in_an_output_with_wildcards_in_its_name_are_its_own(s3_bucket: Location, name: str) -> None:
    for other in ("scan1", "scan2", name):
        claim(s3_bucket / other, OWN)
        show(s3_bucket / other, LAST)
    others = [path for path in s3_bucket.files() if f"/{name}/" not in path]
    output = s3_bucket / name
    put(output, *FILES, f"answers/part-00000-{OTHER}.parquet")
    remove_leftovers(output, tables=ANSWER_TABLES, run_id=OWN)
    put(output, *FILES)
    publish(output, MANIFEST, tables=ANSWER_TABLES, run_id=OWN)
    assert names_in(output) == {"manifest.json", *FILES}
    (output / "answers").delete()
    assert names_in(output) == {"manifest.json", FILES[1]}
    assert [path for path in s3_bucket.files() if f"/{name}/" not in path] == others


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


@pytest.mark.parametrize("kind", ["disk", pytest.param("bucket", marks=pytest.mark.s3), "memory"])
def test_replace_takes_the_place_of_the_version_that_was_looked_at_alone(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    folders = {"disk": Location(uri=str(tmp_path)), "memory": Location(uri=f"memory://{tmp_path.name}")}
    folder = folders[kind] if kind in folders else request.getfixturevalue("s3_bucket")
    place = folder / "below" / "file"
    assert place.version() is None
    assert place.replace(b"first", version=None)
    assert not place.replace(b"other", version=None)
    version = place.version()
    assert place.replace(b"second", version=version)
    assert not place.replace(b"third", version=version)
    assert place.replace(b"second", version=version)  # sent again, since its answer was lost
    assert place.read_bytes() == b"second"
    place.delete()
    assert not place.replace(b"third", version=version)
    assert folder.files() == []


@pytest.mark.s3
def test_replace_of_a_file_that_clients_send_in_parts_is_conditional_too(s3_bucket: Location) -> None:
    place, large = s3_bucket / "manifest.json", b"x" * (101 * 1024 * 1024)
    place.write_bytes(b"first")
    looked_at = place.version()
    place.write_bytes(b"second")
    assert not place.replace(large, version=looked_at)
    assert place.read_bytes() == b"second"


def test_replace_by_many_processes_at_once_is_done_by_one_of_them_each_time(tmp_path: Path) -> None:
    place = Location(uri=str(tmp_path)) / "number"
    place.write_bytes(b"0 by nobody")
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as processes:
        done = sum(processes.map(count_up, [place] * 4))
    assert done == 4 * COUNTED
    assert int(place.read_bytes().split()[0]) == 4 * COUNTED


COUNTED = 50
"""Times that each process counts up."""


def count_up(place: Location) -> int:
    done = 0
    while done < COUNTED:
        version = place.version()
        number = int(place.read_bytes().split()[0])
        done += place.replace(b"%d by %d" % (number + 1, os.getpid()), version=version)
    return done


def test_publish_that_loses_the_claim_to_a_finished_attempt_leaves_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, replace = output_of(tmp_path), Location.replace
    show(output, LAST)

    def replace_late(place: Location, data: bytes, *, version: str | None) -> bool:
        """The newer attempt comes and ends between the claim's answer and the record."""
        claim(output, OTHER)
        show(output, OTHER)
        return replace(place, data, version=version)

    monkeypatch.setattr(Location, "replace", replace_late)
    with pytest.raises(SupersededError):
        publish(output, MANIFEST, tables=ANSWER_TABLES, run_id=OWN)
    assert record_of(output)["run_id"] == OTHER


@pytest.mark.parametrize("asked", ["exists", "files", "delete", "version", "read_json", "claim"])
def test_disk_that_fails_is_an_outage_and_never_an_empty_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    output = output_of(tmp_path)
    show(output, LAST)
    place = output / "manifest.json"
    asking: dict[str, Callable[[], object]] = {
        "exists": place.exists,
        "files": (output / "answers").files,
        "delete": place.delete,
        "version": place.version,
        "read_json": lambda: read_json(place),
        "claim": lambda: require_claim(output, run_id=OWN),
    }

    def stale(*_: Any, **__: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as failing:
        for name in ("info", "cat_file", "_open"):
            failing.setattr(LocalFileSystem, name, stale)
        with pytest.raises(StorageOutageError, match="Stale file handle"):
            asking[asked]()
    assert place.exists()


def test_folder_that_can_not_be_listed_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = output_of(tmp_path)
    show(output, LAST)

    def stale(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "scandir", stale)
    with pytest.raises(StorageOutageError, match="Input/output error"):
        output.files()
