import json
import re
from datetime import date
from itertools import product
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.formats import columnar
from memagent_batch.data.documents.where import matching_rows, parse_where
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from tests.documents.lake.forms import indexed, read, source_names

ROWS = pa.table(
    {
        "document_id": [f"{kind}{n}{flag}" for kind, n, flag in product("ab-", (1, 2, 3), "ny")],
        "text": ["text"] * 18,
        "kind": pa.array([kind for kind in ("a", "b", None) for _ in range(6)]).dictionary_encode(),
        "n": pa.array([1, 1, 2, 2, None, None] * 3, pa.int16()),
        "flag": [False, True] * 9,
        "day": pa.array([f"2026-01-0{1 + row % 9}" for row in range(18)]).cast(pa.date32()),
        "seen": pa.array([f"2026-01-0{1 + row % 9}" for row in range(18)])
        .cast(pa.timestamp("us"))
        .cast(pa.timestamp("us", tz="UTC")),
    }
)
LEAVES = [
    "kind = 'a'",
    "kind <> 'a'",
    "kind in ('a', 'c')",
    "kind not in ('a')",
    "kind is null",
    "kind is not null",
    "kind ~ '^[a]'",
    "upper(kind) like 'A%' -- in capitals",
    "n >= 2",
    "n < 1.5",
    "n between 1 and 1",
    "flag = true",
    "day > '2026-01-04'",
    "seen <= '2026-01-04'",
]
conditions = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("\nand ".join),
        st.tuples(inner, inner).map("\nor ".join),
        inner.map("not ({}\n)".format),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    pq.write_table(ROWS, folder / "rows.parquet", row_group_size=5)
    return folder


@given(where=conditions)
def test_where_takes_the_rows_that_a_database_takes(where: str, lake: Path) -> None:
    wanted = (
        duckdb.connect()
        .execute(f"set timezone='UTC'; select document_id from '{lake}/rows.parquet' where {where}")
        .fetchall()
    )
    settings = InputConfig(where=where)
    if not wanted:
        assert source_names(Location(uri=str(lake)), settings=settings) == ["rows.parquet"]  # no folder rules it out
    assert set(read(str(lake), settings)) == {name for (name,) in wanted}


def test_where_does_not_decode_the_texts_of_rows_that_it_rules_out(tmp_path: Path) -> None:
    table = pa.table({"document_id": list("abcd"), "text": ["x"] * 4, "n": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=1, compression="none", use_dictionary=False)
    place = Location(uri=f"{tmp_path}/f.parquet")
    with columnar.open_grouped(place) as file:
        offset = pq.ParquetFile(place.path).metadata.row_group(0).column(1).data_page_offset
        assert len(file.group_bytes()) == 4
    data = bytearray((tmp_path / "f.parquet").read_bytes())
    data[offset : offset + 8] = b"\xff" * 8
    (tmp_path / "f.parquet").write_bytes(data)
    assert read(place.uri, InputConfig(where="n > 2")) == {"c": "x", "d": "x"}
    with pytest.raises(InputError):
        read(place.uri, InputConfig(where="n < 2"))


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("year = '2026'", ["b"]),
        ("year is null", ["n"]),
        ("year != 2026", ["a", "c"]),
        ("year > 2025 and year < 2027", ["b"]),
        ("year::text ~ '6$'", ["b"]),
        ("year = 2027 or kind = 'x'", ["a", "c"]),
    ],
)
def test_where_on_folders_reads_only_those_that_can_match(where: str, names: list[str], tmp_path: Path) -> None:
    for name, year, kind in (
        ("a", "2025", "x"),
        ("b", "2026", "y"),
        ("c", "2027", "z"),
        ("n", "__HIVE_DEFAULT_PARTITION__", "z"),
    ):
        (tmp_path / f"year={year}").mkdir()
        table = pa.table({"document_id": [name], "text": [f"of {year}"], "kind": [kind]})
        pq.write_table(table, tmp_path / f"year={year}/f.parquet")
    assert sorted(read(str(tmp_path), InputConfig(where=where))) == names


def test_where_on_folders_filters_files_of_any_format_and_refuses_columns_of_others(tmp_path: Path) -> None:
    for day in ("1", "2"):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}/f.jsonl").write_text(f'{{"document_id": "{day}", "text": "t", "n": 1}}\n')
    assert read(str(tmp_path), InputConfig(where="day > 1", carry_columns=("day",))) == {"2": "t"}
    with pytest.raises(InputError, match=r"column \"n\" not found.*; columns: day.* such as .*day=1/f.jsonl"):
        read(str(tmp_path), InputConfig(where="day > 0 and n = 1"))
    with pytest.raises(InputError, match=r"no file for which input.where can be true: day > 2"):
        read(str(tmp_path), InputConfig(where="day > 2"))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "input.where: ''"),
        ("n = 1 and", 'near "and"'),
        ("n == 1 n", 'near "n"'),
        ("(n = 1", 'near "1"'),
        ("n ? 1", 'near "\\?"'),
        ("and = 1", 'near "and"'),
        ("true) or (true", 'near "\\)"'),
        ("true; drop table t", 'near ";"'),
    ],
)
def test_parse_where_malformed_filter_is_refused_with_its_place(where: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_where(where)


@pytest.mark.parametrize("where", ["n = 'a'", "kind = 1", "day = 5", "day = 'soon'", "n ~ '1'", "day ~ '('"])
def test_where_value_of_another_type_is_refused_with_the_type_of_the_column(where: str, lake: Path) -> None:
    name = where.split()[0]
    with pytest.raises(InputError, match=re.escape(f"{name} ({ROWS.schema.field(name).type})")):
        read(str(lake), InputConfig(where=where))


def test_where_column_that_is_not_there_is_refused_by_name(lake: Path) -> None:
    with pytest.raises(InputError, match=r"column \"size\" not found.*columns: document_id, text, kind"):
        read(str(lake), InputConfig(where="size > 1"))


def test_where_column_that_one_of_the_files_lacks_is_refused_with_that_file(tmp_path: Path) -> None:
    """In SQL the condition would not be true of its rows, and all of the file would silently be left out."""
    pq.write_table(ROWS, tmp_path / "a.parquet")
    pq.write_table(ROWS.drop_columns(["n"]), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet: input\.where: 'n > 1': .*column \"n\" not found"):
        read(str(tmp_path), InputConfig(where="n > 1"))


def test_where_texts_and_names_are_taken_as_they_stand() -> None:
    condition = parse_where("\"a b\" = 'it''s text' AND C_1 <= -2.5e3")
    table = pa.table({"a b": ["its", "it's text"], "c_1": [-2500.0] * 2, "text": ["", ""]})
    assert condition.columns_among(table.schema.names) == ["a b", "c_1"]
    assert matching_rows(table, condition).tolist() == [1]
    with pytest.raises(InputError, match="columns 'c_1' and 'C_1' differ in case alone"):
        matching_rows(table.append_column("C_1", table["c_1"]), condition)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_where_on_folders_above_the_place_that_is_named_takes_the_columns_of_the_files(
    form: str, tmp_path: Path
) -> None:
    rows = [{"document_id": "a", "text": "A", "run": "5"}, {"document_id": "b", "text": "B", "run": "7"}]
    corpus = tmp_path / "run=3/corpus"
    _write_form(corpus, rows, form=form)
    values = InputConfig(carry_columns=("run",))
    if form == "parquet":
        assert _carried(corpus, values.model_copy(update={"where": "run = '5'"})) == {"a": "5"}
        with_header = InputConfig(order_columns=("run",), header="{run}")
        assert read(str(corpus), with_header) == {"a": "5\nA", "b": "7\nB"}
    assert _carried(corpus, values) == {"a": "5", "b": "7"}


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_where_and_carry_on_a_key_of_a_folder_agree_whatever_the_file_has(form: str, tmp_path: Path) -> None:
    _write_form(tmp_path / "run=3", [{"document_id": "a", "text": "A", "run": "5"}], form=form)
    _write_form(tmp_path / "run=5", [{"document_id": "b", "text": "B", "run": "3"}], form=form)
    values = InputConfig(where="run = '5'", carry_columns=("run",))
    assert _carried(tmp_path, values) == {"b": "5"}
    with_header = InputConfig(where="run = '5'", order_columns=("document_id",), header="{run}")
    for place in (str(tmp_path), f"{tmp_path}/run=*/*"):
        assert read(place, with_header) == {"b": "5\nB"}


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("status <> 'x'", ["b"]),
        ("status is distinct from 'x'", ["b", "null"]),
        ("score > 0.1", []),
        ("score >= 0.1", ["b", "x"]),
        ("score > 300", []),
        ("score < 0.5", ["b", "null", "x"]),
        ("year = 2026", ["b", "null", "x"]),
    ],
)
def test_filter_takes_the_same_rows_of_files_whose_columns_differ_in_type(
    where: str, names: list[str], tmp_path: Path
) -> None:
    """Nulls are not unequal, as in SQL; a float counts as the number that it was written as; a folder's key wins."""
    rows = [("x", "x", pa.array([0.1], pa.float32())), ("b", "y", [0.1]), ("null", None, pa.array([0], pa.int8()))]
    (tmp_path / "year=2026").mkdir()
    for name, status, score in rows:
        columns = {"document_id": [name], "text": ["t"], "status": [status], "score": score, "year": [2025]}
        pq.write_table(pa.table(columns), tmp_path / f"year=2026/{name}.parquet")
    assert sorted(read(str(tmp_path), InputConfig(where=where))) == names


def test_message_on_a_missing_column_names_the_keys_of_the_folders(tmp_path: Path) -> None:
    for form in ("parquet", "csv", "jsonl"):
        _write_form(tmp_path / form / "run=1", [{"document_id": "a", "text": "t"}], form=form)
        with pytest.raises(InputError, match="its columns: 'document_id', 'text', 'run'; name"):
            indexed(Location(uri=f"{tmp_path}/{form}"), settings=InputConfig(carry_columns=("rum",)))


def _carried(folder: Path, values: InputConfig) -> dict[str, str]:
    index = indexed(Location(uri=str(folder)), settings=values)
    return dict(zip(index["document_id"].to_pylist(), map(str, index["carry:run"].to_pylist()), strict=True))


def _write_form(folder: Path, rows: list[dict[str, str]], *, form: str) -> None:
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    if form == "parquet":
        pq.write_table(table, folder / "f.parquet")
    elif form == "csv":
        csv.write_csv(table, folder / "f.csv")
    else:
        (folder / "f.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.mark.parametrize("text", ["kind  =  'Größe'and n=1", "kind='Größe' and n   = 1"])
def test_condition_is_the_same_however_its_words_are_set_apart(text: str) -> None:
    assert parse_where(text).spaced == "kind = 'Größe' and n = 1"


def test_where_that_only_the_rows_can_answer_reads_the_folders_that_may_have_them(tmp_path: Path) -> None:
    for code, month in (("007", 1), ("7", 2), ("8", 2)):
        (tmp_path / f"code={code}").mkdir()
        table = pa.table({"document_id": [code], "text": ["t"], "day": pa.array([date(2026, month, 1)])})
        pq.write_table(table, tmp_path / f"code={code}/f.parquet")
    assert read(str(tmp_path), InputConfig(where="month(day) = 2")).keys() == {"7", "8"}
    assert read(str(tmp_path), InputConfig(where="month(day) = 2 and code = '7'")).keys() == {"7"}
    assert read(str(tmp_path), InputConfig(where="code = '007'")).keys() == {"007"}
