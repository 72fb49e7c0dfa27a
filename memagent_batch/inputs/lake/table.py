"""A table of a lake: a version, and a list of Parquet files with their partition and their deleted rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.columnar import plain_value
from memagent_batch.inputs.formats.records import Absent, Column, Presence, refuse_missing


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A data file of a table."""

    path: str
    """Path on the table's file system."""
    size_bytes: int
    """Size, bytes."""
    values: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """Columns with one value in all its rows: those of its partition."""
    deleted: bytes = b""
    """Rows that are deleted, counted from 0 in the file, sorted: 64-bit integers, little-endian."""

    @property
    def deleted_rows(self) -> npt.NDArray[np.int64]:
        """The deleted rows as numbers."""
        return np.frombuffer(self.deleted, "<i8").astype(np.int64)

    def fingerprint(self) -> str:
        """Hash of all that says which rows it has: a data file is never written again, its deleted rows may grow."""
        values = sorted((name, str(value.type), str(value)) for name, value in self.values.items())
        return sha256(repr((self.path, self.size_bytes, values)).encode() + self.deleted).hexdigest()


def as_deleted(rows: npt.ArrayLike) -> bytes:
    """Row numbers as `TableFile.deleted`, each once."""
    return bytes(np.unique(np.asarray(rows, dtype="<i8")).tobytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table, as its files may have it."""

    stored_as: str | None = None
    """Name in the files, where it is not the table's."""
    field_id: int | None = None
    """Its id, which stays when it gets another name."""
    mapped_names: tuple[str, ...] | None = None
    """Its names in files without ids; None where the table maps no names."""
    default: str | int | None = None
    """Its value in files that were written before it was added."""


TableColumns = Mapping[str, TableColumn]
"""The columns of a table, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A version of a table."""

    uri: str
    """The table as the user names it, without a version or secrets."""
    location: Location
    """Its place: names the file system of its files."""
    version: str
    """Number of the version, or id of the snapshot."""
    columns: TableColumns
    """Its columns."""
    files: tuple[TableFile, ...]
    """Its data files."""


def stored_columns(
    columns: Sequence[Column], *, table: TableColumns, values: Mapping[str, pa.Scalar], where: str
) -> list[Column]:
    """The columns to read as a file of the table may have them.

    Args:
        columns: Columns by the names that the table gives them.
        table: The table's columns.
        values: Values of the file's partition.
        where: The table, for messages.

    Raises:
        InputError: the table lacks one. Files may still have it, from before it was dropped.
    """
    stored = []
    for column in columns:
        described = table.get(column.name)
        if described is None and column.presence is not Presence.OPTIONAL:
            refuse_missing(column, there=list(table), where=where)
        if described is not None:
            value = values.get(column.name)
            absent = Absent(value=described.default if value is None else plain_value(value))
            column = replace(
                column,
                stored_as=described.stored_as,
                field_id=described.field_id,
                mapped_names=described.mapped_names,
                absent=absent,
            )
        stored.append(column)
    return stored
