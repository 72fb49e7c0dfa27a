"""How tables of a lake are named: `delta://PLACE@VERSION`, `iceberg://CATALOG/DATABASE.TABLE@SNAPSHOT`."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from memagent_batch.errors import InputError

_VERSIONED_PLACE = re.compile(r"(?P<place>.+)@(?P<version>\d+|\d{4}-\d\d-\d\d[^/@]*)")
_ICEBERG = re.compile(r"(?P<catalog>[^/@]+)/(?P<table>[^/@]+\.[^/@]+)(?:@(?P<version>[^/@]+))?")


class LakeKind(StrEnum):
    """Formats of tables."""

    DELTA = "delta"
    """Delta Lake."""
    ICEBERG = "iceberg"
    """Apache Iceberg."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table as the user names it."""

    kind: LakeKind
    """Its format."""
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
