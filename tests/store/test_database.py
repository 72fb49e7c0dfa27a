"""The database that joins a run's tables: what it takes, and what it leaves alone."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from memagent_batch.data.store.database import (
    MEMORY_GIB,
    limit_memory,
    on_disk,
    open_database,
    query_to_disk,
    run_query,
)


@pytest.fixture
def small_memory() -> Iterator[None]:
    limit_memory(1 / 16)
    yield
    limit_memory(MEMORY_GIB)


def test_run_query_joins_tables_with_parameters_and_keeps_nulls() -> None:
    before = pa.table({"id": ["a", "b"], "hash": ["1", None]})
    after = pa.table({"id": pa.array(["b", "c"], pa.large_string()), "hash": [None, "3"]})
    sql = "select id, before.hash is distinct from after.hash as differs from before full join after using (id)"
    found = run_query(f"{sql} where id > $first order by id", {"before": before, "after": after}, first="a")
    assert found.to_pylist() == [{"id": "b", "differs": False}, {"id": "c", "differs": True}]


@pytest.mark.usefixtures("small_memory")
def test_database_larger_than_its_memory_spills_and_loads_no_extension() -> None:
    with open_database({}) as database:
        sql = "select count(*) from (select sha256(range::varchar) as x from range(400000) order by x)"
        assert database.sql(sql).fetchall() == [(400_000,)]
        with pytest.raises(duckdb.Error):
            database.sql("select * from read_parquet('s3://bucket/key.parquet')").fetchall()


def test_open_database_sees_neither_tables_of_another_connection_nor_variables() -> None:
    table = variable = pa.table({"id": ["a"]})
    with open_database({"table_of_first": table}) as first, open_database({}) as second:
        first.execute("create temp table made_by_first as from table_of_first")
        assert first.sql("from made_by_first").fetchall() == [("a",)]
        for name in ("table_of_first", "made_by_first", "variable"):
            with pytest.raises(duckdb.Error, match=name):
                second.sql(f"from {name}")
    assert variable.num_rows == 1


def test_on_disk_keeps_batches_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # the common one has the files of other processes too
    schema = pa.schema([pa.field("id", pa.large_string(), nullable=False), pa.field("rows", pa.list_(pa.int32()))])
    parts = [pa.table([["a", "b"], [[1], None]], schema=schema), pa.table([["c"], [[]]], schema=schema)]
    table = on_disk(parts, schema=schema)
    assert table.schema == schema
    assert table.to_pylist() == pa.concat_tables(parts).to_pylist()
    assert [batch.num_rows for batch in table.to_batches()] == [2, 1]
    assert [*tmp_path.iterdir()] == []  # mapped, and already without a name


def test_query_to_disk_casts_what_it_finds_to_the_schema() -> None:
    schema = pa.schema([pa.field("id", pa.large_string(), nullable=False), pa.field("number", pa.int32())])
    with open_database({"found": pa.table({"id": ["b", "a"], "number": [1, None]})}) as database:
        table = query_to_disk(database, "from found where id < $last order by id", schema=schema, last="c")
    assert table.schema == schema
    assert table.to_pylist() == [{"id": "a", "number": None}, {"id": "b", "number": 1}]
