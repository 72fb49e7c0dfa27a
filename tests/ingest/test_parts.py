"""Documents of many rows over several sources: unchanged parts come from the table."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent_batch.data.documents.data_files import DataFile
from memagent_batch.data.ingest import part_tasks
from memagent_batch.data.ingest.row_tasks import file_records
from memagent_batch.errors import InputError
from tests.ingest.nights import by_id, changes, content, night, put_parquet, texts

Page = tuple[str, int | str, str | None]
ORDERED = {"order_columns": ("page",), "locator": "page {page}", "header": "[{page}]"}


def put(path: Path, pages: Sequence[Page]) -> None:
    columns = zip(*pages, strict=True) if pages else ((), (), ())
    ids, numbers, own = (list(column) for column in columns)
    put_parquet(
        path,
        document_id=ids,
        page=numbers,
        text=own,
        tag=[f"tag {name} {n}" for name, n in zip(ids, numbers, strict=True)],
    )


def test_rows_are_joined_in_order_with_header_locator_and_spans(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", [("x", 10, "ten"), ("x", 2, "two"), ("y", 1, "one")])
    put(tmp_path / "in/b.parquet", [("x", 1, "one"), ("z", 1, "")])
    night(tmp_path / "in", tmp_path / "out", carry={"tag": "label"}, **ORDERED)
    found = by_id(tmp_path / "out")
    assert found["x"]["text"] == "[1]\none\n\n[2]\ntwo\n\n[10]\nten"
    assert found["x"]["label"] == "tag x 1"
    parts = found["x"]["parts"]
    assert [(part["source"], part["locator"]) for part in parts] == [
        ("b.parquet", "page 1"),
        ("a.parquet", "page 2"),
        ("a.parquet", "page 10"),
    ]
    spans = [found["x"]["text"][part["char_start"] : part["char_end"]] for part in parts]
    assert spans == ["[1]\none", "[2]\ntwo", "[10]\nten"]
    assert found["z"]["text"] == "[1]\n"


def test_changed_source_is_read_alone_and_its_parts_are_joined_with_stored_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "in/a.parquet", [("x", 1, "one"), ("y", 1, "one")])
    put(tmp_path / "in/b.parquet", [("x", 2, "two"), ("z", 1, "alone")])
    first = night(tmp_path / "in", tmp_path / "out", carry_columns=("tag",), **ORDERED)
    opened = list[str]()
    monkeypatch.setattr(part_tasks, "file_records", _spy(file_records, opened))
    put(tmp_path / "in/b.parquet", [("x", 2, "two!"), ("z", 1, "alone")])
    assert changes(night(tmp_path / "in", tmp_path / "out", carry_columns=("tag",), **ORDERED)) == (0, 1, 0)
    assert opened == ["b.parquet"]
    assert texts(tmp_path / "out")["x"] == "[1]\none\n\n[2]\ntwo!"
    assert by_id(tmp_path / "out")["z"]["run_id"] == first["run_id"]
    (tmp_path / "in/a.parquet").unlink()
    assert changes(night(tmp_path / "in", tmp_path / "out", carry_columns=("tag",), **ORDERED)) == (0, 1, 1)
    assert texts(tmp_path / "out") == {"x": "[2]\ntwo!", "z": "[1]\nalone"}
    assert by_id(tmp_path / "out")["x"]["tag"] == "tag x 2"  # that of its first part now


def _spy(function: Any, opened: list[str]) -> Any:
    def spied(file: DataFile, **settings: Any) -> Any:
        opened.append(file.name)
        return function(file, **settings)

    return spied


def test_document_that_had_no_text_is_read_from_all_its_sources_again(tmp_path: Path) -> None:
    put(tmp_path / "in/a.parquet", [("x", 1, "one"), ("y", 1, "one")])
    put(tmp_path / "in/b.parquet", [("x", 2, None)])
    night(tmp_path / "in", tmp_path / "out", **ORDERED)
    assert by_id(tmp_path / "out")["x"]["error"].endswith("b.parquet, row group 1, row 1: the text is null")
    put(tmp_path / "in/b.parquet", [("x", 2, "two")])
    assert changes(night(tmp_path / "in", tmp_path / "out", **ORDERED)) == (0, 1, 0)
    assert texts(tmp_path / "out") == {"x": "[1]\none\n\n[2]\ntwo", "y": "[1]\none"}


def test_document_without_text_stays_failed_where_a_condition_leaves_out_one_of_its_files(tmp_path: Path) -> None:
    put(tmp_path / "in/day=1/a.parquet", [("x", 1, "one"), ("y", 1, "one")])
    put(tmp_path / "in/day=2/b.parquet", [("x", 2, None), ("z", 1, "one")])
    for condition in ("day >= 1", "day = 1"):
        night(tmp_path / "in", tmp_path / "out", where=condition, **ORDERED)
    put(tmp_path / "in/day=1/a.parquet", [("x", 1, "one!"), ("y", 1, "one!")])
    night(tmp_path / "in", tmp_path / "out", where="day = 1", **ORDERED)
    assert texts(tmp_path / "out") == {"x": None, "y": "[1]\none!", "z": "[1]\none"}
    found = by_id(tmp_path / "out")["x"]
    assert found["error"].endswith("b.parquet, row group 1, row 1: the text is null")
    assert [part["source"] for part in found["parts"]] == ["day=1/a.parquet", "day=2/b.parquet"]
    put(tmp_path / "in/day=2/b.parquet", [("x", 2, "two"), ("z", 1, "one")])
    night(tmp_path / "in", tmp_path / "out", where="day >= 1", **ORDERED)
    assert texts(tmp_path / "out")["x"] == "[1]\none!\n\n[2]\ntwo"


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ([1, 1], r"'x': two rows have the same place in its order \(page: 1\): .*a\.parquet, row group 1, row 1 and"),
        (["1", "10", "9", "2a"], r"'x': .*row 4: page is 2a, and its other rows have numbers.*01, 02, 10"),
    ],
)
def test_rows_without_an_order_are_refused_or_fail_their_document(
    tmp_path: Path, pages: list[Any], message: str
) -> None:
    put(tmp_path / "in/a.parquet", [("x", page, "text") for page in pages])
    put_parquet(tmp_path / "in/b.parquet", document_id=["y"], page=["1"], text=["fine"])
    with pytest.raises(InputError, match=message):
        night(tmp_path / "in", tmp_path / "out", order_columns=("page",))
    night(tmp_path / "in", tmp_path / "out", order_columns=("page",), on_bad_file="record")
    assert texts(tmp_path / "out") == {"x": None, "y": "fine"}


@settings(max_examples=6)
@given(seed=st.integers(0, 10**6))
def test_any_nights_leave_what_one_ingest_of_the_last_would(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random_of = random.Random(seed)
    folder = tmp_path_factory.mktemp("nights")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memagent_batch.data.ingest.part_plan.BUCKET_BYTES", 2000)  # several buckets and joins
        patch.setattr("memagent_batch.data.ingest.part_plan.JOIN_BYTES", 2000)
        patch.setattr(part_tasks, "HELD_CHARS", 100)
        for _ in range(4):
            for number in range(4):
                path = folder / f"in/{number}.parquet"
                path.unlink(missing_ok=True)
                marks = {page: random_of.choice(["", "!", None, "?"]) for page in range(6)}
                own = [
                    (name, 10 * page + number, None if mark is None else f"{name} {page}{mark} " * 9)
                    for name in ("x", "y", "z")
                    for page, mark in marks.items()
                    if random_of.random() < 0.3
                ]
                if random_of.random() < 0.8:
                    put(path, [*own, (f"always {number}", 0, "here")])
            put(folder / "in/9.parquet", [("always", 0, "here")])
            night(folder / "in", folder / "out", carry_columns=("tag",), **ORDERED)
        night(folder / "in", folder / "fresh", carry_columns=("tag",), **ORDERED)
    assert content(folder / "out") == content(folder / "fresh")
    assert not any((folder / "out/_ingest").glob("*"))
