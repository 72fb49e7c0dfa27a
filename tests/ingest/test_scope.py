"""What a job covers: documents outside its condition or slice stay as they are."""

from pathlib import Path

import pytest

from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from tests.ingest.nights import by_id, changes, night, put_jsonl, put_parquet, rows, texts


def test_one_partition_a_day_goes_into_one_output(tmp_path: Path) -> None:
    for day in range(1, 5):
        put_parquet(tmp_path / f"in/day={day}/a.parquet", document_id=[f"d{day}", f"e{day}"], text=["one", "two"])
        assert changes(night(tmp_path / "in", tmp_path / "out", where=f"day = {day}")) == (2, 0, 0)
    put_parquet(tmp_path / "in/day=2/a.parquet", document_id=["d2"], text=["one!"])
    (tmp_path / "in/day=3/a.parquet").unlink()
    assert changes(night(tmp_path / "in", tmp_path / "out", where="day = 2")) == (0, 1, 1)
    assert sorted(texts(tmp_path / "out")) == ["d1", "d2", "d3", "d4", "e1", "e3", "e4"]
    assert changes(night(tmp_path / "in", tmp_path / "out")) == (0, 5, 2)  # the conditions' columns go
    assert sorted(texts(tmp_path / "out")) == ["d1", "d2", "d4", "e1", "e4"]


def test_rows_of_one_file_in_several_conditions(tmp_path: Path) -> None:
    put_parquet(tmp_path / "in/a.parquet", document_id=["a", "b", "c"], text=["1", "2", "3"], kind=["x", "y", "y"])
    night(tmp_path / "in", tmp_path / "out", where="kind = 'x'")
    night(tmp_path / "in", tmp_path / "out", where="kind = 'y'")
    assert texts(tmp_path / "out") == {"a": "1", "b": "2", "c": "3"}
    put_parquet(tmp_path / "in/a.parquet", document_id=["b", "d"], text=["2!", "4"], kind=["y", "y"])
    assert changes(night(tmp_path / "in", tmp_path / "out", where="kind = 'y'")) == (1, 1, 1)
    assert texts(tmp_path / "out") == {"a": "1", "b": "2!", "d": "4"}  # a is outside
    assert {row["scope"] for row in rows(tmp_path / "out", "sources")} == {"where kind = 'x'", "where kind = 'y'"}


def test_document_that_moves_into_the_condition_is_replaced(tmp_path: Path) -> None:
    put_parquet(tmp_path / "in/a.parquet", document_id=["a", "b"], text=["1", "2"], kind=["x", "x"])
    night(tmp_path / "in", tmp_path / "out", where="kind = 'x'")
    put_parquet(tmp_path / "in/a.parquet", document_id=["a", "b"], text=["1", "2"], kind=["x", "y"])
    assert changes(night(tmp_path / "in", tmp_path / "out", where="kind = 'y'")) == (0, 1, 0)
    assert by_id(tmp_path / "out")["b"]["where:kind"] == "y"


def test_id_of_a_document_in_another_partition_is_refused(tmp_path: Path) -> None:
    for day in (1, 2):
        put_parquet(tmp_path / f"in/day={day}/a.parquet", document_id=["same"], text=[str(day)])
    night(tmp_path / "in", tmp_path / "out", where="day = 1")
    with pytest.raises(InputError, match=r"'same' is there twice: in .*day=1/a\.parquet and in .*day=2/a\."):
        night(tmp_path / "in", tmp_path / "out", where="day = 2")


def test_document_that_moves_to_another_partition_is_replaced_once_its_old_file_is_gone(tmp_path: Path) -> None:
    put_parquet(tmp_path / "in/day=1/x.parquet", document_id=["moved", "other"], text=["1", "2"])
    put_parquet(tmp_path / "in/day=1/y.parquet", document_id=["stays"], text=["3"])
    night(tmp_path / "in", tmp_path / "out", where="day = 1")
    put_parquet(tmp_path / "in/day=2/z.parquet", document_id=["moved", "new"], text=["1", "4"])
    put_parquet(tmp_path / "in/day=1/x.parquet", document_id=["other"], text=["2"])
    with pytest.raises(
        InputError,
        match=r"'moved' is there twice: .*This run does not cover .*day=1/x\.parquet: if the document has moved",
    ):
        night(tmp_path / "in", tmp_path / "out", where="day = 2")
    (tmp_path / "in/day=1/x.parquet").unlink()
    assert changes(night(tmp_path / "in", tmp_path / "out", where="day = 2")) == (1, 1, 0)
    sources = {name: row["source"] for name, row in by_id(tmp_path / "out").items()}
    assert sources == {
        "moved": "day=2/z.parquet",
        "new": "day=2/z.parquet",
        "other": "day=1/x.parquet",
        "stays": "day=1/y.parquet",
    }
    assert changes(night(tmp_path / "in", tmp_path / "out", where="day = 1")) == (0, 0, 1)
    assert sorted(texts(tmp_path / "out")) == ["moved", "new", "stays"]


def test_document_that_has_moved_out_of_a_file_that_stays_is_replaced_once_that_part_is_read_again(
    tmp_path: Path,
) -> None:
    put_parquet(tmp_path / "in/day=1/x.parquet", document_id=["moved", "other"], text=["1", "2"])
    night(tmp_path / "in", tmp_path / "out", where="day = 1")
    put_parquet(tmp_path / "in/day=2/z.parquet", document_id=["moved"], text=["1"])
    put_parquet(tmp_path / "in/day=1/x.parquet", document_id=["other"], text=["2"])
    assert changes(night(tmp_path / "in", tmp_path / "out", where="day = 1")) == (0, 0, 1)
    assert changes(night(tmp_path / "in", tmp_path / "out", where="day = 2")) == (1, 0, 0)


def test_slices_go_into_one_output_and_each_looks_after_its_own(tmp_path: Path) -> None:
    items = [{"document_id": f"d{number}", "text": f"text {number}"} for number in range(40)]
    put_jsonl(tmp_path / "in/a.jsonl", items)
    added = [changes(night(tmp_path / "in", tmp_path / "out", slice=f"{part}/3"))[0] for part in (1, 2, 3)]
    assert sum(added) == 40
    assert all(added)
    assert len(texts(tmp_path / "out")) == 40
    put_jsonl(tmp_path / "in/a.jsonl", items[:20])
    removed = [changes(night(tmp_path / "in", tmp_path / "out", slice=f"{part}/3"))[2] for part in (1, 2, 3)]
    assert sum(removed) == 20
    assert sorted(texts(tmp_path / "out")) == sorted(item["document_id"] for item in items[:20])


def test_rows_that_another_job_has_written_otherwise_are_read_again(tmp_path: Path) -> None:
    columns = {"document_id": ["a", "b"], "text": ["1", "2"], "year": [2025, 2026], "state": ["new", "old"]}
    put_parquet(tmp_path / "in/a.parquet", **columns)
    place, output = tmp_path / "in", tmp_path / "out"
    night(place, output, carry={"state": "state"})
    assert changes(night(place, output, where="year = 2026")) == (0, 1, 0)
    assert by_id(output)["b"]["state"] is None
    assert changes(night(place, output, carry={"state": "state"})) == (0, 1, 0)
    assert {name: row["state"] for name, row in by_id(output).items()} == {"a": "new", "b": "old"}
    version = OutputTable(output=Location(uri=str(output)), name="sources").version()
    assert changes(night(place, output, carry={"state": "state"})) == (0, 0, 0)
    assert OutputTable(output=Location(uri=str(output)), name="sources").version() == version
