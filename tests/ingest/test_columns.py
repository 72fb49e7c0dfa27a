"""Columns that `documents` takes over from the input: their types, their names, and what they can't be."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, feather

from memagent_batch.config.job import ExecutorKind
from memagent_batch.data.ingest import columns, row_tasks
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.run.flows.ingest import ingest_documents
from tests.ingest.nights import by_id, changes, job_of, night, put_jsonl, put_parquet, rows

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


def put_row(path: Path, **values: Any) -> None:
    """A file of one document, in the format of its ending."""
    row = {"document_id": path.name.partition(".")[0], "text": "t", **values}
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([row])
    if path.suffix == ".jsonl":
        put_jsonl(path, [row])
    elif path.suffix == ".csv":
        csv.write_csv(table, path)
    elif path.suffix == ".arrow":
        feather.write_feather(table, path)
    elif path.suffix == ".txt":
        path.write_text("t")
    else:
        put_parquet(path, **table.to_pydict())


@pytest.mark.parametrize("order_columns", [(), ("document_id",)])
@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv", "arrow"])
def test_column_that_some_files_lack_is_null_in_their_rows(
    tmp_path: Path, ending: str, order_columns: tuple[str, ...]
) -> None:
    put_row(tmp_path / f"in/a.{ending}")
    put_row(tmp_path / f"in/b.{ending}", year=2026)
    put_row(tmp_path / f"in/c.{ending}")
    put_row(tmp_path / "in/d.parquet")
    night(tmp_path / "in", tmp_path / "out", carry_columns=("year",), order_columns=order_columns, on_bad_file="record")
    found = {name: (row["text"], row["year"], row["error"]) for name, row in by_id(tmp_path / "out").items()}
    year = "2026" if ending == "csv" else 2026
    assert found == {"a": ("t", None, None), "b": ("t", year, None), "c": ("t", None, None), "d": ("t", None, None)}


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_column_in_one_of_many_files_has_its_type_whichever_file_that_is(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MAX_TYPED_FILES", 2)
    for number in range(5):
        put_row(tmp_path / f"in/f{number}.{ending}", **({"year": 2026} if number == 3 else {}))
    night(tmp_path / "in", tmp_path / "out", carry_columns=("year",))
    years = {name: row["year"] for name, row in by_id(tmp_path / "out").items()}
    assert years == {"f0": None, "f1": None, "f2": None, "f3": 2026, "f4": None}
    with pytest.raises(
        InputError, match=rf"f0\.{ending} \(as all 5 files .*\) has no column 'yeer'; its columns: 'docum"
    ):
        night(tmp_path / "in", tmp_path / "other", carry_columns=("year", "yeer"), on_bad_file="record")
    assert not (tmp_path / "other/documents").exists()


@pytest.mark.ray
def test_tasks_on_ray_find_a_column_in_one_of_many_files(
    ray_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MAX_TYPED_FILES", 2)
    monkeypatch.setattr(row_tasks, "TASK_BYTES", 1)  # a task for each file
    for number in range(5):
        put_row(tmp_path / f"in/f{number}.parquet", **({"year": 2026} if number == 3 else {}))
    night(tmp_path / "in", tmp_path / "out", carry_columns=("year",), executor=ExecutorKind.RAY)
    assert [row["year"] for row in rows(tmp_path / "out")] == [None, None, None, 2026, None]
    with pytest.raises(InputError, match="has no column 'yeer'"):
        night(tmp_path / "in", tmp_path / "out", carry_columns=("yeer",), executor=ExecutorKind.RAY)


def test_nights_whose_new_files_alone_have_or_lack_a_column_are_read(tmp_path: Path) -> None:
    carry = {"year": "its_year"}
    put_row(tmp_path / "in/day=1/a.parquet")
    night(tmp_path / "in", tmp_path / "out")
    put_row(tmp_path / "in/day=2/b.parquet", year=2026)
    night(tmp_path / "in", tmp_path / "out", carry=carry)
    put_row(tmp_path / "in/day=3/c.parquet")
    assert changes(night(tmp_path / "in", tmp_path / "out", carry=carry)) == (1, 0, 0)
    put_row(tmp_path / "in/day=4/d.parquet")
    assert changes(night(tmp_path / "in", tmp_path / "out", carry=carry, where="day = 4")) == (1, 0, 0)
    years = {name: row["its_year"] for name, row in by_id(tmp_path / "out").items()}
    assert years == {"a": None, "b": 2026, "c": None, "d": None}
    assert column_types(tmp_path / "out")["its_year"] == pa.int64()


def test_column_that_every_file_has_lost_is_refused_even_if_the_table_has_it(tmp_path: Path) -> None:
    put_row(tmp_path / "in/a.parquet", year=2026)
    night(tmp_path / "in", tmp_path / "out", carry_columns=("year",))
    put_row(tmp_path / "in/a.parquet", month=1)
    with pytest.raises(InputError, match=r"a\.parquet has no column 'year'"):
        night(tmp_path / "in", tmp_path / "out", carry_columns=("year",))
    assert by_id(tmp_path / "out")["a"]["year"] == 2026


def test_text_file_beside_a_data_file_and_a_key_of_some_folders_lack_columns(tmp_path: Path) -> None:
    put_row(tmp_path / "in/run=1/a.parquet", year=2026)
    put_row(tmp_path / "in/b.parquet")
    put_row(tmp_path / "in/c.txt")
    job = job_of(tmp_path / "in", tmp_path / "out", carry_columns=("year", "run"))
    ingest_documents(job.model_copy(update={"documents": (*job.documents, str(tmp_path / "in/*.txt"))}))
    found = {name: (row["year"], row["run"]) for name, row in by_id(tmp_path / "out").items()}
    assert found == {"a": (2026, "1"), "b": (None, None), "c.txt": (None, None)}


def test_key_that_is_in_no_line_of_a_file_but_late_in_another_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MAX_TYPED_LINES", 2)
    lines = [{"document_id": f"d{number}", "text": "t"} for number in range(5)]
    put_jsonl(tmp_path / "in/a.jsonl", lines)
    others = [{**line, "document_id": f"e{number}"} for number, line in enumerate(lines)]
    put_jsonl(tmp_path / "in/b.jsonl", [*others[:-1], {**others[-1], "k": "v"}])
    night(tmp_path / "in", tmp_path / "out", carry_columns=("k",))
    assert {row["k"] for row in by_id(tmp_path / "out").values()} == {None, "v"}


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
