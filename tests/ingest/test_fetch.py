"""Copies of files that are made ahead: in order, several at once, a bounded number, and none left behind."""

import io
import tarfile
import threading
from collections.abc import Generator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from memagent_batch.data.ingest import fetch
from memagent_batch.data.ingest.fetch import COPIES_AHEAD, FileCopy, copy_files
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, InputUnreachableError

NAMES = [f"{number}.txt" for number in range(3 * COPIES_AHEAD)]


def put_files(folder: Path, names: Sequence[str] = NAMES) -> list[Location]:
    for name in names:
        (folder / name).write_text(f"text of {name}")
    return [Location(uri=str(folder / name)) for name in names]


def copies_of(places: Sequence[Location], folder: Path, *, ending: str = "") -> Generator[FileCopy]:
    (folder / "copies").mkdir()
    return copy_files(places, endings=[ending] * len(places), folder=folder / "copies")


def test_copies_come_in_order_and_a_missing_file_is_an_error_in_its_place(tmp_path: Path) -> None:
    places = put_files(tmp_path)
    (tmp_path / "5.txt").unlink()
    with closing(copies_of(places, tmp_path, ending=".txt")) as copies:
        for name, copy in zip(NAMES, copies, strict=True):
            if name == "5.txt":
                assert isinstance(copy.error, InputUnreachableError)
                assert not copy.path.exists()
                continue
            assert copy.path.suffix == ".txt"
            assert copy.path.read_text() == f"text of {name}"
            assert copy.digest == sha256(copy.path.read_bytes()).hexdigest()
            assert len(list(copy.path.parent.iterdir())) <= COPIES_AHEAD
    assert list((tmp_path / "copies").iterdir()) == []


def test_copies_are_made_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(COPIES_AHEAD, timeout=20)

    def copied(place: Location, path: Path) -> str:
        together.wait()  # returns once so many wait
        return ""

    monkeypatch.setattr(fetch, "copy_file", copied)
    places = put_files(tmp_path)
    assert [copy.error for copy in copies_of(places, tmp_path)] == [None] * len(places)


def test_reader_that_stops_asks_for_no_more_and_waits_for_none_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    may_end = threading.Event()

    def copied(place: Location, path: Path) -> str:
        asked.append(place.uri)
        if not place.uri.endswith("/0.txt"):
            may_end.wait()
        return ""

    monkeypatch.setattr(fetch, "copy_file", copied)
    copies = copies_of(put_files(tmp_path), tmp_path)
    next(copies)
    copies.close()  # it would not return if it waited for the threads
    may_end.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "copies"]:
        thread.join(30)
        assert not thread.is_alive()
    assert len(asked) <= COPIES_AHEAD


def test_files_of_a_tar_are_copied_one_at_a_time_and_each_is_its_own(tmp_path: Path) -> None:
    """Threads would share the position in the one open file."""
    archive = tmp_path / "all.tar"
    with tarfile.open(archive, "w") as tar:
        for number in range(200):
            data = f"text of {number} ".encode() * 5000
            entry = tarfile.TarInfo(f"{number}.txt")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    root = Location(uri=f"tar://::{archive}")
    places = [root.at(f"{number}.txt") for number in range(200)]
    for number, copy in enumerate(copies_of(places, tmp_path)):
        assert copy.path.read_bytes() == f"text of {number} ".encode() * 5000


def test_fault_of_the_code_is_raised_and_not_taken_for_an_unread_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copied(place: Location, path: Path) -> str:
        raise InputError("damaged") if place.uri.endswith("/0.txt") else KeyError("fault")

    monkeypatch.setattr(fetch, "copy_file", copied)
    places = put_files(tmp_path)
    copies = copies_of(places, tmp_path)
    assert str(next(copies).error) == "damaged"
    with pytest.raises(KeyError, match="fault"):
        next(copies)
