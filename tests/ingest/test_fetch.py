"""Copies of files that are made ahead: in order, several at once, a bounded number, and none left behind."""

import threading
from collections.abc import Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from memagent_batch.data.ingest import fetch
from memagent_batch.data.ingest.fetch import COPIES_AHEAD, copy_files
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, InputUnreachableError

NAMES = [f"{number}.txt" for number in range(3 * COPIES_AHEAD)]


def put_files(folder: Path, names: Sequence[str] = NAMES) -> list[Location]:
    for name in names:
        (folder / name).write_text(f"text of {name}")
    return [Location(uri=str(folder / name)) for name in names]


def test_copies_come_in_order_and_a_missing_file_is_an_error_in_its_place(tmp_path: Path) -> None:
    places = put_files(tmp_path)
    (tmp_path / "5.txt").unlink()
    folders = set()
    with closing(copy_files(places, endings=[".txt"] * len(places))) as copies:
        for name, copy in zip(NAMES, copies, strict=True):
            folders.add(copy.path.parent)
            if name == "5.txt":
                assert isinstance(copy.error, InputUnreachableError)
                assert not copy.path.exists()
                continue
            assert copy.path.suffix == ".txt"
            assert copy.path.read_text() == f"text of {name}"
            assert copy.digest == sha256(copy.path.read_bytes()).hexdigest()
            assert len(list(copy.path.parent.iterdir())) <= COPIES_AHEAD
    (folder,) = folders
    assert not folder.exists()


def test_copies_are_made_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(COPIES_AHEAD, timeout=20)

    def copied(place: Location, path: Path) -> str:
        together.wait()  # returns once so many wait
        return ""

    monkeypatch.setattr(fetch, "copy_file", copied)
    places = put_files(tmp_path)
    assert [copy.error for copy in copy_files(places, endings=[""] * len(places))] == [None] * len(places)


def test_reader_that_stops_leaves_no_copy_and_asks_for_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    whole = fetch.copy_file

    def copied(place: Location, path: Path) -> str:
        asked.append(place.uri)
        return whole(place, path)

    monkeypatch.setattr(fetch, "copy_file", copied)
    places = put_files(tmp_path)
    copies = copy_files(places, endings=[""] * len(places))
    folder = next(copies).path.parent
    copies.close()
    assert not folder.exists()
    assert len(asked) <= COPIES_AHEAD


def test_fault_of_the_code_is_raised_and_not_taken_for_an_unread_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copied(place: Location, path: Path) -> str:
        raise InputError("damaged") if place.uri.endswith("/0.txt") else KeyError("fault")

    monkeypatch.setattr(fetch, "copy_file", copied)
    places = put_files(tmp_path)
    copies = copy_files(places, endings=[""] * len(places))
    assert str(next(copies).error) == "damaged"
    with pytest.raises(KeyError, match="fault"):
        next(copies)
