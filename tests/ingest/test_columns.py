"""Columns that `documents` takes over from the input: their types, their names, and what they can't be."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from tests.ingest.nights import by_id, changes, night, put_jsonl, put_parquet

DAY = datetime.date(2026, 1, 31)
NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)


def column_types(output: Path) -> dict[str, pa.DataType]:
    schema = OutputTable(output=Location(uri=str(output)), name="documents").schema()
    return {field.name: field.type for field in schema}


def test_columns_keep_their_types_and_may_be_renamed(tmp_path: Path) -> None:
    put_parquet(
        tmp_path / "in/a.parquet",
        document_id=["a", "b"],
        text=["one", "two"],
        day=pa.array([DAY, None]),
        at=pa.array([NOON, None], pa.timestamp("ns", "UTC")),
        small=pa.array([1, 2], pa.uint8()),
        price=pa.array([None, 1.5], pa.float32()),
        tags=[["x", "y"], []],
        kind=pa.array(["k", "k"]).dictionary_encode(),
        source=["their own", "their own"],
    )
    carried = ("day", "at", "small", "price", "tags", "kind")
    night(tmp_path / "in", tmp_path / "out", carry_columns=carried, carry={"source": "origin"})
    row = by_id(tmp_path / "out")["a"]
    assert (row["day"], row["at"], row["small"], row["price"], row["kind"]) == (DAY, NOON, 1, None, "k")
    assert (row["tags"], row["origin"], row["source"]) == (["x", "y"], "their own", "a.parquet")
    types = column_types(tmp_path / "out")
    assert (types["day"], types["small"], types["price"]) == (pa.date32(), pa.int16(), pa.float32())


def test_types_of_jsonl_follow_from_its_first_lines_and_csv_has_texts(tmp_path: Path) -> None:
    values: list[dict[str, Any]] = [{"n": 1, "f": 1, "b": True, "m": 1, "o": {"x": 1}}, {"n": None, "f": 0.5, "m": "x"}]
    items = [{"document_id": f"d{number}", "text": "t", **value} for number, value in enumerate(values)]
    put_jsonl(tmp_path / "in/a.jsonl", items)
    (tmp_path / "in/b.csv").write_text("document_id,text,n,f,b,m,o\nc,t,7,2,true,z,{}\n")
    night(tmp_path / "in", tmp_path / "out", carry_columns=("n", "f", "b", "m", "o"))
    found = {name: tuple(row[each] for each in "nfbmo") for name, row in by_id(tmp_path / "out").items()}
    assert found == {
        "d0": (1, 1.0, True, "1", '{"x": 1}'),
        "d1": (None, 0.5, None, "x", None),
        "c": (7, 2.0, True, "z", "{}"),
    }


def test_value_of_another_type_is_refused_with_its_place(tmp_path: Path) -> None:
    put_parquet(tmp_path / "in/a.parquet", document_id=["a"], text=["t"], year=[2026])
    put_jsonl(tmp_path / "in/b.jsonl", [{"document_id": "b", "text": "t", "year": "unknown"}])
    with pytest.raises(InputError, match=r"b\.jsonl, line 1: column 'year' has 'unknown', .* of the type int64"):
        night(tmp_path / "in", tmp_path / "out", carry_columns=("year",))
    night(tmp_path / "in", tmp_path / "out", carry_columns=("year",), on_bad_file="record")
    assert by_id(tmp_path / "out")["b.jsonl, line 1"]["error_type"] == "BadFileError"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"carry_columns": ("text_hash",)},
            r"`documents` has a column 'text_hash' of its own; .*input\.carry: {text_hash",
        ),
        ({"carry_columns": ("kind",), "carry": {"other": "Kind"}}, "'kind' and 'other' would both be 'Kind'"),
        ({"carry_columns": ("missing",)}, r"a\.parquet has no column 'missing'; its columns"),
    ],
)
def test_columns_that_can_not_be_carried_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    put_parquet(tmp_path / "in/a.parquet", document_id=["a"], text=["t"], kind=["k"], text_hash=["h"], other=["o"])
    with pytest.raises(InputError, match=message):
        night(tmp_path / "in", tmp_path / "out", **settings)


def test_column_that_is_carried_from_now_on_changes_every_row_and_one_no_longer_carried_is_null(tmp_path: Path) -> None:
    put_parquet(tmp_path / "in/a.parquet", document_id=["a", "b"], text=["t", "u"], kind=["k", "l"], year=[1, 2])
    night(tmp_path / "in", tmp_path / "out", carry_columns=("kind",))
    assert changes(night(tmp_path / "in", tmp_path / "out", carry_columns=("year",))) == (0, 2, 0)
    row = by_id(tmp_path / "out")["b"]
    assert (row["kind"], row["year"]) == (None, 2)
    put_parquet(tmp_path / "in/a.parquet", document_id=["a", "b"], text=["t", "u!"], kind=["k", "l"], year=[1, 2])
    assert changes(night(tmp_path / "in", tmp_path / "out", carry_columns=("year",))) == (0, 1, 0)


def test_keys_of_folders_are_columns_of_files_without_any(tmp_path: Path) -> None:
    (tmp_path / "in/year=2026").mkdir(parents=True)
    (tmp_path / "in/year=2026/a.txt").write_text("a text")
    night(tmp_path / "in", tmp_path / "rows", format="text", carry_columns=("year",))
    night(tmp_path / "in", tmp_path / "files", format="files", carry_columns=("year",))
    for output in ("rows", "files"):
        assert by_id(tmp_path / output)["year=2026/a.txt"]["year"] == "2026"
    with pytest.raises(InputError, match="a document file has no column 'kind'"):
        night(tmp_path / "in", tmp_path / "none", format="files", carry_columns=("kind",))
