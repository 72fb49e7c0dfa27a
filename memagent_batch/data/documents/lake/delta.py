"""Lists the files of a Delta table, by the package `deltalake`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

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
    missing_extra,
    missing_version,
    named_time,
)
from memagent_batch.data.store.deltalake_options import deltalake_options, deltalake_uri
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.masking import mask_url

if TYPE_CHECKING:
    from deltalake import DeltaTable

_PARTITION = "partition."
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def delta_place(name: TableName, options: Options) -> Location:
    """Where the table lies. Its `uri` stays the name of the table."""
    folder = Location(uri=name.place, storage_options=options)
    return Location(uri=name.full_uri, storage_options=options, neighbour=name.place, listed_path=folder.path)


def list_delta(name: TableName, location: Location) -> LakeTable:
    """The files of a version.

    Raises:
        InputError: there is no such table or version, or one of its features can't be read; names it.
    """
    table = _open(name, location)
    with _delta_errors(name):
        actions = pa.table(table.get_add_actions(flatten=True))
        deleted = _vector_deletes(table)
        columns = _table_columns(table)
    partition = {
        column: column.removeprefix(_PARTITION) for column in actions.schema.names if column.startswith(_PARTITION)
    }
    names = {column.stored_as or name: name for name, column in columns.items()}
    files = []
    for row in range(actions.num_rows):
        path = _path(location, unquote(actions["path"][row].as_py()))
        values = {names.get(stored, stored): actions[column][row] for column, stored in partition.items()}
        size = actions["size_bytes"][row].as_py()
        files.append(LakeFile(path=path, size_bytes=size, values=values, deleted=deleted.pop(path, b"")))
    if deleted:
        raise InputError(f"{mask_url(name.uri)}: deletion vector of {min(deleted)!r}, which is not a file of the table")
    return LakeTable(
        uri=mask_url(name.uri),
        location=location,
        version=str(table.version()),
        columns=columns,
        files=tuple(sorted(files, key=lambda file: file.path)),
    )


def _open(name: TableName, location: Location) -> "DeltaTable":
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise missing_extra(name.uri, "deltalake") from error
    with _delta_errors(name), input_errors(mask_url(name.uri)):
        table = DeltaTable(deltalake_uri(location), storage_options=deltalake_options(location.storage_options))
        if name.version is not None:
            version = int(name.version) if name.version.isdigit() else _version_at(table, name)
            if version != table.version():
                _load_version(table, version, name=name)
        return table


def _version_at(table: "DeltaTable", name: TableName) -> int:
    """The version that a table had at a time."""
    millis = instant(str(name.version)).timestamp() * 1000
    versions = [version for version, timestamp in _commits(table) if timestamp <= millis]
    if not versions:
        raise missing_version(name, _commit_names(table))
    return max(versions)


def _load_version(table: "DeltaTable", version: int, *, name: TableName) -> None:
    from deltalake.exceptions import DeltaError

    try:
        table.load_as_version(version)
    except DeltaError as error:
        is_listed = version in dict(_commits(table))
        if is_listed:
            raise
        raise missing_version(name, _commit_names(table)) from error


def _commits(table: "DeltaTable") -> list[tuple[int, int]]:
    """Number and time, in milliseconds since 1970, of the versions that the log still has, oldest first."""
    commits = table.history()
    return sorted((commit["version"], commit["timestamp"]) for commit in commits if "timestamp" in commit)


def _commit_names(table: "DeltaTable") -> list[str]:
    return [named_time(str(version), timestamp) for version, timestamp in _commits(table)]


def _table_columns(table: "DeltaTable") -> dict[str, TableColumn]:
    fields = json.loads(table.schema().to_json())["fields"]
    return {field["name"]: TableColumn(stored_as=field["metadata"].get(_PHYSICAL_NAME)) for field in fields}


def _vector_deletes(table: "DeltaTable") -> dict[str, bytes]:
    vectors = pa.table(table.deletion_vectors().read_all())
    found = {}
    for row in range(vectors.num_rows):
        kept = np.asarray(vectors["selection_vector"][row].values.to_numpy(zero_copy_only=False), dtype=bool)
        place = Location(uri=unquote(vectors["filepath"][row].as_py()).removeprefix("file://"))
        found[place.path] = as_deleted(np.flatnonzero(~kept))
    return found


def _path(location: Location, path: str) -> str:
    """A path of the log, which a clone gives as a URI, on the table's file system."""
    return str(location.fs._strip_protocol(path)) if "://" in path else f"{location.path.rstrip('/')}/{path}"


@contextmanager
def _delta_errors(name: TableName) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, ValueError, NotImplementedError) as error:
        version = "" if name.version is None else f" at {name.version}"
        line = mask_url(str(error).strip().split("\n")[0])  # its own trace follows
        raise InputError(f"{mask_url(name.uri)}{version} can't be read as a Delta table: {line}") from error
