"""Commits to a Delta table over a store that loses replies, hangs, or is shared with other runs."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from s3fs import S3FileSystem

from memagent_batch.data.store.delta import (
    COMMIT_ID,
    FilesChangedError,
    OutputTable,
    RunNumber,
    retry_conflicts,
    write_table_files,
)
from memagent_batch.data.store.deltalake_options import deltalake_options
from memagent_batch.data.store.location import Location
from memagent_batch.errors import SettingsError, StorageOutageError
from tests.faults.loopback.proxy import FaultProxy, RequestFault

IMPATIENT = {"connect_timeout": 1, "read_timeout": 1, "retries": {"mode": "standard", "max_attempts": 6}}
NUM_COMMITS = 5
LOST_SHARE = 0.2
SCHEMA = pa.schema([pa.field("number", pa.int64())])


@pytest.fixture
def table(s3_bucket: Location, proxy: FaultProxy) -> OutputTable:
    options: dict[str, Any] = {
        **s3_bucket.storage_options,
        "client_kwargs": {"endpoint_url": proxy.url},
        "config_kwargs": IMPATIENT,
    }
    return OutputTable(output=Location(uri=s3_bucket.uri, storage_options=options), name="numbers")


def commit(table: OutputTable, number: int, *, is_serial: bool = True) -> int:
    rows = pa.table({"number": [number]}, schema=SCHEMA)
    return table.commit(
        run=RunNumber(number=number, run_id=f"run-{number}"),
        schema=SCHEMA,
        add=write_table_files(table.place, rows, stem=f"run-{number}"),
        is_serial=is_serial,
        read_version=table.version(),
    )


@pytest.mark.s3
def test_commit_whose_reply_is_lost_is_made_once(table: OutputTable, proxy: FaultProxy) -> None:
    proxy.strike(RequestFault.LOST_ANSWER, RequestFault.RESET, rate=LOST_SHARE)
    versions = [commit(table, number) for number in range(1, NUM_COMMITS)]
    proxy.strike(rate=0)
    assert proxy.struck.total() > 0
    assert versions == [*range(1, NUM_COMMITS)]
    assert sorted(table.dataset().to_table()["number"].to_pylist()) == [*range(1, NUM_COMMITS)]
    assert len({each[COMMIT_ID] for each in table.history(since=0)}) == NUM_COMMITS - 1


@pytest.mark.s3
def test_added_column_whose_reply_is_lost_is_there_once(table: OutputTable, proxy: FaultProxy) -> None:
    commit(table, 1)
    proxy.strike(RequestFault.LOST_ANSWER, rate=LOST_SHARE)
    for number in range(2, NUM_COMMITS):
        columns = pa.schema([pa.field(f"extra_{number}", pa.string())])
        table.add_columns(columns, run=RunNumber(number=number, run_id=f"run-{number}"))
    proxy.strike(rate=0)
    assert proxy.struck.total() > 0
    assert table.schema().names == ["number", *(f"extra_{number}" for number in range(2, NUM_COMMITS))]
    assert table.version() == NUM_COMMITS - 1


@pytest.mark.s3
def test_store_that_hangs_while_a_table_is_committed_is_an_outage(
    table: OutputTable, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent_batch.data.store.delta.COMMIT_TRIES", 2)
    commit(table, 1)
    opened = table.open()
    proxy.strike(RequestFault.SILENT, rate=1)
    monkeypatch.setattr(OutputTable, "_open", lambda *_: opened)
    with pytest.raises(StorageOutageError, match="numbers"):
        table.add_columns(pa.schema([pa.field("late", pa.string())]), run=RunNumber(number=2, run_id="run-2"))
    assert proxy.struck[RequestFault.SILENT] > 1


@pytest.mark.s3
def test_each_file_of_a_table_in_a_bucket_is_read_with_one_request(
    table: OutputTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [commit(table, number) for number in range(1, NUM_COMMITS)]
    calls, call = list[str](), S3FileSystem._call_s3

    async def counted(self: S3FileSystem, method: str, *arguments: object, **options: object) -> object:
        calls.append(method)
        return await call(self, method, *arguments, **options)

    monkeypatch.setattr(S3FileSystem, "_call_s3", counted)
    assert table.dataset(versions[-1]).to_table().num_rows == len(versions)
    assert calls == ["get_object"] * len(versions)


@pytest.mark.s3
def test_commit_that_another_run_overtakes_is_made_for_the_new_state(table: OutputTable) -> None:
    commit(table, 1)
    seen = table.version()
    commit(table, 2)
    calls = list[int | None]()

    def attempt() -> int:
        calls.append(seen if not calls else table.version())
        return table.commit(
            run=RunNumber(number=1, run_id="slice", writer="slice"),
            schema=SCHEMA,
            is_serial=True,
            read_version=calls[-1],
        )

    assert retry_conflicts(attempt) == 3
    assert calls == [1, 2]
    with pytest.raises(FilesChangedError, match="at the same moment as run slice"):
        table.commit(
            run=RunNumber(number=2, run_id="slice", writer="slice"), schema=SCHEMA, is_serial=True, read_version=2
        )


@pytest.mark.parametrize(
    ("keys", "read"),
    [
        ([math.nan, 1.5, None, math.nan], ["nan", "1.5", "None", "nan"]),
        ([0.0, -0.0, 0.0, 1.0], ["0.0", "-0.0", "0.0", "1.0"]),
        (["", "x", None, ""], ["None", "x", "None", "None"]),
    ],
)
def test_each_row_lies_in_the_one_partition_of_its_value(tmp_path: Path, keys: list[Any], read: list[str]) -> None:
    rows = pa.table({"number": range(len(keys)), "key": keys})
    table = OutputTable(output=Location(uri=str(tmp_path)), name="numbers")
    files = write_table_files(table.place, rows, stem="run", partition_by=["key"])
    assert sum(file.num_rows for file in files) == len(keys)
    table.commit(run=RunNumber(number=1, run_id="run"), schema=rows.schema, add=files, partition_by=["key"])
    there = sorted(table.dataset().to_table().to_pylist(), key=lambda row: row["number"])
    assert [str(row["key"]) for row in there] == read


@pytest.mark.parametrize("name", ["a b", "ü#x", "q?r", "a&b=c", "[z]", "c+d;e,f", "100%", "%4g"])
def test_table_in_a_folder_of_an_odd_name_lies_there_whole(tmp_path: Path, name: str) -> None:
    table = OutputTable(output=Location(uri=str(tmp_path / name)), name="numbers")
    assert [commit(table, number) for number in (1, 2)] == [1, 2]
    assert sorted(table.dataset().to_table()["number"].to_pylist()) == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["p%20q", "%41", "caf%C3%a9"])
def test_table_in_a_folder_that_deltalake_takes_for_another_is_refused(tmp_path: Path, name: str) -> None:
    table = OutputTable(output=Location(uri=str(tmp_path / name)), name="numbers")
    with pytest.raises(SettingsError, match=r"a folder whose name has '%.*rename the folder"):
        commit(table, 1)
    with pytest.raises(SettingsError, match="takes it for another folder"):
        table.exists()


@pytest.mark.s3
@pytest.mark.parametrize("name", ["p%20q", "ü#x", "q?r"])
def test_table_under_a_key_that_deltalake_takes_for_another_is_refused(s3_bucket: Location, name: str) -> None:
    table = OutputTable(output=s3_bucket.at(f"{s3_bucket.path}/{name}"), name="numbers")
    with pytest.raises(SettingsError, match="takes it for another folder"):
        commit(table, 1)


def test_time_outs_and_tries_of_botocore_are_those_of_deltalake() -> None:
    options = deltalake_options({"key": "k", "config_kwargs": IMPATIENT})
    assert options == {"AWS_ACCESS_KEY_ID": "k", "connect_timeout": "1s", "timeout": "1s", "max_retries": "6"}
    assert deltalake_options({"config_kwargs": {"retries": {"total_max_attempts": 1}}}) == {"max_retries": "0"}
