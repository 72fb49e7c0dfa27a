"""Lists the files of an Iceberg table, by the package `pyiceberg` and any catalog that it knows."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from memagent_batch.config.storage import Options
from memagent_batch.data.documents.formats.records import TableColumn
from memagent_batch.data.documents.lake.table import (
    LakeFile,
    LakeTable,
    TableName,
    as_deleted,
    instant,
    is_time,
    missing_extra,
    missing_version,
    named_time,
)
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.masking import mask_url

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as IcebergTable

_VENDED: Mapping[str, str] = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.session-token": "token"}
"""Credentials that a catalog hands out, and the arguments of fsspec's S3."""

_WITH_SCHEMA = re.compile(r"(?P<snapshot>\d+)\.(?P<schema>\d+)")
"""A version with the id of its columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedIceberg:
    """A snapshot of a table."""

    table: "IcebergTable"
    snapshot_id: int | None
    """The snapshot; None where nothing was written yet."""
    schema: "Schema"
    """Its columns: of the newest snapshot as they are now, of another one as they were when it was written."""

    @property
    def version(self) -> str:
        """Id of the snapshot, and behind a dot that of its columns if they have changed since it was written."""
        if self.snapshot_id is None or self.schema.schema_id == _schema_of(self.table, self.snapshot_id).schema_id:
            return str(self.snapshot_id or 0)
        return f"{self.snapshot_id}.{self.schema.schema_id}"


def load_iceberg(name: TableName) -> "IcebergTable":
    """Asks the catalog for a table.

    Raises:
        InputError: there is no such catalog or table.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise missing_extra(name.uri, "pyiceberg") from error
    catalog, identifier = name.place.split("/")
    with input_errors(name.uri), _iceberg_errors(name):
        return load_catalog(catalog).load_table(identifier)


def open_iceberg(name: TableName) -> OpenedIceberg:
    """Opens a snapshot of a table.

    Raises:
        InputError: there is no such catalog, table or snapshot.
    """
    table = load_iceberg(name)
    with input_errors(name.uri), _iceberg_errors(name):
        snapshot_id, schema = _snapshot(table, name)
        return OpenedIceberg(table=table, snapshot_id=snapshot_id, schema=schema)


def iceberg_place(name: TableName, table: "IcebergTable", options: Options) -> Location:
    """Where the table lies, with the credentials that its catalog hands out. Its `uri` stays the name of the table."""
    folder = table.location()
    options = {**options} or _vended(table.io.properties)
    path = Location(uri=folder, storage_options=options).path
    return Location(uri=name.full_uri, storage_options=options, neighbour=folder, listed_path=path)


def list_iceberg(name: TableName, opened: OpenedIceberg, location: Location) -> LakeTable:
    """The files of a snapshot, with the rows that position deletes and deletion vectors remove.

    Raises:
        InputError: the table has equality deletes, or files that are not Parquet; says so.
    """
    with input_errors(name.uri), _iceberg_errors(name):
        scan = opened.table.scan(snapshot_id=opened.snapshot_id)
        tasks = list(scan.plan_files()) if opened.snapshot_id is not None else []
        deleted = _file_deletes(opened.table, tasks)
        mapping = opened.table.name_mapping()
    other = next((task.file for task in tasks if task.file.file_format.value.upper() != "PARQUET"), None)
    if other is not None:
        raise InputError(f"{other.file_path} is a data file of {other.file_format.value}; only Parquet is read")
    mapped = None if mapping is None else {field.field_id: tuple(field.names) for field in mapping}
    files = [
        LakeFile(
            path=str(location.fs._strip_protocol(task.file.file_path)),
            size_bytes=task.file.file_size_in_bytes,
            values=_partition(opened.table, task.file, schema=opened.schema),
            deleted=deleted.get(task.file.file_path, b""),
        )
        for task in tasks
    ]
    return LakeTable(
        uri=mask_url(name.uri),
        location=location,
        version=opened.version,
        columns={
            field.name: TableColumn(
                field_id=field.field_id,
                mapped_names=None if mapped is None else mapped.get(field.field_id, ()),
                default=getattr(field, "initial_default", None),
            )
            for field in opened.schema.fields
        },
        files=tuple(sorted(files, key=lambda file: file.path)),
    )


def _snapshot(table: "IcebergTable", name: TableName) -> tuple[int | None, "Schema"]:
    """The id of a snapshot, and its columns. A version as `OpenedIceberg.version`, or as the user names it."""
    version = name.version
    if version is None:
        current = table.current_snapshot()
        return current.snapshot_id if current else None, table.schema()
    if found := _WITH_SCHEMA.fullmatch(version):
        schema = table.schemas().get(int(found["schema"]))
        if schema is None:
            raise ValueError("there are no such columns")
        return _snapshot_id(table, name, found["snapshot"]), schema
    snapshot_id = _snapshot_id(table, name, version)
    return snapshot_id, _schema_of(table, snapshot_id)


def _schema_of(table: "IcebergTable", snapshot_id: int) -> "Schema":
    """The columns as they were when a snapshot was written."""
    return table.scan(snapshot_id=snapshot_id).projection()


def _snapshot_id(table: "IcebergTable", name: TableName, version: str) -> int:
    named = table.snapshot_by_id(int(version)) if version.isdigit() else table.snapshot_by_name(version)
    if named is None and is_time(version):
        named = table.snapshot_as_of_timestamp(int(instant(version).timestamp() * 1000))
    if named is None:
        snapshots = [named_time(str(each.snapshot_id), each.timestamp_ms) for each in table.snapshots()]
        raise missing_version(name, [*snapshots, *(f"{ref!r}" for ref in table.refs())])
    return int(named.snapshot_id)


def _partition(table: "IcebergTable", file: "DataFile", *, schema: "Schema") -> dict[str, pa.Scalar]:
    """Columns that a partition keeps as they are."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.transforms import IdentityTransform

    types = schema_to_pyarrow(schema, include_field_ids=False)
    values: dict[str, pa.Scalar] = {}
    for position, field in enumerate(table.specs()[file.spec_id].fields):
        name = schema.find_column_name(field.source_id)
        if name in types.names and isinstance(field.transform, IdentityTransform):
            value = _scalar(file.partition[position], types.field(name).type)
            values |= {} if value is None else {name: value}
    return values


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar | None:
    """A value of a partition, which holds dates and times as numbers; None for a type that is rare in partitions."""
    if isinstance(value, int) and pa.types.is_date(type_):
        return pa.scalar(value, pa.int32()).cast(type_)
    if isinstance(value, int) and pa.types.is_timestamp(type_):
        return pa.scalar(value, pa.int64()).cast(type_)
    if pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_) or pa.types.is_time(type_):
        return None
    return pa.scalar(value, type_)


def _file_deletes(table: "IcebergTable", tasks: list["FileScanTask"]) -> dict[str, bytes]:
    """Deleted rows by the path of their data file. Each file of deletes is read once."""
    from pyiceberg.io.pyarrow import _read_deletes
    from pyiceberg.manifest import DataFileContent

    rows: dict[str, list[Any]] = {}
    of_file = {delete.file_path: delete for task in tasks for delete in task.delete_files}
    for delete in of_file.values():
        if delete.content != DataFileContent.POSITION_DELETES:
            raise InputError(f"{delete.file_path}: equality deletes can't be applied; compact the table first")
        positions_of: dict[str, pa.ChunkedArray] = _read_deletes(table.io, delete)  # of Parquet, or a deletion vector
        for path, positions in positions_of.items():
            rows.setdefault(path, []).append((delete.file_path, np.asarray(positions)))
    applied = {(task.file.file_path, delete.file_path) for task in tasks for delete in task.delete_files}
    return {
        path: as_deleted(np.concatenate([positions for _, positions in counted]))
        for path, found in rows.items()
        if (counted := [each for each in found if (path, each[0]) in applied])
    }


def _vended(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    options = {ours: properties[name] for name, ours in _VENDED.items() if name in properties}
    if endpoint := properties.get("s3.endpoint"):
        options["endpoint_url"] = endpoint
    if region := properties.get("s3.region"):
        options["client_kwargs"] = {"region_name": region}
    return options


@contextmanager
def _iceberg_errors(name: TableName) -> Iterator[None]:
    from pyiceberg.exceptions import NoSuchTableError

    try:
        yield
    except (ValueError, TypeError, NotImplementedError, NoSuchTableError) as error:
        version = "" if name.version is None else f" at {name.version}"
        remedy = "; compact the table first" if "equality deletes" in str(error) else ""
        raise InputError(f"{name.uri}{version} can't be read as an Iceberg table: {error}{remedy}") from error
