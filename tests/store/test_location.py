"""Files that are written whole, and replaced by one of several writers."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from memagent_batch.data.store.json_files import read_json
from memagent_batch.data.store.location import Location
from memagent_batch.errors import StorageError, StorageOutageError


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


@pytest.mark.parametrize("asked", ["exists", "files", "delete", "version", "read_json"])
def test_disk_that_fails_is_an_outage_and_never_an_empty_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    output = Location(uri=str(tmp_path))
    (output / "manifest.json").write_bytes(b"{}")
    place = output / "manifest.json"
    asking: dict[str, Callable[[], object]] = {
        "exists": place.exists,
        "files": (output / "answers").files,
        "delete": place.delete,
        "version": place.version,
        "read_json": lambda: read_json(place),
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
    output = Location(uri=str(tmp_path))
    (output / "answers/a.parquet").write_bytes(b"rows")

    def stale(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "scandir", stale)
    with pytest.raises(StorageOutageError, match="Input/output error"):
        output.files()
