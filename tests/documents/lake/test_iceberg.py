"""Snapshots, partitions and deletes of Iceberg tables."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.lake.iceberg import open_iceberg
from memagent_batch.data.documents.lake.table import table_name
from memagent_batch.data.documents.lake.tables import documents_place
from memagent_batch.data.documents.source_listing import list_sources
from memagent_batch.errors import InputError
from tests.documents.lake.forms import DAYS, TEXTS, iceberg_uri, indexed, new_iceberg, read, rows_table, write_iceberg

if TYPE_CHECKING:
    from pyiceberg.table import Table


def test_read_table_at_a_snapshot_has_its_rows_and_columns(tmp_path: Path) -> None:
    uri = write_iceberg(tmp_path)
    found = list_sources([documents_place(uri, {})], settings=InputConfig())
    name = table_name(uri)
    assert name is not None
    table = open_iceberg(name).table
    first, *_, last = table.snapshots()
    assert found.versions == {uri: str(last.snapshot_id)}
    assert read(f"{uri}@{first.snapshot_id}") == TEXTS | {"b": "old", "gone": "gone"}
    assert read(f"{uri}@2099-01-01") == TEXTS
    with pytest.raises(InputError, match=r"docs@12: the table has no such version; it has \d+ \(20.*'main'; name one"):
        read(f"{uri}@12")


@pytest.mark.parametrize("name", ["lake/db.nothing", "nowhere/db.docs"])
def test_read_table_or_catalog_that_is_not_there_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=rf"iceberg://{name} can't be read as an Iceberg table"):
        read(f"iceberg://{name}")


def test_read_partitions_are_filtered_by_file_and_rows_by_value() -> None:
    from pyiceberg.transforms import IdentityTransform

    table = new_iceberg(rows_table().schema)
    with table.update_spec() as update:
        update.add_field("day", IdentityTransform())
    table.append(rows_table())
    settings = InputConfig(carry_columns=("day",), where="day >= '2026-01-02' and document_id != 'd'")
    place = documents_place(iceberg_uri(table), {})
    index = indexed(place, settings=settings)
    assert dict(zip(index["document_id"].to_pylist(), index["carry:day"].to_pylist(), strict=True)) == {"c": DAYS["c"]}
    assert list_sources([place], settings=settings).sources.num_rows == 2


def test_read_renamed_column_of_files_without_ids_is_found_by_the_name_mapping(tmp_path: Path) -> None:
    """pyiceberg's `add_files` takes files as they are, and keeps their names in the mapping."""
    table = _of_added_files(tmp_path)
    with table.update_schema() as update:
        update.rename_column("day", "date").rename_column("text", "body")
    settings = InputConfig(text_column="body", carry_columns=("date",), where="date >= '2026-01-02' and date < 'x'")
    place = documents_place(iceberg_uri(table), {})
    index = indexed(place, settings=settings)
    assert dict(zip(index["document_id"].to_pylist(), index["carry:date"].to_pylist(), strict=True)) == {"c": DAYS["c"]}
    assert read(iceberg_uri(table), settings) == {"c": TEXTS["c"]}


def test_read_file_whose_columns_no_mapping_tells_apart_is_refused_by_name(tmp_path: Path) -> None:
    table = _of_added_files(tmp_path)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("text")
    with table.update_schema() as update:
        update.rename_column("day", "text")
    with pytest.raises(InputError, match=r"added\.parquet has no .* 'day' and 'text' both are column 'text'"):
        read(iceberg_uri(table))
    with table.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")
    with pytest.raises(InputError, match=r"added\.parquet has no field ids, and its table maps no names"):
        read(iceberg_uri(table))


def _of_added_files(folder: Path) -> "Table":
    pq.write_table(rows_table(), folder / "added.parquet")
    table = new_iceberg(rows_table().schema)
    table.add_files([f"file://{folder}/added.parquet"])
    return table


def _position_deletes(path: str, rows: list[int], folder: Path) -> Any:
    """A file that names rows of data files, as other engines write it."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    place = folder / "deletes.parquet"
    pq.write_table(pa.table({"file_path": [path] * len(rows), "pos": pa.array(rows, pa.int64())}), place)
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{place}",
        file_format=FileFormat.PARQUET,
        record_count=len(rows),
        file_size_in_bytes=place.stat().st_size,
    )


def _plan_with(monkeypatch: pytest.MonkeyPatch, delete: Callable[[str], Any]) -> None:
    """pyiceberg itself writes no deletes: they are added to what it plans."""
    from pyiceberg.table import DataScan

    plan_files = DataScan.plan_files

    def planned(scan: DataScan) -> list[Any]:
        tasks = list(plan_files(scan))
        for task in tasks:
            task.delete_files = {delete(task.file.file_path)}
        return tasks

    monkeypatch.setattr(DataScan, "plan_files", planned)


def test_read_rows_of_position_deletes_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_iceberg(rows_table().schema)
    table.append(rows_table())
    _plan_with(monkeypatch, lambda path: _position_deletes(path, [2, 0], tmp_path))
    assert read(iceberg_uri(table)) == {"b": TEXTS["b"], "d": TEXTS["d"]}


def test_read_equality_deletes_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.manifest import DataFileContent

    table = new_iceberg(rows_table().schema)
    table.append(rows_table())

    def delete(path: str) -> Any:
        file = _position_deletes(path, [0], tmp_path)
        file[0] = DataFileContent.EQUALITY_DELETES
        return file

    _plan_with(monkeypatch, delete)
    with pytest.raises(InputError, match=r"deletes\.parquet: equality deletes can't be applied; compact the table"):
        read(iceberg_uri(table))
