"""Files that are written whole, and created by one of several writers."""

import errno
import os
from collections.abc import Callable
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


@pytest.mark.parametrize("asked", ["exists", "files", "delete", "read_bytes_if_there", "read_json"])
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
        "read_bytes_if_there": place.read_bytes_if_there,
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
