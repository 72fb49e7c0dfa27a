from pathlib import Path

import pytest

from memagent_batch.errors import InputError, OutputError
from memagent_batch.store.claims import read_owner_record, require_complete
from memagent_batch.store.json_files import write_json
from memagent_batch.store.location import Location

NAME = "kind.json"
LAYOUT = "kind/1"


def claim(folder: Path) -> object:
    return read_owner_record(Location(uri=str(folder)), NAME, layout=LAYOUT)


def read(folder: Path) -> object:
    place = Location(uri=str(folder))
    return require_complete(place, NAME, layout=LAYOUT, missing="finish it", remedy="make it again")


def test_claimed_record_empty_or_absent_folder_is_free(tmp_path: Path) -> None:
    assert claim(tmp_path) is None
    assert claim(tmp_path / "absent") is None


def test_claimed_record_of_this_kind_is_returned_to_writer_and_reader(tmp_path: Path) -> None:
    record = {"format": LAYOUT, "more": 1}
    write_json(Location(uri=str(tmp_path / NAME)), record)
    (tmp_path / "rows").write_text("beside it")
    assert claim(tmp_path) == read(tmp_path) == record


@pytest.mark.parametrize("data", ["{", "[" * 100_000, "[1]"])
def test_whole_record_that_is_missing_or_broken_is_refused_with_the_remedy(data: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no kind\.json, so it is not whole; finish it"):
        read(tmp_path)
    (tmp_path / NAME).write_text(data)
    with pytest.raises(InputError, match=r"kind\.json is not (valid JSON|a JSON object)"):
        read(tmp_path)
    with pytest.raises(OutputError, match=r"kind\.json is not (valid JSON|a JSON object)"):
        claim(tmp_path)


def test_whole_record_that_is_a_folder_is_refused_as_an_input(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(InputError, match=r"kind\.json can't be read: IsADirectoryError"):
        read(tmp_path)
