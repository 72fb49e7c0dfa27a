"""The database that joins a run's tables: what it takes, and what it leaves alone."""

import duckdb
import pyarrow as pa
import pytest

from memagent_batch.store.database import open_database, run_query


def test_run_query_joins_tables_with_parameters_and_keeps_nulls() -> None:
    before = pa.table({"id": ["a", "b"], "hash": ["1", None]})
    after = pa.table({"id": pa.array(["b", "c"], pa.large_string()), "hash": [None, "3"]})
    sql = "select id, before.hash is distinct from after.hash as differs from before full join after using (id)"
    found = run_query(f"{sql} where id > $first order by id", {"before": before, "after": after}, first="a")
    assert found.to_pylist() == [{"id": "b", "differs": False}, {"id": "c", "differs": True}]


def test_database_larger_than_its_memory_spills_and_loads_no_extension() -> None:
    with open_database({}) as database:
        database.execute("set memory_limit = '64MB'")
        (count,) = database.sql(
            "select count(*) from (select sha256(range::varchar) as x from range(400000) order by x)"
        ).fetchall()[0]
        assert count == 400_000
        with pytest.raises(duckdb.Error):
            database.sql("select * from read_parquet('s3://bucket/key.parquet')").fetchall()
