"""A table of a lake: how it is named, and a version with its Parquet files, their partitions and deleted rows.

A table is named `delta://PLACE@VERSION` or `iceberg://CATALOG/DATABASE.TABLE@SNAPSHOT`. Folders such as `year=2026`
(Hive partitions) are here too: their keys are columns of the files below them.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memagent_batch.data.documents.formats.records import TableColumn
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.masking import mask_url

_VERSIONED_PLACE = re.compile(r"(?P<place>.+)@(?P<version>\d+|\d{4}-\d\d-\d\d[^/@]*)")
_ICEBERG = re.compile(r"(?P<catalog>[^/@]+)/(?P<table>[^/@]+\.[^/@]+)(?:@(?P<version>[^/@]+))?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d")
_SHOWN_VERSIONS = 6
"""Most versions that a message lists."""
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class LakeKind(StrEnum):
    """Formats of tables."""

    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table as the user names it."""

    kind: LakeKind
    place: str
    """Its folder, a path or fsspec URL; or catalog and table, with a slash between."""
    version: str | None = None
    """Number or time of a version or snapshot, or the name of a branch or tag; the newest by default."""

    @property
    def uri(self) -> str:
        """The table without its version: the same every night."""
        return f"{self.kind}://{self.place}"

    @property
    def full_uri(self) -> str:
        """The table with its version."""
        return self.uri if self.version is None else f"{self.uri}@{self.version}"


def table_name(uri: str) -> TableName | None:
    """The table that a URI of the documents names; None where it names files.

    Raises:
        InputError: the name of an Iceberg table is malformed.
    """
    kind, _, rest = uri.partition("://")
    if kind == LakeKind.DELTA:
        found = _VERSIONED_PLACE.fullmatch(rest)
        return TableName(kind=LakeKind.DELTA, **(found.groupdict() if found else {"place": rest}))
    if kind == LakeKind.ICEBERG:
        found = _ICEBERG.fullmatch(rest)
        if found is None:
            raise InputError(f"{uri}: write iceberg://CATALOG/DATABASE.TABLE, with @SNAPSHOT behind it where you want")
        return TableName(kind=LakeKind.ICEBERG, place=f"{found['catalog']}/{found['table']}", version=found["version"])
    return None


def at_version(uri: str, version: str) -> str:
    """The URI of a table at a version; one that names no table is the folder of a Delta table."""
    return replace(table_name(uri) or TableName(kind=LakeKind.DELTA, place=uri), version=version).full_uri


def missing_extra(uri: str, package: str) -> InputError:
    """What is raised where a package is missing that opens such tables."""
    return InputError(f"{uri}: the package {package} is not installed; pip install 'memagent-batch[lake]'")


def is_time(version: str) -> bool:
    """Whether the version of a table begins as a date does."""
    return bool(_TIME.match(version))


def instant(version: str) -> datetime:
    """The time that a version of a table names; a date alone is its midnight, and without an offset it is in UTC.

    Raises:
        InputError: it is not a time.
    """
    try:
        time = datetime.fromisoformat(version)
    except ValueError as error:
        raise InputError(f"@{version}: {error}; write a time as 2026-01-31T00:00:00Z") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def named_time(version: str, timestamp_ms: int) -> str:
    """A version with its time, for a person."""
    return f"{version} ({datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ})"


def missing_version(name: TableName, there: Sequence[str]) -> InputError:
    """What is raised where a table has no such version, or had none at that time; `there` are those that it has."""
    shown = [*there[:1], "...", *there[1 - _SHOWN_VERSIONS :]] if len(there) > _SHOWN_VERSIONS else there
    none = "no version of that time" if is_time(str(name.version)) else "no such version"
    return InputError(
        f"{mask_url(name.full_uri)}: the table has {none}; it has {', '.join(shown) or 'none'}; name one of these, or "
        "a time from the first one on, or leave out @ to read the newest"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFile:
    """A data file of a table."""

    path: str
    size_bytes: int
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
    """Row numbers as `LakeFile.deleted`, each once."""
    return bytes(np.unique(np.asarray(rows, dtype="<i8")).tobytes())


TableColumns = Mapping[str, TableColumn]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTable:
    """A version of a table."""

    uri: str
    """The table as the user names it, without a version or secrets."""
    location: Location
    """Its place: names the file system of its files."""
    version: str
    """Number of the version, or id of the snapshot."""
    columns: TableColumns
    files: tuple[LakeFile, ...]


def partition_values(path: str, *, root: str) -> Mapping[str, pa.Scalar]:
    """The keys in the folders of a file below `root`, as texts; those of the last folder if a key is there twice."""
    if "=" not in path:
        return {}
    root = root.rstrip("/")
    below = path.removeprefix(root) if path == root or path.startswith(f"{root}/") else path
    keys = (folder.partition("=") for folder in posixpath.dirname(below).split("/"))
    return {
        unquote(key): pa.scalar(None if value == _HIVE_NULL else unquote(value), pa.string())
        for key, is_key, value in keys
        if is_key and key
    }
